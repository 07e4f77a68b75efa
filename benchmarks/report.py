"""What was measured: as a table for people and as JSON for comparisons over time."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "latest.json"


@dataclass(frozen=True)
class Measure:
    """One number, with how it was taken. `value` None: it was not taken, and `how` says why."""

    name: str
    value: float | None
    unit: str
    how: str
    spread: dict[str, float] = field(default_factory=dict)
    """Further numbers of the same series, such as p99."""


def series(name: str, values: Sequence[float], unit: str, how: str) -> Measure:
    """The median, with the spread."""
    ordered = sorted(values)
    return Measure(
        name,
        ordered[len(ordered) // 2],
        unit,
        f"{how}, median of {len(ordered)}",
        {"min": ordered[0], "p90": ordered[int(len(ordered) * 0.9)], "max": ordered[-1]},
    )


def table(measures: Sequence[Measure]) -> str:
    """A Markdown table."""
    rows = [("measure", "value", "spread", "how"), ("---", "---:", "---", "---")]
    for measure in measures:
        value = "left out" if measure.value is None else f"{_number(measure.value)} {measure.unit}"
        spread = ", ".join(f"{name} {_number(number)}" for name, number in measure.spread.items())
        rows.append((measure.name, value, spread, measure.how))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    )


def write(measures: Sequence[Measure], path: Path = RESULTS) -> None:
    """The measures and what they were taken on."""
    path.parent.mkdir(exist_ok=True)
    found = {
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "load": os.getloadavg()[0],
        "measures": [asdict(measure) for measure in measures],
    }
    path.write_text(json.dumps(found, indent=2) + "\n")


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip()
