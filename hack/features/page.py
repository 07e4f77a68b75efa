"""The page, made from the items alone, so that it is the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence

from features.items import OWN, SOURCES, Area, Item

HEAD = """# Feature table

{count} items: what the guides name that Perdure follows, in our own words, and the tests that show it. `make features`
writes this page from `hack/features/items` and fails where an item has no test, or one that is not there, is skipped,
or did not pass when it was last run.

Where an item comes from, with the lines of that text as it was when the table was made:

{sources}

Where Perdure does it in another way, the item says so and why; all of these are [listed at the end](#what-differs).
"""


def render(areas: Sequence[Area]) -> str:
    """The whole text of the page."""
    sources = [f"- **{name}**: {what}" for name, what in SOURCES.values()]
    sources.append(f"- **{OWN}**: none of them; it belongs to what Perdure promises")
    count = sum(len(area.items) for area in areas)
    parts = [HEAD.format(count=count, sources="\n".join(sources))]
    for area in areas:
        rows = "\n".join(f"| {_item(item)} | {_from(item)} | {_tests(item)} |" for item in area.items)
        parts.append(f"## {area.title}\n\n| what | from | shown by |\n|---|---|---|\n{rows}\n")
    differing = [
        f"- {area.title}: {item.text} **Here:** {item.note}" for area in areas for item in area.items if item.note
    ]
    parts.append("## What differs\n\n" + "\n".join(differing) + "\n")
    return "\n".join(parts)


def _item(item: Item) -> str:
    return f"{item.text} **Here:** {item.note}" if item.note else item.text


def _from(item: Item) -> str:
    return "; ".join(f"{SOURCES[guide][0]} {lines}" for guide, lines in item.lines.items()) or OWN


def _tests(item: Item) -> str:
    return "<br>".join(f"[{function}](../../{file})" for file, function in map(_split, item.tests))


def _split(test: str) -> tuple[str, str]:
    file, _, function = test.partition("::")
    return file, function.rpartition("::")[2].removeprefix("test_").replace("_", " ")
