"""`make bench [PARTS="drain bare"] [QUICK=1]`: take the measures, print them, write them down."""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localcluster.console import Failure, duration, say

from benchmarks import goals, machine, report
from benchmarks.host import Bench, bench
from benchmarks.part import Part, Rounds
from benchmarks.parts import BY_NAME, PARTS
from benchmarks.results import LATEST, PartResult, Results, Row, aggregate, merged, new_run_name, read, this_run, write
from benchmarks.sizes import FULL, SIZES, Size

NOTE_LENGTH = 300
"""The end of an error that is kept with the results: the cause fits."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(BY_NAME)}; all by default")
    parser.add_argument("--size", choices=sorted(SIZES), default=FULL.name)
    parser.add_argument("--results", type=Path, help="another folder for latest.json and benchmarks.md")
    parsed = parser.parse_args(arguments)
    if unknown := sorted(set(parsed.parts) - set(BY_NAME)):
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    # Ended by either signal, it takes down what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    size = SIZES[parsed.size]
    latest = parsed.results / LATEST.name if parsed.results else LATEST
    page = parsed.results / report.PAGE.name if parsed.results else report.PAGE
    wanted = [part for part in PARTS if part.name in parsed.parts or (not parsed.parts and _by_itself(part, size))]
    try:
        taken = asyncio.run(take(wanted, size))
    except KeyboardInterrupt:
        return 130
    results = merged(read(latest), taken) if parsed.parts else taken
    write(results, [_goal(goal) for goal in goals.goals(results)], latest)
    page.write_text(report.page(results, report.written_notes()))
    print(f"\n{report.tables(taken)}\nwritten to {latest} and {page}")
    return 1 if any(part.failed for part in taken.parts.values()) else 0


async def take(parts: Sequence[Part], size: Size) -> Results:
    """Round by round, so that what is compared has the same weather; what is taken once comes last."""
    name, started, stolen = new_run_name(), time.monotonic(), machine.busy().stolen
    rows: dict[str, list[Row]] = {part.name: [] for part in parts}
    notes: dict[str, list[str]] = {part.name: [] for part in parts}
    failed: set[str] = set()
    with bench(size) as place:
        run = this_run(await place.versions())
        for part, number in in_order(parts, size):
            place.notes = notes[part.name]
            if not await _round(place, part, number, rows[part.name]):
                failed.add(part.name)
    run["stolen_seconds"] = round(machine.busy().stolen - stolen, 1)
    run["minutes"] = round((time.monotonic() - started) / 60, 1)
    say(f"all taken in {duration(time.monotonic() - started)}")
    found = {
        part.name: PartResult(name, aggregate(rows[part.name]), notes[part.name], part.name in failed) for part in parts
    }
    return Results(size.name, {name: run}, found)


def in_order(parts: Sequence[Part], size: Size) -> Iterator[tuple[Part, int]]:
    """Every part with the numbers of its rounds. What is compared is taken in turn; what is taken once comes after all
    of that, since it may leave something at work, as a cluster does."""
    compared = [part for part in parts if part.rounds is not Rounds.ONCE]
    for number in range(max(size.rounds, size.peer_rounds)):
        yield from ((part, number) for part in compared if number < _rounds(part, size))
    yield from ((part, 0) for part in parts if part.rounds is Rounds.ONCE)


async def _round(place: Bench, part: Part, number: int, rows: list[Row]) -> bool:
    """One round of a part; False: it failed, and a note says how. The other parts are worth having all the same."""
    rounds = _rounds(part, place.size)
    say(f"{part.name}: {part.title}{f', round {number + 1} of {rounds}' if rounds > 1 else ''}")
    try:
        async for row in part.measure(place):
            rows.append(row)
            say(_line(part, row))
    except Exception as error:
        what = str(error) if isinstance(error, Failure) else traceback.format_exc()
        say(f"{part.name} failed: {what}")
        place.notes.append(f"{part.name} failed: {' '.join(what.split())[-NOTE_LENGTH:]}")
        return False
    return True


def _line(part: Part, row: Row) -> str:
    (line,) = aggregate([row])
    numbers = [
        f"{column.heading} {row.numbers[column.name]:.4g}" for column in part.columns if column.name in line.figures
    ]
    return f"{part.name}: {row.subject}, {row.case}: {', '.join(numbers) or row.note}"


def _rounds(part: Part, size: Size) -> int:
    found = {Rounds.COMPARED: size.rounds, Rounds.PEERS: size.peer_rounds, Rounds.ONCE: 1}
    return found[part.rounds]


def _by_itself(part: Part, size: Size) -> bool:
    return part.quick or size is FULL


def _goal(goal: goals.Goal) -> dict[str, Any]:
    return {**asdict(goal), "met": goal.met, "verdict": goal.verdict}


if __name__ == "__main__":
    raise SystemExit(main())
