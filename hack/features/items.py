"""The items as they stand in their files: read strictly, as a slip there would show an item that nothing shows."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = {
    "dbos": ("DBOS", 'the reference "Workflows & Steps" of DBOS Transact for Rust'),
    "suprnova": ("Suprnova", 'the chapter "Workflows" of Suprnova\'s guide'),
    "persistence": ("Persistence", 'a lesson on "Async Workflow Persistence" in Rust'),
}
"""Key in the files → short name, and what it is."""

OWN = "own"
"""What an item is called that none of the guides has."""

LINES = re.compile(r"\d+(-\d+)?(, \d+(-\d+)?)*")
TEST = re.compile(r"tests/[\w/]+/test_\w+\.py::(\w+::)?test_\w+")
KEYS = {"text", "from", "tests", "note"}


@dataclass(frozen=True)
class Item:
    """One thing that Perdure does. `lines` has the lines of each guide that name it; without any it is our own."""

    text: str
    lines: dict[str, str]
    tests: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class Area:
    """A part of the table."""

    title: str
    items: tuple[Item, ...]


class Malformed(ValueError):
    """A file says something that is no item."""


def load(folder: Path) -> list[Area]:
    """The areas in the order of their files. Raises `Malformed` with the file and the item."""
    areas = [_area(path) for path in sorted(folder.glob("*.toml"))]
    seen: set[str] = set()
    for area in areas:
        for item in area.items:
            if (place := f"{area.title}: {item.text}") in seen:
                raise Malformed(f"{place} stands there twice")
            seen.add(place)
    return areas


def named_tests(areas: Sequence[Area]) -> list[str]:
    """Each test once, in the order of its first item."""
    return list(dict.fromkeys(test for area in areas for item in area.items for test in item.tests))


def _area(path: Path) -> Area:
    try:
        text = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise Malformed(f"{path.name}: {error}") from None
    if set(text) != {"title", "item"} or not text["item"]:
        raise Malformed(f"{path.name}: a title and items are wanted, and nothing else")
    items = []
    for number, entry in enumerate(text["item"], 1):
        if problem := _problem(entry):
            raise Malformed(f"{path.name}, item {number}: {problem}")
        items.append(Item(entry["text"], entry["from"], tuple(entry["tests"]), entry.get("note", "")))
    return Area(text["title"], tuple(items))


def _problem(entry: dict[str, Any]) -> str:
    if missing := {"text", "from", "tests"} - set(entry):
        return f"{', '.join(sorted(missing))} is missing"
    if unknown := set(entry) - KEYS:
        return f"there is no {', '.join(sorted(unknown))}"
    for words in (entry["text"], entry.get("note", ".")):
        if not words.endswith(".") or "|" in words or "\n" in words:
            return f"a sentence in one line is wanted, not {words!r}"
    for guide, lines in entry["from"].items():
        if guide not in SOURCES:
            return f"there is no guide {guide}"
        if not LINES.fullmatch(lines):
            return f"{lines!r} are no lines, as in 3-5, 9"
    for test in entry["tests"]:
        if not TEST.fullmatch(test):
            return f"{test!r} is no test, as in tests/unit/test_x.py::test_y"
    if len(set(entry["tests"])) < len(entry["tests"]):
        return "a test stands there twice"
    return ""
