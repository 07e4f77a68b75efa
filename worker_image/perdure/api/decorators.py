"""`@workflow` and `@step`: register a function under a stable name and keep its types.

The name is the identity of what is recorded: keep it when the function moves or is renamed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from perdure.api.children import ChildHandle
from perdure.engine.calls.calls import build
from perdure.engine.calls.children import StartChild
from perdure.engine.context import current_scope
from perdure.engine.pending import PendingCall, PendingStep
from perdure.engine.registry import (
    Isolation,
    Registry,
    ShouldRetry,
    StepDefinition,
    StepOptions,
    TransactionDefinition,
    WorkflowDefinition,
)
from perdure.engine.transaction import Connection
from perdure.errors import RegistrationError
from perdure.model.start import Seconds, StartOptions

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

default_registry = Registry()
"""Where the decorators register unless they are told otherwise; what a worker runs."""


class Step(Generic[P, R]):
    """A registered step. Calling it gives an awaitable that takes its index in the run at once.

    Awaited in the body of a run, it returns the recorded result or runs the function, and what it returns is durable
    before the next step's body begins. Awaited outside a run, or inside another step, it just runs the function and
    records nothing. `function` is the function itself, for calls from code that is not async.
    """

    def __init__(self, definition: StepDefinition, function: Callable[P, Any]) -> None:
        update_wrapper(self, function, updated=())
        self.definition = definition
        self.function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> PendingStep[R]:
        """Raises `TypeError` for arguments that do not fit and `EncodingFailed` for those that cannot be recorded."""
        definition = self.definition
        scope = current_scope.get()
        if scope is None or scope.index is not None:
            if scope is not None and asyncio._get_running_loop() is None:
                raise RuntimeError(
                    f"step {definition.name} is called in the sync step {scope.name}, where nothing can await it; "
                    f"call {self.function.__name__}.function(...) to run it as part of this step"
                )
            return PendingStep(scope, definition, args, kwargs, definition.name)
        return scope.execution.call(scope, definition, args, kwargs)

    def __repr__(self) -> str:
        return f"<step {self.definition.name}>"


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


class Workflow(Generic[P, R]):
    """A registered workflow. Called directly it just runs the function, for tests; workers run it durably."""

    def __init__(
        self,
        definition: WorkflowDefinition,
        function: Callable[P, Coroutine[Any, Any, R]],
        start_options: StartOptions | None = None,
    ) -> None:
        update_wrapper(self, function, updated=())
        self.definition = definition
        self.function = function
        self.start_options = StartOptions() if start_options is None else start_options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """The body as a plain coroutine; inside a run its steps become steps of that run."""
        return self.function(*args, **kwargs)

    def options(
        self,
        *,
        id: str | None = None,
        queue: str | None = None,
        pool: str | None = None,
        priority: int | None = None,
        timeout: Seconds | None = None,
        delay: Seconds | None = None,
        partition_key: str | None = None,
    ) -> Workflow[P, R]:
        """The same workflow, to be started with these options; those not given stay as they are.

        `id`: 1 to 255 printable characters; a start with the id of a run that exists gives that run. `queue`, `pool`:
        where workers look for it. `priority`: from 1, lowest first, 100 if not said. `timeout`: how long the run may
        take from its first claim. `delay`: how long after the start it becomes claimable. `partition_key`: whose run
        it is, for queues that are fair between partitions. Times in seconds or as timedelta. Raises `InvalidArgument`.
        """
        given = {
            "id": id,
            "queue": queue,
            "pool": pool,
            "priority": priority,
            "timeout": timeout,
            "delay": delay,
            "partition_key": partition_key,
        }
        said: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return Workflow(self.definition, self.function, replace(self.start_options, **said))

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedStart[R]:
        """A start with these arguments and the workflow's options, for `Client.start_many`. Starts nothing.

        Raises `TypeError` for arguments that do not fit and `EncodingFailed` for those that cannot be recorded.
        """
        return PreparedStart(
            workflow=self.definition.name,
            arguments=self.definition.parameters.record(args, kwargs),
            input=self.definition.encode_input(args, kwargs),
            options=self.start_options,
            definition=self.definition,
        )

    def start(self, *args: P.args, **kwargs: P.kwargs) -> PendingCall[ChildHandle[R]]:
        """Start a child of the run whose body this is called in, with the workflow's options; `await` gives its handle.

        Durable when awaited: the child's id is `{parent}-{step}` unless an id was asked for, so a start is never made
        twice. The child is in the parent's namespace, and in its pool and queue unless others were asked for; its
        deadline is the parent's unless it has a timeout. When the parent is cancelled, so is the child; when it ends,
        the child goes on. Raises `NotInWorkflow` outside a run (use `Client.start`), `InsideStep`, `TypeError` for
        arguments that do not fit, `EncodingFailed`; when awaited, `ConflictingWorkflow`.
        """
        definition = self.definition
        return build(
            StartChild(
                definition,
                definition.parameters.record(args, kwargs),
                definition.encode_input(args, kwargs),
                self.start_options,
                lambda run_id: ChildHandle(run_id, definition),
            )
        )

    def __repr__(self) -> str:
        return f"<workflow {self.definition.name}>"


@dataclass(frozen=True, slots=True)
class PreparedStart(Generic[R]):
    """A start that is ready to be made: which workflow, with what, how. Made by `Workflow.prepare`.

    `input` is the arguments as JSON text. `definition` is None where only the workflow's name is known.
    """

    workflow: str
    arguments: Any
    input: str
    options: StartOptions
    definition: WorkflowDefinition | None


class StepDecorator(Protocol):
    """What `step(...)` with options returns."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...


