"""The docs say what the code says: errors, states, dependencies."""

import re
import tomllib
from pathlib import Path

import pytest
from perdure import errors
from perdure.model.states import PHASE_OF, RUN_TRANSITIONS, RunStatus

ROOT = Path(__file__).resolve().parents[3]


def _classes(base: type[errors.PerdureError]) -> list[type[errors.PerdureError]]:
    return [base, *(cls for sub in base.__subclasses__() for cls in _classes(sub) if cls.__module__ == errors.__name__)]


@pytest.fixture(scope="module")
def documented() -> dict[str, tuple[str, bool]]:
    """Code → (class name, retryable) as the page says."""
    text = (ROOT / "docs/reference/errors.md").read_text()
    parts = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    found = {}
    for part in parts:
        head, _, body = part.partition("\n")
        code, name = head.split()
        last = " ".join(body.split("\n## ")[0].split()).rpartition(". ")[2]
        assert last in ("Retryable.", "Not retryable."), f"{code} does not end with whether it is retryable"
        found[code] = (name, last == "Retryable.")
    return found


def test_every_error_has_its_paragraph_and_no_other(documented: dict[str, tuple[str, bool]]) -> None:
    defined = {cls.code: (cls.__name__, cls.retryable) for cls in _classes(errors.PerdureError)}
    assert documented == defined


def test_no_code_stands_for_two_errors() -> None:
    codes = [cls.code for cls in _classes(errors.PerdureError)]
    assert len(codes) == len(set(codes))


def test_the_diagram_of_states_is_the_table() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    arrows = set(re.findall(r"^  (\w+) --> (\w+)$", text, flags=re.MULTILINE))
    assert arrows == {(start.name, end.name) for start, ends in RUN_TRANSITIONS.items() for end in ends}


def test_the_table_of_statuses_has_each_with_its_phase() -> None:
    text = (ROOT / "docs/reference/statuses.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (\w+) \|", text, flags=re.MULTILINE)
    assert rows == [(status.name, phase.value) for status, phase in PHASE_OF.items()]


def test_the_table_of_statuses_says_what_each_is_called_elsewhere() -> None:
    text = (ROOT / "docs/reference/statuses.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|(?:[^|]+\|){2} (\w+)[^|]*\|$", text, flags=re.MULTILINE)
    assert rows == [(status.name, status.dbos_name) for status in RunStatus]


def test_the_page_has_the_layers_in_their_order() -> None:
    (contract,) = [
        each
        for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
        if each["name"].startswith("Inside perdure each layer")
    ]
    page = (ROOT / "docs/architecture.md").read_text()
    (said,) = re.findall(r"`(errors ←[^`]+)`", page)
    names = [each.replace("perdure.", "").replace(" | ", ", ") for each in reversed(contract["layers"])]
    assert " ".join(said.split()) == " ← ".join(names)


def test_every_dependency_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        required += extra
    table = (ROOT / "docs/decisions/0001-dependencies.md").read_text()
    first_cells = " ".join(re.findall(r"^\| ([^|]+) \|", table, flags=re.MULTILINE))
    missing = {re.split(r"[<>=\[ ]", spec)[0] for spec in required} - set(re.findall(r"[\w-]+", first_cells))
    assert not missing
