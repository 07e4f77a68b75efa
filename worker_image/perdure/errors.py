"""Every error a person or a program meets, with a stable code.

The lowest layer: everything else may import it, it imports nothing of the project. A code never changes its
meaning and is never used again; `docs/reference/errors.md` has a paragraph for each.

Two families that must not be mixed up:

* `PerdureError` and its subclasses are ordinary exceptions: something is wrong and somebody can act on it.
* `ControlSignal` and its subclasses derive from `BaseException`: they end the body of a run without being a
  failure of it (its ownership moved, it was cancelled, it gives its slot back). User code that catches
  `Exception` cannot swallow them, and they are never recorded as an outcome of a step.
"""

from __future__ import annotations

from typing import ClassVar


class PerdureError(Exception):
    """Base of all errors. `code` is stable, `retryable` says whether trying again unchanged can succeed."""

    code: ClassVar[str] = "PRD-000"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class ConfigurationError(PerdureError):
    """A setting, environment variable or URL is missing or cannot be used. The process does not start."""

    code = "PRD-101"


class AlreadyRegistered(PerdureError):
    """Two workflows or two steps were registered under one name. The worker does not start."""

    code = "PRD-102"


class RegistrationError(PerdureError):
    """A function cannot be a workflow or a step (a generator, an unreadable signature, a bad option)."""

    code = "PRD-103"


class BootstrapFailed(PerdureError):
    """The application's bootstrap hook raised; its own error is the cause. The worker does not start."""

    code = "PRD-110"


class MigrationFilesChanged(PerdureError):
    """Files of migrations in a user's tree are not what was written there; nothing is written beside them."""

    code = "PRD-111"


class InvalidResource(PerdureError):
    """A custom resource breaks a rule that the API server could not check; becomes `Accepted=False`."""

    code = "PRD-201"


class UnexpectedStep(PerdureError):
    """A replay reached another step than the one recorded at this index. The run is retried, then parked."""

    code = "PRD-301"


class InputMismatch(PerdureError):
    """A replay called the recorded step with another input. The run is retried, then parked."""

    code = "PRD-302"


class StepBuiltElsewhere(PerdureError):
    """A step call was awaited in another run, or on the other side of a step's boundary."""

    code = "PRD-303"


class UnknownWorkflow(PerdureError):
    """No workflow of this name is registered in this process."""

    code = "PRD-304"


class UnknownStep(PerdureError):
    """No step of this name is registered in this process (a declared `task` names it)."""

    code = "PRD-305"


class NotInWorkflow(PerdureError):
    """A durable call (`perdure.sleep`, `send`, `recv` …) was made outside the body of a run."""

    code = "PRD-311"


class InsideStep(PerdureError):
    """A call that is refused inside a step: a step is a leaf, nothing in it is recorded."""

    code = "PRD-312"


class EncodingFailed(PerdureError):
    """A value cannot be written as JSON, or cannot be stored (NUL, lone surrogate, NaN, too large)."""

    code = "PRD-401"


class DecodingFailed(PerdureError):
    """A stored value does not fit the type that the code now asks for."""

    code = "PRD-402"


class PayloadTooLarge(EncodingFailed):
    """A value is over the size limit of a payload."""

    code = "PRD-403"


class StepTimeout(PerdureError):
    """One attempt of a step ran past its timeout. Counts as a failed attempt."""

    code = "PRD-404"
    retryable = True


