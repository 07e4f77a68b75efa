"""How attempts of a step fail, those of a transaction among them."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class StepTimeout(PerdureError):
    """One attempt of a step ran past its timeout. Counts as a failed attempt."""

    code = "PRD-404"
    retryable = True


class MaxStepRetriesExceeded(PerdureError):
    """A step with more than one attempt failed in all of them, or was not worth a further one.

    `errors` are the failures, oldest first, each of its own class where that can be built here, else `StepFailed`.
    `attempts` says how many there were: of very many only the first and the latest are kept.
    """

    code = "PRD-405"

    def __init__(self, message: str, errors: tuple[Exception, ...] = (), attempts: int | None = None) -> None:
        super().__init__(message)
        self.errors = errors
        self.attempts = len(errors) if attempts is None else attempts


class StepFailed(PerdureError):
    """A recorded failure of a step whose own exception class is not rebuilt here; `type_name` names it."""

    code = "PRD-406"

    def __init__(self, message: str, type_name: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name


class TransactionMisused(PerdureError):
    """The body of a `perdure.transaction` begins, commits or rolls back itself. Never tried again."""

    code = "PRD-531"


class TransactionAborted(PerdureError):
    """The body of a `perdure.transaction` went on after an error of its SQL; nothing of it is committed."""

    code = "PRD-532"
