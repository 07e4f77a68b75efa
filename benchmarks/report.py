"""docs/benchmarks.md and what `make bench` prints: both from the results alone, so that a test can compare them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from benchmarks.goals import goals, goals_table
from benchmarks.parts import PARTS
from benchmarks.results import Results

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"

NOTES = Path(__file__).with_name("notes.md")
"""Written by hand: for each goal that is missed, what the profile shows and what was tried."""

HEAD = """# Benchmarks

<!-- Written by `make bench` from benchmarks/results/latest.json; a test compares them. -->

```sh
make bench                       # everything: about three quarters of an hour, and building the peers the first time
make bench QUICK=1               # smaller numbers and no peers: under five minutes
make bench PARTS="drain bare"    # some parts; the others stay as they were
```

Each command prints these tables, and writes them here and to `benchmarks/results/latest.json`. The measures of one run
are taken on one Postgres, a fresh database each, after a checkpoint and on an idle machine; what is compared is taken
in several rounds, in turn: the median is shown, with the range of the rounds. Steps do nothing, so that what is
measured is the engine. These are no tests: no machine promises a time.
"""


WIDTH = 120
NOTHING = "Nothing has been measured yet.\n"


def page(results: Results | None, notes: str) -> str:
    """The whole page. None: there are no results. `notes`: what people have to say about the goals that are missed."""
    return "\n".join([HEAD, *(_sections(results, heading="##", notes=notes) if results else [NOTHING])])


def written_notes() -> str:
    """What is in `NOTES`, empty when nobody has written any."""
    return NOTES.read_text() if NOTES.exists() else ""


def tables(results: Results) -> str:
    """For the terminal."""
    return "\n".join(_sections(results, heading="#"))


def _sections(results: Results, *, heading: str, notes: str = "") -> list[str]:
    found = [f"{heading} Goals\n", goals_table(goals(results)), ""]
    found += [notes] if notes else []
    for part in PARTS:
        if part.name in results.parts:
            taken = results.parts[part.name]
            found += [f"{heading} {part.title}\n", f"{textwrap.fill(part.how, WIDTH)}\n"]
            found += [part.table(taken.lines), ""] if taken.lines else []
            found += [*(f"- Note: {note}." for note in taken.notes), ""] if taken.notes else []
    return [*found, f"{heading} Where and when\n", *_runs(results)]


def _runs(results: Results) -> Sequence[str]:
    found = []
    for name, run in results.runs.items():
        parts = ", ".join(part for part, taken in results.parts.items() if taken.run == name)
        machine, postgres = run["machine"], run["postgres"]
        settings = ", ".join(f"{key} {value}" for key, value in postgres.items() if key != "version")
        found += [f"- {name}, {results.size} run, commit {run['commit']}: {parts}."]
        found += [
            f"  {machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, {machine['system']},"
        ]
        found += [f"  Python {machine['python']}. Load at the start {run['load_at_start']:.1f}; the host took"]
        found += [f"  {run['stolen_seconds']:.0f} s of processor time for others in {run['minutes']:.0f} minutes."]
        found += [f"  Postgres {postgres['version']} over TCP, {settings}; all else as it comes."]
    return [*found, ""]
