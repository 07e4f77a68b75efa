"""What a run waits for, as a thing and as a phrase. No run that has not ended waits for nothing in particular:
that is invariant 4, and what users ask first. Pure; used by the projection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from perdure.model.calls import CallName
from perdure.model.rows import RunView, StepView, WaitingFor
from perdure.model.states import RunStatus, StepStatus
from perdure.resources.conditions import WaitKind
from perdure.resources.projection_text import shorten

PHRASE_MAX = 256

PHRASES: dict[str, str] = {
    WaitKind.FREE_WORKER: "a free worker of {name}",
    WaitKind.NO_FREE_SLOT: "a free slot of {name}",
    WaitKind.NO_WORKER_POOL: "worker pool {name}",
    WaitKind.POOL_STARTING: "workers of {name} to start",
    WaitKind.POOL_NOT_READY: "workers of {name} to be ready",
    WaitKind.POOL_SUSPENDED: "pool {name} to be resumed",
    WaitKind.QUEUE_PAUSED: "queue {name}, which is paused",
    WaitKind.QUEUE_LIMIT: "queue {name}, which is at its limit",
    WaitKind.RATE_LIMIT: "the rate limit of queue {name}",
    WaitKind.NO_WORKER_VERSION: "workers of version {name}",
    WaitKind.UNKNOWN_WORKFLOW: "a worker that knows {name}",
    WaitKind.UNKNOWN_STEP: "a worker that knows step {name}",
    WaitKind.RETRY_BACKOFF: "retry of {name}",
    WaitKind.RUN_RETRY: "retry of the run",
    WaitKind.SLEEP: "the end of its sleep",
    WaitKind.MESSAGE: "a message {name}",
    WaitKind.EVENT: "event {name}",
    WaitKind.STREAM: "stream {name}",
    WaitKind.CHILD: "run {name}",
    WaitKind.SUSPENDED: "resume",
}
"""Phrase for the column, by kind; other kinds are shown as kind and name."""

TIMED = frozenset({WaitKind.RETRY_BACKOFF, WaitKind.RUN_RETRY, WaitKind.SLEEP})
"""Kinds that are over when their time comes: their instant is a point, not a limit, and a run that has been woken
does not wait for them any more."""


def what_it_waits_for(run: RunView, steps: Sequence[StepView]) -> WaitingFor | None:
    """The thing that the run waits for; None if it has ended or a step of it runs."""
    if run.status.finished:
        return None
    if run.status == RunStatus.RUNNING:
        return _in_memory(steps)
    if run.suspended and run.cancel_mode is None:
        return WaitingFor(WaitKind.SUSPENDED, message="spec.suspend is true; set it to false and the run goes on")
    stored = run.waiting_for
    if stored is not None and stored.kind and not (run.status == RunStatus.ENQUEUED and stored.kind in TIMED):
        return stored
    if run.status == RunStatus.DELAYED:
        message = "the run failed in a way that is tried again; status.error has the message"
        return WaitingFor(WaitKind.RUN_RETRY, until=run.wake_at, message=message)
    return (_in_memory(steps) if run.status == RunStatus.WAITING else None) or WaitingFor(
        WaitKind.FREE_WORKER,
        name=run.pool,
        message=f"ready to run: the next worker of pool {run.pool} with a free slot takes it",
    )


_CALLS = {
    CallName.SLEEP: WaitingFor(WaitKind.SLEEP, message="the body sleeps"),
    CallName.RECV: WaitingFor(WaitKind.MESSAGE, message="the body waits for a message"),
    CallName.GET_EVENT: WaitingFor(WaitKind.EVENT, message="the body waits for an event"),
    CallName.READ_STREAM: WaitingFor(WaitKind.STREAM, message="the body waits for a value of a stream"),
    CallName.RESULT: WaitingFor(WaitKind.CHILD, message="the body waits for the end of another run"),
    CallName.SELECT_WORKFLOW: WaitingFor(WaitKind.CHILD, message="the body waits for the first end of several runs"),
}
"""What a call waits for that is so by its row alone; once the run is parked, the run's row says it exactly."""


def _in_memory(steps: Sequence[StepView]) -> WaitingFor | None:
    """What is over first, if waits are all that the run has in progress."""
    if any(step.status == StepStatus.RUNNING for step in steps):
        return None
    retries = [step for step in steps if step.status == StepStatus.RETRYING and step.wake_at is not None]
    waits = [step for step in steps if step.status == StepStatus.WAITING and step.name in _CALLS]
    if not retries and not waits:
        return None
    step = min(retries + waits, key=lambda step: (step.wake_at is None, step.wake_at or step.started_at, step.index))
    if step.status == StepStatus.WAITING:
        return replace(_CALLS[CallName(step.name)], until=step.wake_at)
    return WaitingFor(
        WaitKind.RETRY_BACKOFF,
        name=step.name,
        until=step.wake_at,
        message=f"step {step.name} failed {step.attempts} times and is tried again",
    )


def waiting_phrase(wait: WaitingFor, since: datetime) -> str:
    """For the Waiting column. The date is left out of an instant on the day on which the wait began."""
    phrase = PHRASES.get(wait.kind, f"{wait.kind} {{name}}").replace("{name}", wait.name).strip()
    if wait.until is not None:
        phrase += f" {'at' if wait.kind in TIMED else 'until'} {clock_time(wait.until, since)}"
    return shorten(phrase, PHRASE_MAX)


def clock_time(at: datetime, since: datetime) -> str:
    """`14:05:12Z` on the same day, else `2026-12-01 14:05Z`."""
    at = at.astimezone(UTC)
    same_day = at.date() == since.astimezone(UTC).date()
    return at.strftime("%H:%M:%SZ" if same_day else "%Y-%m-%d %H:%MZ")
