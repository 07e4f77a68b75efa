"""Carries out the durable calls of one claim that are no steps: replay, effect, waiting.

Used by `Execution` alone, beside `Steps`, with which it shares history, numbers and what is in progress. Keeps
invariants 1 and 5 for them: what is recorded is compared and returned; what waits gives the slot back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from perdure.engine.backoff import Wait
from perdure.engine.codec import encode
from perdure.engine.context import Scope, current_scope
from perdure.engine.decide import Raise, Return
from perdure.engine.failures import NONE, describe, rebuild
from perdure.engine.log import StepLog
from perdure.engine.pending import PendingCall
from perdure.errors import DecodingFailed, InsideStep, NotInWorkflow
from perdure.model.calls import CallName
from perdure.model.outcome import ErrorRecord, Mismatch
from perdure.model.rows import RecordedStep, StepWrite
from perdure.model.states import StepStatus

if TYPE_CHECKING:
    from perdure.engine.execute import Execution
    from perdure.engine.steps import Steps

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Kind(Protocol[R_co]):
    """What a durable call does: one value for each call."""

    @property
    def name(self) -> CallName:
        """Under which it is recorded."""
        ...

    @property
    def arguments(self) -> list[Any]:
        """Its recorded input."""
        ...

    async def perform(self, calls: Calls, at: Place) -> R_co:
        """Do it. A failure that is its outcome is raised through `Calls.fail`, all else is none."""
        ...

    def read_back(self, output: str) -> R_co:
        """The result from the recorded output. Raises `DecodingFailed`."""
        ...

    def rebuild(self, error: ErrorRecord) -> Exception:
        """The exception of a recorded failure."""
        ...

    @property
    def in_steps(self) -> bool:
        """Whether it may be called inside a step, where nothing is recorded."""
        ...

    def plainly(self) -> Coroutine[Any, Any, R_co]:
        """Do it there."""
        ...


class Common:
    """What most kinds share."""

    in_steps = False

    def rebuild(self, error: ErrorRecord) -> Exception:
        """Of its own class."""
        return rebuild(error, NONE, "")

    def plainly(self) -> Coroutine[Any, Any, Any]:
        """Not at all."""
        raise NotImplementedError


class DurableCall(PendingCall[R], Generic[R]):
    """The call of one kind. Made by `build`."""

    __slots__ = ("kind",)

    def __init__(self, scope: Scope, kind: Kind[R], step_id: int | None, input_text: str) -> None:
        super().__init__(scope, kind.name, step_id, input_text)
        self.kind = kind

    def _durably(self, execution: Execution) -> Coroutine[Any, Any, R]:
        return execution.perform_call(self)

    def _plainly(self, scope: Scope | None) -> Coroutine[Any, Any, R]:
        return self.kind.plainly()


def build(kind: Kind[R]) -> DurableCall[R]:
    """The call at the next index of the run. Raises `NotInWorkflow`, `InsideStep`, `EncodingFailed`, and takes none."""
    scope = current_scope.get()
    if scope is None:
        raise NotInWorkflow(
            f"{kind.name} was called outside the body of a run; from a program of its own use perdure.Client"
        )
    if scope.index is None:
        return scope.execution.build(scope, kind)
    if asyncio._get_running_loop() is None:
        raise InsideStep(f"{kind.name} was called in the sync step {scope.name}, where nothing can await it")
    if not kind.in_steps:
        raise InsideStep(f"{kind.name} was called in step {scope.name}: a step is a leaf; call it from the workflow")
    return DurableCall(scope, kind, None, "")


class Place:
    """Where a call stands: its index, its input, and what is recorded there (None: nothing yet)."""

    __slots__ = ("call", "index", "recorded", "run_id")

    def __init__(self, call: DurableCall[Any], index: int, recorded: RecordedStep | None, run_id: str) -> None:
        self.call = call
        self.index = index
        self.recorded = recorded
        self.run_id = run_id

    @property
    def left(self) -> float | None:
        """Seconds until the recorded instant, None if there is none."""
        return None if self.recorded is None else self.recorded.wake_in


class Calls:
    """The durable calls of one claim."""

    def __init__(self, run: Execution, steps: Steps, log: StepLog) -> None:
        self.run = run
        self.log = log
        self._steps = steps

    async def perform(self, call: DurableCall[R]) -> R:
        """The recorded outcome of the call if there is one, else that of doing it. Raises its recorded failure."""
        try:
            recorded, decision = await self._steps.look_up(call)
            match decision:
                case Return(output):
                    return self._read_back(call, output)
                case Raise(error):
                    raise call.kind.rebuild(error)
                case _:
                    assert call.step_id is not None
                    return await call.kind.perform(self, Place(call, call.step_id, recorded, self.run.claimed.id))
        except asyncio.CancelledError:
            if self.run.stopping:
                raise self.run.signal() from None
            raise

    # -- for the kinds

    def write(
        self,
        at: Place,
        status: StepStatus,
        *,
        output: str | None = None,
        error: str | None = None,
        wake_in: float | None = None,
    ) -> StepWrite:
        """The next write of the run, at this place."""
        call = at.call
        return StepWrite(
            at.index, self._steps.next_seq(), call.name, status, call.input, output, error, wake_in=wake_in
        )

    def record(self, write: StepWrite) -> None:
        """Have it written. Raises the signal instead when the run is stopped at once."""
        if self.run.dropping:
            raise self.run.signal()
        self.log.record(write)

    def succeed(self, at: Place, output: str) -> None:
        """Record the result."""
        self.record(self.write(at, StepStatus.SUCCEEDED, output=output))

    def fail(self, at: Place, error: Exception) -> Exception:
        """Record the failure; what to raise."""
        record = describe(error)
        self.record(self.write(at, StepStatus.FAILED, error=record.to_json()))
        return at.call.kind.rebuild(record)

    async def wait(self, wait: Wait) -> None:
        """Wait in memory, or have the run parked. Raises the signal when the run is stopped meanwhile."""
        await self._steps.backoffs.wait(wait)
        if self.run.stopping:
            raise self.run.signal()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While the call is at work: the run does not park, and ends in good order only after it."""
        steps = self._steps
        task = asyncio.current_task()
        assert task is not None
        steps.in_progress.add(task)
        steps.backoffs.started()
        try:
            yield
        finally:
            steps.in_progress.discard(task)
            if not steps.in_progress and (self.run.stopping or steps.backoffs):
                self.run.quiet()

    def _read_back(self, call: DurableCall[R], output: str) -> R:
        try:
            return call.kind.read_back(output)
        except DecodingFailed as error:
            self.run.abort(Mismatch(describe(error, call.name)), error.message)
            raise self.run.signal() from error


def input_of(kind: Kind[Any]) -> str:
    """The recorded input of a call. Raises `EncodingFailed`."""
    return encode(kind.arguments, f"the arguments of {kind.name}")
