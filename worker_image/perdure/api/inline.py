"""`run_step`: a step that is written where it is called."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple, overload

from perdure.api.steps import plain_call
from perdure.engine.context import current_scope
from perdure.engine.inline import InlineStep
from perdure.engine.pending import PendingStep
from perdure.engine.registry import ShouldRetry, StepOptions
from perdure.model.start import Seconds

Ts = TypeVarTuple("Ts")
R = TypeVar("R")


@overload
def run_step(
    name: str,
    body: Callable[[*Ts], Coroutine[Any, Any, R]],
    /,
    *args: *Ts,
    max_attempts: int = 1,
    interval: Seconds = 1.0,
    backoff_rate: float = 2.0,
    max_interval: Seconds = 3600.0,
    timeout: Seconds | None = None,
    preemptible: bool = False,
    should_retry: ShouldRetry | None = None,
) -> PendingStep[R]: ...
@overload
def run_step(
    name: str,
    body: Callable[[*Ts], R],
    /,
    *args: *Ts,
    max_attempts: int = 1,
    interval: Seconds = 1.0,
    backoff_rate: float = 2.0,
    max_interval: Seconds = 3600.0,
    timeout: Seconds | None = None,
    preemptible: bool = False,
    should_retry: ShouldRetry | None = None,
) -> PendingStep[R]: ...
def run_step(name: str, body: Callable[[*Ts], Any], /, *args: *Ts, **options: Any) -> PendingStep[Any]:
    """Run a function as a step under a name, without registering it: `await perdure.run_step("price", lambda: …)`.

    Takes its index in the run when it is called, and is then as any step: its outcome is recorded, and a replay gives
    that instead of running it. `body` may be async or not (then it runs in a thread, and what it returns is awaited
    where it can be), and a closure. Recorded as its input, and compared at a replay, are `args` alone, not what it
    captures. Its result is read as the type that it is annotated to return. `options` are those of `step`.

    Raises `InvalidArgument` for a name, an option or an annotation that cannot be used, `EncodingFailed`.
    """
    definition = InlineStep(name, body, StepOptions.said(options))
    scope = current_scope.get()
    if scope is None or scope.index is not None:
        return plain_call(scope, definition, args, {}, "the function itself")
    return scope.execution.call(scope, definition, args, {})
