"""Why a run was not started: its id, or what it would be a duplicate of, is there."""

from __future__ import annotations

from perdure.errors.store import SystemDatabaseError


class WorkflowIdInUse(SystemDatabaseError):
    """A start with reuse policy `reject` named the id of a run that is there. `run_id` is that id."""

    code = "PRD-526"

    def __init__(self, message: str, run_id: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id


class QueueDeduplicated(SystemDatabaseError):
    """The deduplication id of a start is held by a run of the queue that has not ended. `run_id` is that run's."""

    code = "PRD-527"

    def __init__(self, message: str, run_id: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id
