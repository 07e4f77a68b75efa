"""One log record for each way in which a worker is done with a run, so that the use of retries can be audited.

Called by the worker's runner and by whoever moves runs of dead workers. The records have a logger of their own,
`perdure.runs`: what went as it should is at DEBUG, since it comes with every run, what somebody asked for and a
success that took retries at INFO, what went wrong at WARNING. So the default level shows every use of a budget, and
costs nothing where none was used. No record holds what a user wrote, the message of an exception least of all.
"""

from __future__ import annotations

import logging
from enum import StrEnum

from perdure.model.rows import MovedRun
from perdure.model.states import RunStatus
from perdure.telemetry.logs import get_logger

LOGGER = "perdure.runs"

log = get_logger(LOGGER)
_enabled = logging.getLogger(LOGGER).isEnabledFor


class Settle(StrEnum):
    """How a worker was done with a run."""

    SUCCEEDED = "succeeded"
    RETRIED = "retried"
    FAILED = "failed"
    MISMATCHED = "mismatched"
    GIVEN_UP = "given up"
    CANCELLED = "cancelled"
    UNDOING = "undoing"
    PARKED = "parked"
    WOKEN = "woken"
    RELEASED = "released"
    FORCED = "forced"
    LOST = "lost"


TABLE: dict[Settle, tuple[int, str]] = {
    Settle.SUCCEEDED: (logging.DEBUG, "a run succeeded"),
    Settle.RETRIED: (logging.WARNING, "a run failed and is tried again"),
    Settle.FAILED: (logging.WARNING, "a run failed"),
    Settle.MISMATCHED: (logging.WARNING, "a run's replay does not match and is tried again"),
    Settle.GIVEN_UP: (logging.WARNING, "a run was given up: recovered too often without progress"),
    Settle.CANCELLED: (logging.INFO, "a run was cancelled"),
    Settle.UNDOING: (logging.WARNING, "a run failed or was cancelled, and its steps are undone"),
    Settle.PARKED: (logging.DEBUG, "a run waits and gave its slot back"),
    Settle.WOKEN: (logging.DEBUG, "a run was woken before it waited"),
    Settle.RELEASED: (logging.INFO, "a run was given back"),
    Settle.FORCED: (logging.WARNING, "a run was released while its body still ran"),
    Settle.LOST: (logging.WARNING, "ownership lost: the run is another worker's now"),
}
"""Level and message of each."""

NOT_AT_ONCE = (logging.INFO, "a run succeeded, but not at the first attempt")
"""Level and message of a success that used up some of the run's attempts or recoveries: rare, and worth to be seen."""


def tell(
    how: Settle,
    *,
    worker_id: str | None,
    run_id: str,
    workflow: str,
    run_attempts: int,
    max_run_attempts: int | None,
    **more: object,
) -> None:
    """Log it. `run_attempts` counts failures, this one included; `max_run_attempts` None: as the next worker says.

    Of `more`, `recoveries` is how often the run was taken from a dead worker since it last got on.
    """
    level, message = TABLE[how]
    if how is Settle.SUCCEEDED and (run_attempts or more.get("recoveries")):
        level, message = NOT_AT_ONCE
    if _enabled(level):
        log.log(
            level,
            message,
            outcome=how.value,
            worker_id=worker_id,
            run_id=run_id,
            workflow=workflow,
            run_attempts=run_attempts,
            max_run_attempts=max_run_attempts,
            **more,
        )


_MOVED = {
    RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED: Settle.GIVEN_UP,
    RunStatus.CANCELLED: Settle.CANCELLED,
}


def tell_moved(run: MovedRun) -> None:
    """Log the end of a run that ended as it was taken from its worker; those that go on are told of together."""
    if run.status in _MOVED:
        tell(
            _MOVED[run.status],
            worker_id=None,
            run_id=run.id,
            workflow=run.workflow,
            run_attempts=run.run_attempts,
            max_run_attempts=run.max_run_attempts,
            recoveries=run.recoveries,
        )