class WorkflowDecorator(Protocol):
    """What `workflow(...)` with options returns."""

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]:
        """Register the function."""
        ...


@overload
def step(function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    max_attempts: int = 1,
    interval: float = 1.0,
    backoff_rate: float = 2.0,
    max_interval: float = 3600.0,
    timeout: float | None = None,
    should_retry: ShouldRetry | None = None,
    registry: Registry | None = None,
) -> StepDecorator: ...
def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    registry: Registry | None = None,
    **options: Any,
) -> Any:
    """Register a function, async or not, as a step. Its name is its qualified name unless `name` says otherwise.

    A step may run more than once (a retry, or a crash before its result was durable): give outside services the
    `idempotency_key` of `perdure.current().step`. Bodies that are not async run in a thread and cannot be stopped.

    `max_attempts`: how often in all, 0 is 1. `interval`: seconds after the first failure, times `backoff_rate` after
    each further one, at most `max_interval`. `timeout`: seconds for one attempt. `should_retry`: whether a failure is
    worth another attempt. Raises `AlreadyRegistered`, `RegistrationError`.
    """

    def register(function: Callable[..., Any]) -> Step[..., Any]:
        definition = StepDefinition(_name_of(function) if name is None else name, function, StepOptions(**options))
        (registry or default_registry).add_step(definition)
        return Step(definition, function)

    return register if function is None else register(function)


@overload
def transaction(function: Callable[Concatenate[Connection, P], Coroutine[Any, Any, R]], /) -> Transaction[P, R]: ...
@overload
def transaction(
    *,
    name: str | None = None,
    isolation: Isolation = "read_committed",
    max_attempts: int = 1,
    interval: float = 1.0,
    backoff_rate: float = 2.0,
    max_interval: float = 3600.0,
    timeout: float | None = None,
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
            _name_of(function) if name is None else name, function, StepOptions(**options), isolation=isolation
        )
        (registry or default_registry).add_step(definition)
        return Transaction(definition, function)

    return register if function is None else register(function)


@overload
def workflow(function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(*, name: str | None = None, registry: Registry | None = None) -> WorkflowDecorator: ...
def workflow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    registry: Registry | None = None,
) -> Any:
    """Register an async function as a workflow. Its name is `module.qualname` unless `name` says otherwise.

    Outside its steps it must do the same each time it is run with the same input: time, randomness and everything
    from outside belong in steps. Raises `AlreadyRegistered`, `RegistrationError`.
    """

    def register(function: Callable[..., Any]) -> Workflow[..., Any]:
        default = f"{getattr(function, '__module__', '')}.{_name_of(function)}" if name is None else name
        definition = WorkflowDefinition(default, function)
        (registry or default_registry).add_workflow(definition)
        return Workflow(definition, function)

    return register if function is None else register(function)


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", "")
    if not name:
        raise RegistrationError(f"{function!r} has no name of its own; give it one with name=")
    return str(name)
