"""`@step`: register a function as a step under a stable name, and keep its types.

The name is the identity of what is recorded: keep it when the function moves or is renamed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from perdure.api import registering
from perdure.engine.context import Scope, current_scope
from perdure.engine.pending import PendingStep
from perdure.engine.registry import Registry, ShouldRetry, StepDefinition
from perdure.model.start import Seconds

P = ParamSpec("P")
R = TypeVar("R")

UNSAID: Any = object()
"""Stands for an option that was not given, where None is a value."""


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

    @property
    def name(self) -> str:
        """The name under which it is registered and recorded."""
        return self.definition.name

    @property
    def qualified_name(self) -> str:
        """The same, as of a workflow."""
        return self.definition.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> PendingStep[R]:
        """Raises `TypeError` for arguments that do not fit and `EncodingFailed` for those that cannot be recorded."""
        definition = self.definition
        scope = current_scope.get()
        if scope is None or scope.index is not None:
            name = getattr(self.function, "__name__", definition.name)
            return plain_call(scope, definition, args, kwargs, f"{name}.function(...)")
        return scope.execution.call(scope, definition, args, kwargs)

    def options(
        self,
        *,
        max_attempts: int = UNSAID,
        interval: Seconds = UNSAID,
        backoff_rate: float = UNSAID,
        max_interval: Seconds = UNSAID,
        timeout: Seconds | None = UNSAID,
        preemptible: bool = UNSAID,
        should_retry: ShouldRetry | None = UNSAID,
    ) -> Self:
        """The same step, under the same name, with these options for its calls; those not given stay as they are.

        They are those of `step`; None takes a limit or a rule away. They are not recorded: what the code says when a
        step is tried counts. Raises `InvalidArgument`.
        """
        given = {
            "max_attempts": max_attempts,
            "interval": interval,
            "backoff_rate": backoff_rate,
            "max_interval": max_interval,
            "timeout": timeout,
            "preemptible": preemptible,
            "should_retry": should_retry,
        }
        said = {name: value for name, value in given.items() if value is not UNSAID}
        return type(self)(self.definition.changed(said), self.function)

    def __repr__(self) -> str:
        return f"<step {self.definition.name}>"


def plain_call(
    scope: Scope | None, definition: StepDefinition, args: Sequence[Any], kwargs: dict[str, Any], instead: str
) -> PendingStep[Any]:
    """A call where nothing is recorded: outside a run, or as part of another step. `instead`: what does it in sync
    code."""
    if scope is not None and asyncio._get_running_loop() is None:
        raise RuntimeError(
            f"step {definition.name} is called in the sync step {scope.name}, where nothing can await it; "
            f"call {instead} to run it as part of this step"
        )
    return PendingStep(scope, definition, args, kwargs, definition.name)


class StepDecorator(Protocol):
    """What `step(...)` with options returns."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...


@overload
def step(function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    max_attempts: int = 1,
    interval: Seconds = 1.0,
    backoff_rate: float = 2.0,
    max_interval: Seconds = 3600.0,
    timeout: Seconds | None = None,
    preemptible: bool = False,
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

    `max_attempts`: how often in all, 0 is 1. `interval`: how long after the first failure, times `backoff_rate` after
    each further one, at most `max_interval`. `timeout`: how long one attempt may take. Times in seconds or as
    timedelta. `preemptible`: whether a cancel of the run stops the body at once, without a result, instead of letting
    it finish; only for async functions. `should_retry`: whether a failure is worth another attempt. Raises
    `AlreadyRegistered`, `RegistrationError`.
    """

    def register(function: Callable[..., Any]) -> Step[..., Any]:
        definition = StepDefinition(
            registering.name_of(function) if name is None else name, function, registering.options_of(options)
        )
        (registry or registering.default_registry).add_step(definition)
        return Step(definition, function)

    return register if function is None else register(function)