class MaxStepRetriesExceeded(PerdureError):
    """A step with more than one attempt failed in all of them; `errors` holds one line for each."""

    code = "PRD-405"

    def __init__(self, message: str, errors: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.errors = errors


class StepFailed(PerdureError):
    """A recorded failure of a step whose own exception class is not rebuilt here; `type_name` names it."""

    code = "PRD-406"

    def __init__(self, message: str, type_name: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name


class WorkflowFailed(PerdureError):
    """The body of a run raised an exception whose own class is not rebuilt here; `type_name` names it."""

    code = "PRD-501"

    def __init__(self, message: str, type_name: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name


class WorkflowCancelled(PerdureError):
    """The run was cancelled, or its deadline passed."""

    code = "PRD-502"


class MaxRecoveryAttemptsExceeded(PerdureError):
    """The run was recovered too often without progress and was parked."""

    code = "PRD-503"


class AwaitedWorkflowCancelled(PerdureError):
    """A run whose result this run waited for was cancelled. This run goes on."""

    code = "PRD-511"


class AwaitedWorkflowMaxRecoveryAttemptsExceeded(PerdureError):
    """A run whose result this run waited for was recovered too often without progress and was parked."""

    code = "PRD-512"


class InvalidArgument(PerdureError):
    """An argument of a call is out of its range: an empty or too long id, a length of time of zero."""

    code = "PRD-520"


class ConflictingWorkflow(PerdureError):
    """The id belongs to a run of another workflow, or to one of this workflow with another input."""

    code = "PRD-521"


class NonExistentWorkflow(PerdureError):
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


class TransactionMisused(PerdureError):
    """The body of a `perdure.transaction` begins, commits or rolls back itself. Never tried again."""

    code = "PRD-531"


class TransactionAborted(PerdureError):
    """The body of a `perdure.transaction` went on after an error of its SQL; nothing of it is committed."""

    code = "PRD-532"


class KeyInProgress(PerdureError):
    """Somebody else is doing what this idempotency key stands for, and had not ended in time."""

    code = "PRD-533"
    retryable = True


class KeyLost(PerdureError):
    """This holder of an idempotency key was not heard of for longer than its lease; somebody else has the key."""

    code = "PRD-534"
    retryable = True


class StoreUnavailable(PerdureError):
    """Postgres cannot be reached or refuses for now. Nothing is known about what was asked.

    `run_ids` are those of runs that were to be started: each may exist or not, and starting it again with the same id
    and input is safe.
    """

    code = "PRD-601"
    retryable = True

    def __init__(self, message: str, run_ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.run_ids = run_ids


class SchemaOutOfRange(PerdureError):
    """The database's schema is older or newer than this program can use."""

    code = "PRD-602"
    retryable = True


class MigrationFailed(PerdureError):
    """A migration could not be applied, or an applied one no longer equals its file."""

    code = "PRD-603"


class WorkerLost(PerdureError):
    """This worker's lease ran out and another process marked it dead; it must register anew."""

    code = "PRD-604"


class PoolerInTheWay(ConfigurationError):
    """A connection pooler in transaction mode stands before Postgres, and no setting says so."""

    code = "PRD-610"


class ControlSignal(BaseException):
    """Ends a body without being its outcome. Let it pass; `finally` blocks run, durable calls in them do not.

    `reason` is a sentence. A signal that is not `immediate` lets steps in progress finish and be recorded.
    """

    def __init__(self, reason: str = "", *, immediate: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.immediate = immediate


class OwnershipLost(ControlSignal):
    """The run's fence has moved on: another worker has it, or it was changed from outside."""


class CancelRequested(ControlSignal):
    """The run was cancelled; the body ends at its next durable call, or where it is if the cancel is immediate."""

    def __init__(self, reason: str = "", *, immediate: bool = False) -> None:
        super().__init__(reason, immediate=immediate)


class ReleaseRequested(ControlSignal):
    """The run goes back to the queue: the worker drains, or the run was suspended."""

    def __init__(self, reason: str = "", *, immediate: bool = False) -> None:
        super().__init__(reason, immediate=immediate)


class SlotGivenBack(ControlSignal):
    """The run waits for longer than it is worth keeping its slot; a later claim continues it."""


class BodyStopped(ControlSignal):
    """The engine cannot go on with this body: its replay does not match, or a write of it was refused."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason, immediate=False)
