"""The states of runs, steps and workers, and which change may follow which. One table, used by all.

A test compares the tables here with the CHECK constraints in the database and with the diagram in the docs.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class RunStatus(IntEnum):
    """Status of a run, as stored in `workflows.status`. Gaps leave room; `>= FINISHED_FROM` is an end."""

    ENQUEUED = 10
    DELAYED = 20
    RUNNING = 30
    WAITING = 40
    SUCCEEDED = 50
    FAILED = 60
    CANCELLED = 70
    MAX_RECOVERY_ATTEMPTS_EXCEEDED = 80

    @property
    def finished(self) -> bool:
        """Whether nothing more happens to the run unless a person asks for it."""
        return self >= FINISHED_FROM

    @property
    def dbos_name(self) -> str:
        """What DBOS calls a run in this status, for programs that come from there."""
        return DBOS_NAMES[self]


FINISHED_FROM = RunStatus.SUCCEEDED

DBOS_NAMES: dict[RunStatus, str] = {
    RunStatus.ENQUEUED: "Enqueued",
    RunStatus.DELAYED: "Delayed",
    RunStatus.RUNNING: "Pending",
    RunStatus.WAITING: "Pending",
    RunStatus.SUCCEEDED: "Success",
    RunStatus.FAILED: "Error",
    RunStatus.CANCELLED: "Cancelled",
    RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED: "MaxRecoveryAttemptsExceeded",
}
"""The statuses there: a run that waits has not given anything back and is pending."""


class StepStatus(IntEnum):
    """Status of a step, as stored in `workflow_steps.status`. `>= FINAL_FROM` never changes again."""

    RUNNING = 10
    WAITING = 15
    """A call that waits for a time, a message, an event or another run; no body of it runs."""
    RETRYING = 20
    SUCCEEDED = 30
    FAILED = 40
    DROPPED = 45
    """A branch of a select that another one has won: no outcome, and never done again."""

    @property
    def final(self) -> bool:
        """Whether a replay returns the recorded outcome instead of running the body."""
        return self >= FINAL_FROM


FINAL_FROM = StepStatus.SUCCEEDED


class WorkerState(IntEnum):
    """State of a worker, as stored in `workers.state`. It never goes back."""

    LIVE = 10
    DRAINING = 20
    STOPPED = 30
    DEAD = 40


class CancelMode(StrEnum):
    """How a cancel ends a run, as stored in `workflows.cancel_mode`.

    GRACEFUL lets a step in progress finish and be recorded; IMMEDIATE stops the body where it is. COMPENSATE is as
    GRACEFUL, and then the steps that can be undone are, the last one first.
    """

    GRACEFUL = "Graceful"
    IMMEDIATE = "Immediate"
    COMPENSATE = "Compensate"


class Undo(IntEnum):
    """How far a run is with undoing its steps, as stored in `workflows.undo`; null: it has none that can be undone.

    From REQUESTED on nothing but its removal keeps it from undoing what it has done.
    """

    PROMISED = 0
    REQUESTED = 1
    FAILED = 2
    CANCELLED = 3


UNDO_TRANSITIONS: dict[Undo, frozenset[Undo]] = {
    Undo.PROMISED: frozenset({Undo.REQUESTED, Undo.FAILED}),
    Undo.REQUESTED: frozenset({Undo.CANCELLED, Undo.PROMISED}),  # the last: the cancel was taken back
    Undo.FAILED: frozenset({Undo.PROMISED}),  # it was rewound
    Undo.CANCELLED: frozenset({Undo.PROMISED}),
}


class Phase(StrEnum):
    """What users see in `.status.phase`."""

    PENDING = "Pending"
    RUNNING = "Running"
    WAITING = "Waiting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


PHASE_OF: dict[RunStatus, Phase] = {
    RunStatus.ENQUEUED: Phase.PENDING,
    RunStatus.DELAYED: Phase.PENDING,
    RunStatus.RUNNING: Phase.RUNNING,
    RunStatus.WAITING: Phase.WAITING,
    RunStatus.SUCCEEDED: Phase.SUCCEEDED,
    RunStatus.FAILED: Phase.FAILED,
    RunStatus.CANCELLED: Phase.CANCELLED,
    RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED: Phase.FAILED,
}
"""Phase of a run that is not suspended; a suspended run that is not finished nor running is `Suspended`."""

RUN_TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.ENQUEUED: frozenset(
        {RunStatus.RUNNING, RunStatus.CANCELLED, RunStatus.DELAYED},  # the last: its start was put off
    ),
    RunStatus.DELAYED: frozenset({RunStatus.ENQUEUED, RunStatus.CANCELLED}),
    RunStatus.RUNNING: frozenset(
        {
            RunStatus.ENQUEUED,  # released, moved from a dead worker, or a park that found a new wake
            RunStatus.DELAYED,  # the body failed and the run is retried later; or replay did not match
            RunStatus.WAITING,
            RunStatus.SUCCEEDED,
            RunStatus.FAILED,
            RunStatus.CANCELLED,
            RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED,
        }
    ),
    RunStatus.WAITING: frozenset({RunStatus.ENQUEUED, RunStatus.CANCELLED}),
    # Somebody wants it to be run again, or to go on.
    RunStatus.SUCCEEDED: frozenset({RunStatus.ENQUEUED}),
    RunStatus.FAILED: frozenset({RunStatus.ENQUEUED}),
    RunStatus.CANCELLED: frozenset({RunStatus.ENQUEUED}),
    RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED: frozenset({RunStatus.ENQUEUED}),
}
