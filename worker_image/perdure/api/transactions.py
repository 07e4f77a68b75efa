"""`@transaction`: register a function as a step whose SQL is committed together with its outcome.

Called and replayed as any step; `perdure.engine.transaction` keeps the promise.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from perdure.api import registering
from perdure.api.steps import Step
from perdure.engine.registry import Isolation, Registry, ShouldRetry, TransactionDefinition
from perdure.engine.transaction import Connection
from perdure.model.start import Seconds

P = ParamSpec("P")
R = TypeVar("R")


class Transaction(Step[P, R]):
    """A registered step whose body's SQL and outcome are committed together. Called without the connection.

    Awaited in the body of a run, all of it is durable on return, once; else nothing of it is there. Outside a run it
    runs in a transaction that records nothing; inside another transaction, as a savepoint of that one. `function` is
    the function itself, which takes a connection first.
    """

    function: Callable[..., Coroutine[Any, Any, R]]


class TransactionDecorator(Protocol):
    """What `transaction(...)` with options returns."""

    def __call__(self, function: Callable[Concatenate[Connection, P], Coroutine[Any, Any, R]], /) -> Transaction[P, R]:
        """Register the function."""
        ...


@overload
def transaction(function: Callable[Concatenate[Connection, P], Coroutine[Any, Any, R]], /) -> Transaction[P, R]: ...
@overload
def transaction(
    *,
    name: str | None = None,
    isolation: Isolation = "read_committed",
    max_attempts: int = 1,
    interval: Seconds = 1.0,
    backoff_rate: float = 2.0,
    max_interval: Seconds = 3600.0,
    timeout: Seconds | None = None,
    preemptible: bool = False,
    should_retry: ShouldRetry | None = None,
    registry: Registry | None = None,
) -> TransactionDecorator: ...
def transaction(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    isolation: Isolation = "read_committed",
    registry: Registry | None = None,
    **options: Any,
) -> Any:
    """Register an async function as a step that writes to Perdure's database exactly once.

    Its first parameter takes an asyncpg connection in an open transaction, callers leave it out. When the body
    returns, the step's outcome is written in the same transaction and all of it is committed; when it raises, all of
    it is rolled back. What the body does elsewhere may happen more than once, as in any step.

    `isolation`: `read_committed`, `repeatable_read`, `serializable`. A transaction that Postgres ends for the sake of
    another (40001, 40P01), or whose connection is lost, is run again without counting as an attempt. The other options
    are those of `step`; limits of time for statements and locks are those of the database, or what the body sets.
    Raises `AlreadyRegistered`, `RegistrationError`.
    """

    def register(function: Callable[..., Any]) -> Transaction[..., Any]:
        definition = TransactionDefinition(
            registering.name_of(function) if name is None else name,
            function,
            registering.options_of(options),
            isolation=isolation,
        )
        (registry or registering.default_registry).add_step(definition)
        return Transaction(definition, function)

    return register if function is None else register(function)
