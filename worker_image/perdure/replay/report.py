"""PURE. What a replay has found, as a value, as text for people and as JSON for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.engine.codec import shorten
from perdure.errors import ReplayDiffers
from perdure.model.rows import RecordedStep
from perdure.replay.code import SourceLine

MAX_INPUT = 200
"""Longest excerpt of an input, in characters: a line or two on a terminal."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that does not fit.

    `code`: of the error that a worker would meet, or of `ReplayDiffers`. `index`: of the recorded step, None where it
    is the run itself; `recorded`: that step. `name` and `input`: what the code calls there, None if it calls nothing;
    `line`: where. `message`: a sentence.
    """

    code: str
    message: str
    index: int | None = None
    recorded: RecordedStep | None = None
    name: str | None = None
    input: str | None = None
    line: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What has become of one history. `steps`: how many it has; `replayed`: how many of them the code has met.

    `notes`: what is another end than the recorded one, which harms no run that goes on. A `strict` replay takes the
    first of them for the difference.
    """

    run_id: str
    workflow: str
    steps: int
    replayed: int
    difference: Difference | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the code does what is recorded."""
        return self.difference is None

    def check(self) -> None:
        """Raises `ReplayDiffers` with the difference, if there is one."""
        if not self.ok:
            raise ReplayDiffers("\n".join(self.lines("replay")))

    def lines(self, source: str) -> list[str]:
        """For a terminal; `source` is where the history comes from."""
        of = f"{source}: run {self.run_id} of {self.workflow}"
        found = self.difference
        if found is None:
            first = f"{of}: {self.replayed} of {self.steps} steps replayed"
            return [first, *(f"  note: {note}" for note in self.notes)]
        at = "" if found.index is None else f" at index {found.index}"
        lines = [f"{of} differs{at}"]
        if (row := found.recorded) is not None:
            lines.append(f"  recorded: {row.name} {shorten(row.input, MAX_INPUT)} ({row.status.name.lower()})")
        if found.name is not None:
            lines.append(f"  code:     {found.name} {shorten(found.input or '', MAX_INPUT)}")
        if found.line is not None:
            lines.append(f"  line:     {found.line}")
        return [*lines, f"  {found.code}: {found.message}"]

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        found, told = self.difference, None
        if found is not None:
            row, line = found.recorded, found.line
            told = {
                "code": found.code,
                "message": found.message,
                "index": found.index,
                "recorded": row and {"name": row.name, "input": row.input, "status": row.status.name},
                "called": None if found.name is None else {"name": found.name, "input": found.input},
                "line": line and {"path": line.path, "line": line.line, "function": line.function, "text": line.text},
            }
        return {
            "run_id": self.run_id,
            "workflow": self.workflow,
            "steps": self.steps,
            "replayed": self.replayed,
            "ok": self.ok,
            "difference": told,
            "notes": list(self.notes),
        }
