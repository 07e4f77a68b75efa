"""What the row of a run means for whoever asked: a value, or an exception. Pure; used by handles.

A failure comes back as its own class where that can be found and built here, as in the body of a workflow; else as
`WorkflowFailed`. Nothing is ever unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.engine.codec import Decoder
from perdure.engine.failures import rebuild_run
from perdure.engine.registry import WorkflowDefinition
from perdure.errors import (
    ConflictingWorkflow,
    MaxRecoveryAttemptsExceeded,
    NonExistentWorkflow,
    WorkflowCancelled,
    WorkflowNotFinished,
)
from perdure.model.outcome import ErrorRecord
from perdure.model.states import RunStatus
from perdure.store.clients import RunSight

_ANYTHING = Decoder(Any, "the result of a workflow")


@dataclass(frozen=True, slots=True)
class Expected:
    """What a handle knows of its run. Without a workflow, results are plain JSON values."""

    run_id: str
    workflow: WorkflowDefinition | None = None

    def nonexistent(self) -> NonExistentWorkflow:
        """The error for a run that is not there."""
        return NonExistentWorkflow(f"there is no run {self.run_id}")

    def value(self, sight: RunSight) -> Any:
        """The result. Raises the run's failure, or what else there is instead of a result."""
        if self.workflow is not None and sight.workflow != self.workflow.name:
            raise ConflictingWorkflow(
                f"run {self.run_id} is of workflow {sight.workflow}, and was asked for as one of {self.workflow.name}"
            )
        if sight.status is not RunStatus.SUCCEEDED:
            raise _ending(sight)
        decoder = _ANYTHING if self.workflow is None else self.workflow.result
        return decoder.decode("null" if sight.output is None else sight.output, f"the result of run {self.run_id}")


def _ending(sight: RunSight) -> Exception:
    error = None if sight.error is None else ErrorRecord.from_json(sight.error)
    match sight.status:
        case RunStatus.FAILED:
            return rebuild_run(error or ErrorRecord("Error", "nothing is recorded"), sight.id)
        case RunStatus.CANCELLED:
            return WorkflowCancelled(f"run {sight.id} was cancelled: {sight.cancel_reason or 'no reason was given'}")
        case RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED:
            last = "" if error is None else f"; the last error: {error.type}: {error.message}"
            return MaxRecoveryAttemptsExceeded(
                f"run {sight.id} was taken over {sight.recoveries} times without progress and is parked{last}"
            )
        case _:
            return WorkflowNotFinished(f"run {sight.id} has not ended, it is {sight.status.name}: wait for it first")
