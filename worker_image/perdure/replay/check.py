"""Judges one history: replays it and says what of it the present code does not do.

A difference is what harms a run that goes on: another call than is recorded, one that the code does not come to any
more, a recorded value that it cannot read, an error where none was. What only ends otherwise, behind everything that is
recorded, harms none and is a note: nobody replays a run that has ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from perdure.api import Workflow, registering
from perdure.declarative.run import register
from perdure.engine.codec import shorten
from perdure.engine.encoding import MARK
from perdure.engine.registry import Registry
from perdure.errors import (
    CompensationFailed,
    NotDeterministic,
    PayloadsUnavailable,
    PerdureError,
    ReplayDiffers,
    UnexpectedStep,
    UnknownStep,
)
from perdure.model.history import RunHistory
from perdure.model.outcome import Ending, ErrorRecord, Failed, Mismatch, Released, Succeeded
from perdure.model.rows import DECLARED_WORKFLOW
from perdure.model.states import RunStatus
from perdure.replay.execution import Replay
from perdure.replay.report import Difference, Report


async def replay(
    history: RunHistory,
    workflow: Workflow[..., Any] | None = None,
    *,
    registry: Registry | None = None,
    strict: bool = False,
) -> Report:
    """Run the body that the history is of, with what is recorded, to the end of the record; what came of it.

    `workflow`: the one to replay it with, whatever its name; None: the one of the recorded name in `registry`, by
    default that of all decorators. `strict`: a run that has ended must also end as it did. No step is run and nothing
    is written, and what the history was made from is not needed. A body that awaits something else than durable calls
    is given up after ten seconds. Never raises for what it finds: see `Report.check`.
    """
    known = registering.default_registry if registry is None else registry
    if workflow is not None:
        known = workflow.definition.registry or known
        history = replace(history, workflow=workflow.name)
    if history.workflow == DECLARED_WORKFLOW and DECLARED_WORKFLOW not in known.workflows:
        register(known)
    with ThreadPoolExecutor(1) as threads:
        run = Replay(await _readable(history, known), known, threads)
        ending = await run.run()
    count = len(run.claimed.steps)
    met = count - len(run.recorded.left)
    report = Report(history.id, history.workflow, count, met, _difference(run, ending))
    if not report.ok:
        return report
    notes = tuple(_notes(run, ending))
    if strict and notes:
        return replace(report, difference=_called(run, Difference(ReplayDiffers.code, notes[0])))
    return replace(report, notes=notes)


async def _readable(history: RunHistory, registry: Registry) -> RunHistory:
    """With its result as JSON, if that can be read here."""
    if history.output is None:
        return history
    with suppress(PerdureError):
        return replace(history, output=await registry.serializers.fetch(history.output, "the recorded result"))
    return history


def _difference(run: Replay, ending: Ending) -> Difference | None:
    if isinstance(ending, Mismatch):
        return _mismatch(run, ending.error)
    if run.unread:
        return Difference(
            PayloadsUnavailable.code, "a recorded value cannot be read: what its codec asks does not answer"
        )
    if isinstance(ending, Failed) and _same_error(ending.error, run.history.error):
        return None
    if isinstance(ending, Failed) and not run.began:
        return Difference(ending.error.code or ReplayDiffers.code, ending.error.message)
    missing = run.missing()
    if missing:
        row = missing[0]
        message = f"at index {row.index} step {row.name} is recorded, but {_instead(run, ending)}"
        return _called(run, Difference(UnexpectedStep.code, message, row.index, row))
    if isinstance(ending, Failed):
        error = ending.error
        said = f"the code fails with {error.type}: {shorten(error.message)}"
        if run.history.status is RunStatus.SUCCEEDED:
            return Difference(error.code or ReplayDiffers.code, f"{said}, and the run had succeeded")
        if error.code == NotDeterministic.code:
            return Difference(error.code, said)
    for row in run.undoing:
        if row.name not in run.registry.steps and not run.history.status.finished:
            message = f"at index {row.index} step {row.name} undoes another, and it is not registered here"
            return Difference(UnknownStep.code, message, row.index, row)
    if run.stuck:
        return Difference(ReplayDiffers.code, "the code awaits something that is no durable call, and it does not end")
    return None


def _mismatch(run: Replay, error: ErrorRecord) -> Difference:
    found = Difference(error.code or ReplayDiffers.code, error.message)
    row = None if run.mismatch is None else run.mismatch[1]
    if row is None:
        return found
    found = replace(found, index=row.index, recorded=row)
    call = run.built.get(row.index)
    return found if call is None else replace(found, name=call.name, input=call.input, line=call.line)


def _called(run: Replay, found: Difference) -> Difference:
    """With what the code calls instead, if it calls anything."""
    for call in run.beyond:
        built = run.built.get(-1 if call.step_id is None else call.step_id)
        if built is not None:
            return replace(found, name=built.name, input=built.input, line=built.line)
    return found


def _instead(run: Replay, ending: Ending) -> str:
    match ending:
        case Succeeded():
            return "the code ends before it comes to it"
        case Failed(error):
            return f"the code fails before it comes to it, with {error.type}: {shorten(error.message)}"
    if run.beyond:
        call = run.beyond[0]
        at = "" if call.step_id is None else f" at index {call.step_id}"
        return f"the code waits for {call.name}{at}, of which nothing is recorded"
    return "the code does not come to it"


def _notes(run: Replay, ending: Ending) -> Iterator[str]:
    history = run.history
    if history.status not in (RunStatus.SUCCEEDED, RunStatus.FAILED):
        return
    how = "succeeded" if history.status is RunStatus.SUCCEEDED else "failed"
    match ending:
        case Released() if run.beyond:
            yield f"the run had {how} here, and the code goes on with {run.beyond[0].name}"
        case Succeeded() if history.status is RunStatus.FAILED:
            yield "the run had failed, and the code succeeds"
        case Succeeded(output) if (history.output or "")[:1] != MARK and not _same(output, history.output):
            yield f"the result is {shorten(output, 200)}, and was {shorten(history.output or 'null', 200)}"
        case Failed(error) if not _same_error(error, history.error):
            before = ErrorRecord.from_json(history.error or "{}")
            if before.code == CompensationFailed.code:
                return  # it tells of both, of this end and of what could not be undone
            yield (
                f"the run fails with {error.type}: {shorten(error.message, 200)}, and had failed with "
                f"{before.type}: {shorten(before.message, 200)}"
            )


def _same(one: str, other: str | None) -> bool:
    return one == other or (other is not None and _value(one) == _value(other))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _same_error(error: ErrorRecord, recorded: str | None) -> bool:
    before = ErrorRecord.from_json(recorded or "{}")
    return (error.type, error.message) == (before.type, before.message)
