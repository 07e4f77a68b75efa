"""The steps in `.status`: which are shown, in how much detail, within how many bytes. Pure; used by the projection.

Failed and live steps come first, then the latest that succeeded, then those to come; the list is in the order of
their index. Outputs take what room is left, latest first, so that one large output never hides a failed step.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from perdure.model.rows import StatusSource, StepView
from perdure.model.states import RunStatus, StepStatus
from perdure.resources.projection_text import instant, json_bytes, read_error, shorten, showable, written_by
from perdure.resources.steps import MAX_STEPS
from perdure.resources.waits import clock_time
from perdure.resources.workflow_status import NAME_MAX

MAX_STEP_OUTPUT_BYTES = 1024
"""Largest output of one step that is shown: an identifier, an amount, a short answer."""

MESSAGE_MAX = 256

LIVE, DONE, TO_COME = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Declared:
    """Names of the declared steps in their order."""

    names: tuple[str, ...]

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.names)

    @classmethod
    def read(cls, definition: str | None) -> Declared | None:
        """From a stored definition; None for a registered workflow, and for what cannot be read."""
        if definition is None:
            return None
        try:
            steps = json.loads(definition)["steps"]
            return cls(tuple(str(step["name"]) for step in steps))
        except (ValueError, TypeError, KeyError):
            return None


@dataclass(slots=True)
class _Entry:
    rank: tuple[int, int]
    fields: dict[str, Any]
    output: Any = None
    output_size: int = 0

    @property
    def index(self) -> int:
        return int(self.fields["index"])


def project_steps(source: StatusSource, declared: Declared | None, budget: int) -> list[dict[str, Any]]:
    """The list for `.status.steps`, at most `MAX_STEPS` and about `budget` bytes."""
    status = source.run.status
    entries = [_recorded(step, status, with_output=declared is not None) for step in source.steps]
    entries += _to_come(source, declared, finished=status.finished)
    chosen: list[_Entry] = []
    for entry in sorted(entries, key=lambda entry: entry.rank)[:MAX_STEPS]:
        size = json_bytes(entry.fields) + 1
        if size <= budget:
            budget -= size
            chosen.append(entry)
    chosen.sort(key=lambda entry: (entry.index, entry.rank))
    for entry in reversed(chosen):
        if 0 < entry.output_size <= budget:
            budget -= entry.output_size
            entry.fields.pop("outputTruncated", None)
            entry.fields["output"] = entry.output
    return [entry.fields for entry in chosen]


def _recorded(step: StepView, run: RunStatus, *, with_output: bool) -> _Entry:
    error = None if step.error is None else read_error(step.error)
    fields: dict[str, Any] = {
        "name": shorten(step.name, NAME_MAX),
        "index": step.index,
        "phase": _phase(step.status, run),
        "attempts": step.attempts + (step.status in {StepStatus.RUNNING, StepStatus.SUCCEEDED}),
        "startedAt": instant(step.started_at),
        "finishedAt": instant(step.finished_at),
        "message": None if error is None else shorten(error.message, MESSAGE_MAX) or None,
    }
    if step.status == StepStatus.RETRYING and step.wake_at is not None and not run.finished:
        fields["waitingFor"] = f"retry at {clock_time(step.wake_at, step.started_at)}"
    if step.status == StepStatus.WAITING and step.wake_at is not None and not run.finished:
        fields["waitingFor"] = f"until {clock_time(step.wake_at, step.started_at)}"
    fields = {key: value for key, value in fields.items() if value is not None}
    live = step.status not in {StepStatus.SUCCEEDED, StepStatus.DROPPED}
    entry = _Entry(rank=(LIVE if live else DONE, -step.index), fields=fields)
    if with_output and step.status == StepStatus.SUCCEEDED:
        _with_output(entry, step.output)
    return entry


def _with_output(entry: _Entry, text: str | None) -> None:
    """Room for the mark `outputTruncated` is taken at once, so that there is always room for one of the two."""
    if (name := written_by(text)) is not None:
        entry.fields["outputWrittenBy"] = name
        return
    value, shown = showable(text, len(text or ""), MAX_STEP_OUTPUT_BYTES)
    if shown and value is None:
        return
    entry.fields["outputTruncated"] = True
    if shown:
        entry.output, entry.output_size = value, json_bytes(value) + len('"output":,')


def _to_come(source: StatusSource, declared: Declared | None, *, finished: bool) -> list[_Entry]:
    if declared is None:
        return []
    known = {step.name for step in source.steps}
    phase = "NotRun" if finished else "Pending"
    return [
        _Entry(rank=(TO_COME, index), fields={"name": shorten(name, NAME_MAX), "index": index, "phase": phase})
        for index, name in enumerate(declared.names)
        if name not in known
    ]


def _phase(status: StepStatus, run: RunStatus) -> str:
    """A step that its row calls running is at work only while somebody holds the run."""
    match status:
        case StepStatus.SUCCEEDED:
            return "Succeeded"
        case StepStatus.FAILED:
            return "Failed"
        case StepStatus.DROPPED:
            return "Dropped"
        case StepStatus.RUNNING if run != RunStatus.RUNNING:
            return "Interrupted"
        case StepStatus.RETRYING | StepStatus.WAITING if run.finished:
            return "Interrupted"
        case StepStatus.RUNNING:
            return "Running"
        case StepStatus.RETRYING | StepStatus.WAITING:
            return "Waiting"
