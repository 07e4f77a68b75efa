"""A durable call that has taken its place in the run but has not begun: what calling a step
returns, and `perdure.sleep` and its like.

The index is taken when the call is built, not when it is awaited, so that `asyncio.gather` of calls built in a fixed
order is deterministic in whatever order they end. A call that is built and never awaited has used its index.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from perdure.engine.context import Scope, current_scope
from perdure.engine.promises import promise
from perdure.engine.transaction import run_plainly
from perdure.errors import StepBuiltElsewhere

if TYPE_CHECKING:
    from perdure.engine.execute import Execution
    from perdure.engine.registry import StepDefinition

P = ParamSpec("P")
R = TypeVar("R")


class PendingCall(Coroutine[Any, Any, R], Generic[R]):
    """Awaitable once, in the run or the step in which it was built; elsewhere it raises `StepBuiltElsewhere`.

    `step_id` is the index that it took, None when nothing is recorded: outside a run, and inside another step.
    `input` is its recorded input as JSON; `stored` is that as it is written, set only where that differs.
    To asyncio it is a coroutine, so that `asyncio.create_task` and `TaskGroup.create_task` take it as it is.
    """

    __slots__ = ("_convert", "_coroutine", "_scope", "_used", "input", "name", "step_id", "stored")

    def __init__(self, scope: Scope | None, name: str, step_id: int | None, input_text: str) -> None:
        self._scope = scope
        self.name = name
        self.step_id = step_id
        self.input = input_text
        self._used = False
        self._convert: Callable[[Exception], Exception] | None = None
        self._coroutine: Coroutine[Any, Any, R] | None = None
        self.stored: str

    @abstractmethod
    def _durably(self, execution: Execution) -> Coroutine[Any, Any, R]:
        """Replay or do it, at its index."""

    @abstractmethod
    def _plainly(self, scope: Scope | None) -> Coroutine[Any, Any, R]:
        """Do it where nothing is recorded."""

    def __await__(self) -> Generator[Any, Any, R]:
        return self._begin().__await__()

    def send(self, value: Any, /) -> Any:
        """As of any coroutine; for asyncio."""
        if self._coroutine is None:
            self._coroutine = self._begin()
        return self._coroutine.send(value)

    def throw(
        self,
        typ: Any,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> Any:
        """As of any coroutine; for asyncio."""
        if self._coroutine is None:
            self._coroutine = self._begin()
        return self._coroutine.throw(typ, val, tb) if val is not None else self._coroutine.throw(typ)

    def close(self) -> None:
        """As of any coroutine; for asyncio."""
        self._used = True
        if self._coroutine is not None:
            self._coroutine.close()

    def map_error(self, convert: Callable[[Exception], Exception]) -> Self:
        """The same call; what it raises is what `convert` makes of its failure, also at a replay.

        Recorded is the failure itself. Cancels and other control signals are never converted, nor is the refusal of a
        call that is awaited elsewhere. Of several conversions each is given what the one before has made.
        """
        before = self._convert
        self._convert = convert if before is None else lambda error: convert(before(error))
        return self

    def failure(self, error: Exception) -> Exception:
        """What awaiting it raises when this is its failure."""
        if self._convert is None:
            return error
        made = self._convert(error)
        if not isinstance(made, Exception):
            raise TypeError(f"map_error of {self.name} gave {made!r}, which is no exception") from error
        return made

    def check_place(self) -> None:
        """Raises what awaiting it here would raise: it was awaited before, or built elsewhere."""
        if self._used:
            raise RuntimeError(f"the call of step {self.name} was awaited before; call it again")
        if current_scope.get() is not self._scope:
            raise self._elsewhere()

    def take(self) -> None:
        """A `select` has it from here on: it cannot be awaited by itself any more. For the engine."""
        self._used = True

    def __repr__(self) -> str:
        return f"<step call {self.name} at {'no index' if self.step_id is None else self.step_id}>"

    def _begin(self) -> Coroutine[Any, Any, R]:
        if self._used:
            raise RuntimeError(f"the call of step {self.name} was awaited before; call it again")
        self._used = True
        scope = self._scope
        if current_scope.get() is not scope:
            raise self._elsewhere()
        if self.step_id is not None and scope is not None and asyncio.get_running_loop() is not scope.execution.loop:
            raise StepBuiltElsewhere(
                f"the call of step {self.name} is awaited in another event loop than that of its run: "
                "await it in the body; to run a function in a thread, make it a sync step"
            )
        if self._convert is not None:
            return self._converted(scope)
        if self.step_id is None:
            return self._plainly(scope)
        assert scope is not None
        return self._durably(scope.execution)

    def _elsewhere(self) -> StepBuiltElsewhere:
        return StepBuiltElsewhere(
            f"the call of step {self.name} was built {_where(self._scope)} and is awaited "
            f"{_where(current_scope.get())}; build a step call where it is awaited"
        )

    async def _converted(self, scope: Scope | None) -> R:
        try:
            if self.step_id is None or scope is None:
                return await self._plainly(scope)
            return await self._durably(scope.execution)
        except Exception as error:
            made = self.failure(error)
            if made is error:
                raise
            raise made from error


class PendingStart(PendingCall[R]):
    """The call that starts a run, anew or again, and gives its handle. No branch of a `select`: whether a run is
    started would depend on which branch won."""

    __slots__ = ()


class PendingStep(PendingCall[R]):
    """The call of a registered step."""

    __slots__ = ("args", "definition", "kwargs")

    def __init__(
        self,
        scope: Scope | None,
        definition: StepDefinition,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        name: str,
        step_id: int | None = None,
        input_text: str = "",
    ) -> None:
        super().__init__(scope, name, step_id, input_text)
        self.definition = definition
        self.args = args
        self.kwargs = kwargs

    def undo(
        self, compensation: Callable[Concatenate[R, P], PendingStep[Any]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self:
        """The same call; where its run fails for good, or is cancelled so that it compensates, and this step has
        succeeded, the step `compensation` undoes it. That is given the result first, then these arguments.

        Of several, the last that succeeded is undone first. What undoes a step is a step of the run like any other,
        with the options of its registration: it is tried again, survives crashes, and has its own idempotency key. That
        it will undo is durable before this step begins. Outside a run nothing is recorded, and nothing undone.

        Raises `InvalidArgument` for what is no registered step, `InsideStep`, `TypeError` for arguments that do not
        fit, `EncodingFailed`.
        """
        if self._used:
            raise RuntimeError(f"the call of step {self.name} was awaited before: say what undoes it when it is built")
        promise(self, self._scope, compensation, args, kwargs)
        return self

    def _durably(self, execution: Execution) -> Coroutine[Any, Any, R]:
        return execution.perform(self)

    def _plainly(self, scope: Scope | None) -> Coroutine[Any, Any, R]:
        return _plain(scope, self)


async def _plain(scope: Scope | None, call: PendingStep[Any]) -> Any:
    function = call.definition.function
    if call.definition.transaction is not None:
        return await run_plainly(None if scope is None else scope.execution, call.definition, call.args, call.kwargs)
    if call.definition.is_async:
        return await function(*call.args, **call.kwargs)
    if scope is None:
        value = function(*call.args, **call.kwargs)
        return await value if inspect.isawaitable(value) else value
    return await scope.execution.in_thread(function, call.args, call.kwargs)


def _where(scope: Scope | None) -> str:
    if scope is None:
        return "outside a run"
    run = f"run {scope.execution.claimed.id}"
    return f"in the body of {run}" if scope.index is None else f"in step {scope.name} ({scope.index}) of {run}"
