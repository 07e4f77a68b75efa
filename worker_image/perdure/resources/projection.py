"""The whole `.status` of a Workflow from its rows: one function, used by the worker that holds the run and by the
operator when nobody does.

Pure and without a clock: equal rows make an equal status, so equal revisions mean equal content (protocol, section
4). Bounded whatever the rows hold, because a status that the API server refuses would be refused for ever.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from perdure.errors import CompensationFailed
from perdure.model.outcome import ErrorRecord
from perdure.model.rows import RunView, StatusSource, StepCounts, WaitingFor
from perdure.model.states import PHASE_OF, Phase, RunStatus, Undo
from perdure.resources.acceptance import Rejected
from perdure.resources.common import Metadata
from perdure.resources.conditions import STALLING, Reason, WorkflowCondition
from perdure.resources.projection_steps import Declared, project_steps
from perdure.resources.projection_text import instant, json_bytes, read_error, shorten, showable, written_by
from perdure.resources.waits import waiting_phrase, what_it_waits_for
from perdure.resources.workflow_status import NAME_MAX

MAX_STATUS_BYTES = 32 * 1024
"""Largest status as JSON. It is sent, validated and stored whole up to once a second and run."""

MAX_OUTPUT_BYTES = 4 * 1024
"""Largest output of a run that is shown; the store has all of it."""

TEXT_MAX, WORD_MAX = 1024, 63

END_REASON: dict[RunStatus, Reason] = {
    RunStatus.SUCCEEDED: Reason.SUCCEEDED,
    RunStatus.FAILED: Reason.FAILED,
    RunStatus.CANCELLED: Reason.CANCELLED,
    RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED: Reason.MAX_RECOVERY_ATTEMPTS_EXCEEDED,
}


def project(source: StatusSource) -> dict[str, Any]:
    """The value of `.status`, ready to be sent."""
    run = source.run
    declared = Declared.read(run.definition)
    wait = what_it_waits_for(run, source.steps)
    error = None if run.error is None else read_error(run.error)
    reason = _reason(run, wait, error)
    message = _message(run, wait, error)
    total = declared.total if declared is not None else _recorded(source.counts) if run.status.finished else None
    status: dict[str, Any] = {
        "phase": phase_of(run).value,
        "reason": shorten(reason, WORD_MAX),
        "message": message,
        "observedGeneration": run.generation,
        "revision": run.revision,
        "conditions": _conditions(run, reason, message, wait),
        "progress": f"{source.counts.succeeded}" + ("" if total is None else f"/{total}"),
        "stepCounts": _counts(source.counts, total, run.status),
        "startedAt": instant(run.started_at),
        "finishedAt": instant(run.finished_at),
        "worker": _present({"pod": shorten(run.worker_pod, NAME_MAX), "version": shorten(run.version, NAME_MAX)}),
        "failedAttempts": run.run_attempts or None,
        "error": _error(error),
        **_waiting(run, wait),
        **_output(run),
    }
    status = _present(status)
    status["steps"] = project_steps(source, declared, MAX_STATUS_BYTES - json_bytes(status) - len('"steps":[],'))
    return status


def project_rejected(rejected: Rejected, metadata: Metadata) -> dict[str, Any]:
    """The status of a Workflow that has no row because its spec was refused: it has ended before it began.

    Its revision is 0, below that of any run, and its instants are those of the object.
    """
    created = None if metadata.created_at is None else instant(metadata.created_at, fraction=False)
    message = shorten(rejected.message, TEXT_MAX)
    facts = (
        (WorkflowCondition.ACCEPTED, "False", rejected.reason, message),
        (WorkflowCondition.FINISHED, "True", Reason.NOT_ACCEPTED, "The spec was not accepted."),
        (WorkflowCondition.SUCCEEDED, "False", Reason.NOT_ACCEPTED, "The spec was not accepted."),
        (WorkflowCondition.STALLED, "True", rejected.reason, message),
    )
    return {
        "phase": Phase.FAILED.value,
        "reason": rejected.reason.value,
        "message": message,
        "observedGeneration": metadata.generation,
        "revision": 0,
        "conditions": [
            _condition(kind, value, reason, text, created, metadata.generation) for kind, value, reason, text in facts
        ],
        "progress": "0",
        "stepCounts": {"succeeded": 0, "failed": 0, "running": 0, "waiting": 0},
    }


def phase_of(run: RunView) -> Phase:
    """The phase; a suspended run that nobody runs is `Suspended`, unless a cancel is on its way to end it."""
    if run.suspended and run.cancel_mode is None and not run.status.finished and run.status != RunStatus.RUNNING:
        return Phase.SUSPENDED
    return PHASE_OF[run.status]


def _reason(run: RunView, wait: WaitingFor | None, error: ErrorRecord | None) -> str:
    if run.status.finished:
        half = run.status == RunStatus.FAILED and error is not None and error.code == CompensationFailed.code
        return Reason.COMPENSATION_FAILED if half else END_REASON[run.status]
    if run.undoes:
        return Reason.COMPENSATING
    if run.cancel_mode is not None:
        return Reason.CANCELLING
    if wait is not None:
        return wait.kind
    return Reason.RUNNING if run.status == RunStatus.RUNNING else Reason.PENDING


def _message(run: RunView, wait: WaitingFor | None, error: ErrorRecord | None) -> str | None:
    if run.undoes:
        why = run.cancel_reason if error is None or run.undo is not Undo.FAILED else error.message
        held = f"; {wait.message}" if wait is not None and wait.message else ""
        return shorten(f"compensating: {why}{held}", TEXT_MAX)
    if run.status == RunStatus.CANCELLED or (run.cancel_mode is not None and not run.status.finished):
        return shorten(run.cancel_reason or "a cancel was asked for", TEXT_MAX)
    if error is not None and run.status.finished:
        return shorten(error.message, TEXT_MAX) or None
    if wait is not None:
        return shorten(wait.message, TEXT_MAX) or None
    return None


def _conditions(run: RunView, reason: str, message: str | None, wait: WaitingFor | None) -> list[dict[str, Any]]:
    created = instant(run.created_at, fraction=False)
    ended = instant(run.finished_at or run.created_at, fraction=False)
    finished = run.status.finished
    stalled = wait is not None and wait.kind in STALLING and run.cancel_mode is None
    stalled_since = run.waiting_since if stalled else run.finished_at or run.started_at
    text = message or ""
    succeeded = "Unknown" if not finished else "True" if run.status == RunStatus.SUCCEEDED else "False"
    facts = (
        (WorkflowCondition.ACCEPTED, "True", Reason.ACCEPTED, "The spec is valid and stored.", created),
        (WorkflowCondition.FINISHED, str(finished), reason, text, ended if finished else created),
        (WorkflowCondition.SUCCEEDED, succeeded, reason, text, ended if finished else created),
        (
            WorkflowCondition.STALLED,
            str(stalled),
            reason if stalled else Reason.PROGRESSING if not finished else reason,
            text if stalled else "",
            instant(stalled_since or run.created_at, fraction=False),
        ),
    )
    return [_condition(kind, value, why, words, at, run.generation) for kind, value, why, words, at in facts]


def _condition(
    kind: WorkflowCondition, value: str, reason: str, message: str | None, at: str | None, generation: int
) -> dict[str, Any]:
    return _present(
        {
            "type": kind.value,
            "status": value,
            "reason": shorten(str(reason), WORD_MAX),
            "message": message or "",
            "lastTransitionTime": at,
            "observedGeneration": generation,
        }
    )


def _recorded(counts: StepCounts) -> int:
    return counts.succeeded + counts.failed + counts.running + counts.retrying


def _counts(counts: StepCounts, total: int | None, run: RunStatus) -> dict[str, Any]:
    """In a run that nobody holds nothing runs, and in one that has ended nothing waits, whatever was begun."""
    return _present(
        {
            "total": total,
            "succeeded": counts.succeeded,
            "failed": counts.failed,
            "running": counts.running if run == RunStatus.RUNNING else 0,
            "waiting": 0 if run.finished else counts.retrying,
        }
    )


def _waiting(run: RunView, wait: WaitingFor | None) -> dict[str, Any]:
    if wait is None:
        return {}
    since: datetime = run.waiting_since or run.started_at or run.created_at
    thing = {
        "kind": shorten(wait.kind, WORD_MAX),
        "name": shorten(wait.name, NAME_MAX) or None,
        "until": instant(wait.until),
        "message": shorten(wait.message, TEXT_MAX),
    }
    return {"waiting": waiting_phrase(wait, since), "waitingFor": _present(thing)}


def _output(run: RunView) -> dict[str, Any]:
    if run.output is None and run.output_bytes == 0:
        return {}
    if (name := written_by(run.output)) is not None:
        return {"outputWrittenBy": name}
    value, shown = showable(run.output, max(run.output_bytes, len(run.output or "")), MAX_OUTPUT_BYTES)
    return {"output": value} if shown else {"outputTruncated": True}


def _error(error: ErrorRecord | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return _present(
        {
            "type": shorten(error.type, NAME_MAX) or None,
            "code": shorten(error.code, WORD_MAX) or None,
            "message": shorten(error.message, TEXT_MAX),
            "step": shorten(error.step, NAME_MAX) or None,
        }
    )


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    """Without fields that have nothing to say; an empty object says nothing either."""
    return {key: value for key, value in fields.items() if value is not None and value != {}}
