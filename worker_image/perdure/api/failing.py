"""`@error`: give a class of exceptions the name that it is recorded under, so that it may move and others know it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from perdure.engine import errortypes

E = TypeVar("E", bound=Exception)


class ErrorDecorator(Protocol):
    """What `error(...)` returns."""

    def __call__(self, kind: type[E], /) -> type[E]:
        """Register the class."""
        ...


def error(
    name: str,
    *,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Exception] | None = None,
    former_names: Iterable[str] = (),
) -> ErrorDecorator:
    """Register a class of exceptions under a name that stays when the class moves or is renamed.

    A failure of it is recorded under `name` and comes back as this class in every process that has it registered: in
    the body of the run, in its parents, from `result()`. Without registration an exception is recorded under the path
    of its class, which is looked for as `PERDURE_ERROR_IMPORT` allows.

    What it carries comes back as well: its arguments and attributes, as far as they are plain JSON values or of a type
    that the class, its fields or the parameters of its `__init__` are annotated with; `__init__` is not called.
    `encode` and `decode` do it instead: the one makes a value as a step returns it, the other the exception again, from
    that value as its first parameter is annotated. More than 16,000 characters as JSON are not recorded, and an
    exception that could not be recorded whole comes back as `StepFailed` or `WorkflowFailed` with its name and message.

    `former_names` are what it was recorded under before, for instance its old path.

    Raises `RegistrationError` for a class or a name that cannot be used, `AlreadyRegistered` when another class has the
    name. Register where modules are imported. It holds for the whole process.
    """

    def register(kind: type[E]) -> type[E]:
        errortypes.register(kind, name, encode, decode, former_names)
        return kind

    return register
