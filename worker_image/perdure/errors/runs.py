"""How a run ends without a result, as those see it who wait for it."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class WorkflowFailed(PerdureError):
    """The body of a run raised an exception whose own class is not rebuilt here; `type_name` names it."""

    code = "PRD-501"

    def __init__(self, message: str, type_name: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name


class WorkflowCancelled(PerdureError):
    """The run was cancelled, or its deadline passed."""

    code = "PRD-502"


class CompensationFailed(PerdureError):
    """The run has failed, or was cancelled so that it compensates, and not all of its steps could be undone.

    `error` is what it had ended with: its own failure, or `WorkflowCancelled`. `failures` are those of the steps that
    were to undo others, in the order in which they were tried.
    """

    code = "PRD-411"

    def __init__(self, message: str, error: Exception | None = None, failures: tuple[Exception, ...] = ()) -> None:
        super().__init__(message)
        self.error = error
        self.failures = failures


class MaxRecoveryAttemptsExceeded(PerdureError):
    """The run was recovered too often without progress and was parked."""

    code = "PRD-503"


class AwaitedWorkflowCancelled(PerdureError):
    """A run whose result this run waited for was cancelled. This run goes on."""

    code = "PRD-511"


class AwaitedWorkflowMaxRecoveryAttemptsExceeded(PerdureError):
    """A run whose result this run waited for was recovered too often without progress and was parked."""

    code = "PRD-512"
