"""What the life of an instance refuses, and how it ends the waits that it cannot keep."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class WrongInstance(PerdureError):
    """A call of one instance was made in a run that another instance executes."""

    code = "PRD-306"


class NotLaunched(PerdureError):
    """The call needs an instance that is launched: it was not yet, or has been shut down."""

    code = "PRD-307"


class AlreadyLaunched(PerdureError):
    """The instance was launched before; a workflow cannot be added to it any more."""

    code = "PRD-308"


class Interrupted(PerdureError):
    """The instance was shut down while the run was waited for. The run goes on: it can be claimed by any worker."""

    code = "PRD-310"
    retryable = True

    def __init__(self, message: str, run_id: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id


class NotRegistered(PerdureError):
    """No workflow of this name is registered with the instance that is asked for it."""

    code = "PRD-309"
