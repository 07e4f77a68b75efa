"""The reference of the Python API says what the docstrings say, and these say what a reader has to know."""

import ast
import builtins
import re
from collections.abc import Iterator

import perdure
from apidocs.render import LONGEST_PAGE, everything, is_code, methods, pages, prose, spaced
from apidocs.signatures import signature, telling
from apidocs.source import Found, resolve
from apidocs.topics import TOPICS

RAISES_NOTHING = {
    "perdure.Cancellation.is_set",
    "perdure.Cancellation.wait",
    "perdure.Client.close",
    "perdure.Handle.of",
    "perdure.RunHistory.to_json",
    "perdure.RunHandle.of",
    "perdure.codecs.Compression.encode",
    "perdure.codecs.Encryption.encode",
    "perdure.codecs.Encryption.new_key",
    "perdure.codecs.Offload.of_day",
    "perdure.codecs.Offload.remove",
    "perdure.is_active",
    "perdure.now",
    "perdure.random",
    "perdure.replay.Report.as_json",
    "perdure.replay.Report.lines",
    "perdure.testing.DatabaseServer.clear",
    "perdure.testing.DatabaseServer.create",
    "perdure.testing.DatabaseServer.drop",
    "perdure.testing.DatabaseServer.prepare",
    "perdure.testing.Environment.crash_now",
    "perdure.testing.History.of",
    "perdure.uuid4",
}
"""Calls that have nothing to raise. What is new says what it raises, or is put here on purpose."""

OURS = {"Step", "TaskGroup", "Workflow", "Queues", "Schedules", "WorkerPool", "WorkflowSignal"}
"""What docstrings speak of beside public names and those of Python."""


def entries() -> Iterator[tuple[str, Found]]:
    yield from everything()
    for topic in TOPICS:
        for place, name in topic.also:
            yield name, resolve(place, name)


def calls() -> Iterator[tuple[str, Found]]:
    for name, found in entries():
        if isinstance(found.node, ast.ClassDef):
            if any(ast.unparse(base) == "Protocol" for base in found.node.bases):
                continue  # users write these methods
            for inner, method in methods(found).items():
                yield f"{name}.{inner}", method
        elif isinstance(found.node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, found


def test_every_public_name_is_on_a_page() -> None:
    text = "".join(pages().values())
    missing = [name for name in perdure.__all__ if f"## `perdure.{name}" not in text and name != "__version__"]
    assert not missing


def test_no_page_is_longer_than_a_reader_bears() -> None:
    assert max(text.count("\n") for text in pages().values()) <= LONGEST_PAGE


def test_a_public_name_says_what_it_is() -> None:
    assert [name for name, found in [*entries(), *calls()] if not found.doc] == []


def test_a_call_says_what_it_raises() -> None:
    """Or where that stands: "`Client.fork`", "as `start`"."""
    silent = [name for name, found in calls() if name not in RAISES_NOTHING and not says_what_it_raises(found)]
    assert silent == []


def says_what_it_raises(found: Found) -> bool:
    assert isinstance(found.node, ast.FunctionDef | ast.AsyncFunctionDef)
    if any(ast.unparse(each) == "property" for each in found.node.decorator_list):
        return True
    return "aise" in found.doc or re.search(r"`(Client|perdure|Instance)\.\w+`|[Aa]s `\w+`", found.doc) is not None


def test_docstrings_speak_of_names_that_there_are() -> None:
    known = {*(name.rpartition(".")[2] for name, _ in entries()), *dir(builtins), *OURS}
    lost = {}
    for name, found in [*entries(), *calls()]:
        said = {each.partition(".")[0] for each in re.findall(r"`([A-Z][a-z]\w+(?:\.\w+)?)`", found.doc)}
        if said - known - {name.rpartition(".")[2]}:
            lost[name] = said - known
    assert not lost


def test_an_example_in_a_docstring_is_told_from_a_sentence() -> None:
    assert is_code("async with app:\n    await greet.start('Ada')")
    assert not is_code("A sentence about `f(x)`.")
    assert not is_code("done")
    assert spaced(["f(1)", "def g():\n    h()", "g()"]) == "f(1)\n\n\ndef g():\n    h()\n\n\ng()"
    assert prose("One.\n\nf(1)\n\ng(2)\n\nTwo.") == ["One.", "```python\nf(1)\n\ng(2)\n```", "Two."]


def test_a_signature_is_written_as_it_is_called() -> None:
    (function,) = ast.parse("async def f(self, a, /, b: int = 1, *, c: str = UNSAID, **d: Any) -> bool: ...").body
    assert isinstance(function, ast.AsyncFunctionDef)
    shown = signature("f", function, method=True)
    assert shown == "await f(a, /, b: int = 1, *, c: str = ..., **d: Any) -> bool"
    (longer,) = ast.parse("def f(*, first: int, second: int) -> bool: ...").body
    assert isinstance(longer, ast.FunctionDef)
    assert telling(function, [longer]) is longer
    assert telling(longer, [function]) is longer
