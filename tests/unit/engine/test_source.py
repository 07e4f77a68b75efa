"""The hash of a workflow's source: what changes it and what does not."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from perdure.api import registering
from perdure.engine import source
from perdure.engine.registry import Registry
from perdure.engine.source import source_hash

HEAD = """
import perdure
from dataclasses import dataclass
import othersteps

LIMIT = 3
NAMES = ["a", "b"]
UNUSED = 1
COMPUTED = len("abc")


@dataclass
class Order:
    id: str


@perdure.step(name="charge")
async def charge(order: str, amount: int = 1) -> int:
    return amount


def price(order):
    return deeper(order)


def deeper(order):
    return 1


def unrelated():
    return 1

"""

BODY = '''
@perdure.workflow(name="flow")
async def flow(order: "Order") -> int:
    """Charges."""
    for _ in range(LIMIT):
        await charge(order, price(order))
    await othersteps.mail(NAMES)
    return Order("1")
'''

OTHER = """
import perdure


@perdure.step(name="mail")
async def mail(names: list[str]) -> None: ...
"""


@pytest.fixture
def hash_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str | None]:
    """The hash of `flow` in a module of this source, each time imported anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    count = 0

    def module(name: str, text: str) -> ModuleType:
        monkeypatch.delitem(sys.modules, name, raising=False)
        # A file of its own each time: the interpreter and `linecache` remember lines by the name of the file.
        path = tmp_path / f"{name}_{count}.py"
        path.write_text(text)
        made = ModuleType(name)
        made.__file__ = str(path)
        monkeypatch.setitem(sys.modules, name, made)
        exec(compile(text, str(path), "exec"), vars(made))
        return made

    def made(text: str = HEAD + BODY, other: str = OTHER) -> str | None:
        nonlocal count
        count += 1
        monkeypatch.setattr(registering, "default_registry", Registry())
        source._constants.cache_clear()
        module("othersteps", other)
        return module("flows", text).flow.definition.source_hash  # type: ignore[no-any-return]

    return made


def changed(old: str, new: str) -> str:
    text = HEAD + BODY
    assert text.count(old) == 1, old
    return text.replace(old, new)


def test_it_is_sixty_four_hexadecimal_digits_and_the_same_each_time(hash_of: Callable[..., str | None]) -> None:
    first = hash_of()
    assert first is not None
    assert len(first) == 64
    assert int(first, 16) >= 0
    assert hash_of() == first


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    for _ in", "    # A comment.\n\n    for _ in"),
        ("range(LIMIT)", "range(\n        LIMIT,\n    )"),
        ('"""Charges."""', '"""Charges, as it says."""'),
        ('    """Charges."""\n', ""),
        ('@perdure.workflow(name="flow")', '@perdure.workflow(name="flow", version_policy="auto", timeout=5)'),
        ("async def flow(", "async def flow(  # which one\n    "),
        ("    return amount\n", "    return amount * 2\n"),
        ('@perdure.step(name="charge")', '@perdure.step(name="charge", max_attempts=3)'),
        ("    return deeper(order)", "    # deeper\n    return deeper(order)"),
        ("def deeper(order):\n    return 1", "def deeper(order):\n    return 2"),
        ("def unrelated():\n    return 1", "def unrelated():\n    return 2"),
        ("UNUSED = 1", "UNUSED = 2"),
        ("LIMIT = 3", "LIMIT = 0x3"),
    ],
    ids=lambda text: text.strip()[:40],
)
def test_what_a_replay_does_not_see_leaves_it_as_it_is(hash_of: Callable[..., str | None], old: str, new: str) -> None:
    assert hash_of() == hash_of(changed(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("await charge(order, price(order))", "await charge(order, 2)"),
        ("range(LIMIT)", "range(4)"),
        ('return Order("1")', 'return Order("2")'),
        ('flow(order: "Order")', "flow(order: Order)"),
        ("return deeper(order)", "return deeper(order) + 1"),
        ("LIMIT = 3", "LIMIT = 4"),
        ('NAMES = ["a", "b"]', 'NAMES = ["a", "c"]'),
        ('name="charge"', 'name="charge2"'),
        ("amount: int = 1", "amount: int = 2"),
        (") -> int:\n    return amount", ") -> str:\n    return amount"),
        ("    id: str", "    id: str\n    paid: bool = False"),
        ("@dataclass\n", "@dataclass(frozen=True)\n"),
    ],
    ids=lambda text: text.strip()[:40],
)
def test_what_a_replay_goes_by_changes_it(hash_of: Callable[..., str | None], old: str, new: str) -> None:
    assert hash_of() != hash_of(changed(old, new))


def test_steps_of_other_modules_count_with_their_names_and_parameters(hash_of: Callable[..., str | None]) -> None:
    before = hash_of()
    assert hash_of(HEAD + BODY, OTHER.replace("-> None: ...", "-> None:\n    print(1)")) == before
    assert hash_of(HEAD + BODY, OTHER.replace('name="mail"', 'name="letter"')) != before
    assert hash_of(HEAD + BODY, OTHER.replace("names: list[str]", "names: list[str], copy: bool")) != before


def test_a_body_that_stands_deeper_has_the_same_hash(hash_of: Callable[..., str | None]) -> None:
    inner = "def make():\n" + "".join(f"    {line}\n" if line else "\n" for line in BODY.strip().split("\n"))
    assert hash_of(HEAD + inner + "\n    return flow\n\n\nflow = make()\n") == hash_of()


def test_a_text_of_several_lines_within_counts_as_it_is(hash_of: Callable[..., str | None]) -> None:
    def text(lines: str) -> str:
        return HEAD + f'@perdure.workflow(name="flow")\nasync def flow():\n    return """{lines}"""\n'

    assert hash_of(text("a\nb")) != hash_of(text("a\n    b"))


def test_of_what_has_no_source_there_is_none() -> None:
    names: dict[str, object] = {}
    exec("async def flow(): return 1", names)
    assert source_hash(names["flow"]) is None  # type: ignore[arg-type]


def test_of_a_partial_there_is_none() -> None:
    async def flow(n: int) -> int:
        return n

    assert source_hash(partial(flow, 1)) is None


def test_names_of_an_enclosing_function_are_looked_up_too() -> None:
    def make(amount: int) -> Callable[..., object]:
        def inner() -> int:
            return 1 if amount else 2

        if amount:

            def helper() -> int:
                return 1
        else:

            def helper() -> int:
                return 2

        async def flow() -> int:
            return inner() + helper()

        return flow

    assert source_hash(make(0)) != source_hash(make(1))
    assert source_hash(make(1)) == source_hash(make(2))
