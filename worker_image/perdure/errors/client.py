"""What those meet who start runs, hold handles of them and wait for them."""

from __future__ import annotations

from perdure.errors.base import PerdureError
from perdure.errors.store import SystemDatabaseError


class ConflictingWorkflow(SystemDatabaseError):
    """The id belongs to a run of another workflow, or to one of this workflow with another input."""

    code = "PRD-521"


class NonExistentWorkflow(SystemDatabaseError):
    """There is no run of this id, or there is none any more."""

    code = "PRD-522"


class WaitTimeout(PerdureError):
    """The run had not ended when the time to wait was over. It goes on."""

    code = "PRD-523"
    retryable = True


class WorkflowNotFinished(PerdureError):
    """The output of a run was asked for that has not ended."""

    code = "PRD-524"
    retryable = True


class ClientClosed(PerdureError):
    """The client was closed before the call, or while it waited."""

    code = "PRD-525"
