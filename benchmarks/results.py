"""What was measured, and results/latest.json: the newest of each part, with the run that it was taken in.

Only parts of one run are compared with each other: the machine, its load and the code are the same there.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.figures import Figure, figure

LATEST = Path(__file__).parent / "results" / "latest.json"

FORMAT = 2
"""Of the file. Another one is not read: its parts are left out."""


@dataclass(frozen=True)
class Row:
    """One measurement in one round. Without numbers it was left out, and the note says why."""

    subject: str
    """Who was measured: perdure, the bare writer, a peer."""
    case: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Line:
    """The rounds of one measurement."""

    subject: str
    case: str
    figures: Mapping[str, Figure]
    note: str = ""

    def median(self, name: str) -> float | None:
        found = self.figures.get(name)
        return None if found is None else found.median


@dataclass(frozen=True)
class PartResult:
    """`run` names the run in which the part was taken."""

    run: str
    lines: Sequence[Line]
    notes: Sequence[str] = ()
    failed: bool = False
    """Whether something is missing because of an error."""


@dataclass(frozen=True)
class Results:
    """`runs`: what each run was taken on, by the time of its start."""

    size: str
    runs: Mapping[str, Mapping[str, Any]]
    parts: Mapping[str, PartResult]

    def line(self, part: str, subject: str, case: str) -> Line | None:
        """A line that has numbers."""
        for line in self.lines(part):
            if (line.subject, line.case) == (subject, case):
                return line
        return None

    def lines(self, part: str) -> list[Line]:
        """The lines of a part that have numbers."""
        found = self.parts.get(part)
        return [line for line in found.lines if line.figures] if found else []

    def comparable(self, parts: Sequence[str]) -> bool:
        """Whether all these parts were taken in one run."""
        return len({self.parts[part].run for part in parts if part in self.parts}) == 1


def aggregate(rows: Sequence[Row]) -> list[Line]:
    """The rounds of each measurement together, in the order in which they were first taken."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.subject, row.case), []).append(row)
    found = []
    for (subject, case), group in groups.items():
        names = list(dict.fromkeys(name for row in group for name in row.numbers))
        figures = {name: figure([row.numbers[name] for row in group if name in row.numbers]) for name in names}
        notes = list(dict.fromkeys(row.note for row in group if row.note))
        found.append(Line(subject, case, figures, "; ".join(notes)))
    return found


def merged(before: Results | None, taken: Results) -> Results:
    """The parts of before that were not taken again, unless they were taken at another size."""
    if before is None or before.size != taken.size:
        return taken
    parts = {**before.parts, **taken.parts}
    used = {part.run for part in parts.values()}
    runs = {name: run for name, run in {**before.runs, **taken.runs}.items() if name in used}
    return Results(taken.size, runs, parts)


def this_run(postgres: Mapping[str, str]) -> dict[str, Any]:
    """What a run is taken on."""
    return {
        "commit": _commit(),
        "machine": machine.facts(),
        "load_at_start": os.getloadavg()[0],
        "stolen_seconds_at_start": machine.busy().stolen,
        "postgres": dict(postgres),
    }


def new_run_name() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def write(results: Results, goals: Sequence[Mapping[str, Any]], path: Path = LATEST) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {
        "format": FORMAT,
        "size": results.size,
        "runs": results.runs,
        "goals": list(goals),
        "parts": {name: asdict(part) for name, part in results.parts.items()},
    }
    path.write_text(json.dumps(found, indent=1) + "\n")


def read(path: Path = LATEST) -> Results | None:
    """None: there is none, or one of another format."""
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    if found.get("format") != FORMAT:
        return None
    parts = {
        name: PartResult(part["run"], [_line(line) for line in part["lines"]], tuple(part["notes"]), part["failed"])
        for name, part in found["parts"].items()
    }
    return Results(found["size"], found["runs"], parts)


def _line(found: Mapping[str, Any]) -> Line:
    figures = {name: Figure(**numbers) for name, numbers in found["figures"].items()}
    return Line(found["subject"], found["case"], figures, found["note"])


def _commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip()
