"""One claim of one run: runs the body against what is recorded, and says how it ended.

Called by the worker's runner, one `Execution` for each claim. The body runs in a task of its own, so that one that
does not let itself be stopped can be left behind: its durable calls raise a signal from then on and write nothing.

A stop is told to the body in the mildest way that works: a durable call raises the signal where it is awaited; where
the body awaits something else its task is cancelled; what goes on after `UNWIND_SECONDS` is cancelled once more and
then abandoned.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from perdure.engine.bodies import run_in_thread
from perdure.engine.boundary import body_of, outcome_of_body
from perdure.engine.calls.calls import Calls
from perdure.engine.calls.kinds import DurableCall, Kind, call_of, input_of
from perdure.engine.cancellation import Cancellations
from perdure.engine.context import Scope, current_scope
from perdure.engine.determinism import Determinism
from perdure.engine.encoding import PLAIN
from perdure.engine.failures import lasting
from perdure.engine.history import History, MoreHistory
from perdure.engine.log import StepLog
from perdure.engine.pending import PendingCall, PendingStep
from perdure.engine.promises import Promise
from perdure.engine.race import Race
from perdure.engine.registry import Registry, StepDefinition
from perdure.engine.select import PendingSelect, Selected
from perdure.engine.steps import Steps
from perdure.engine.stop import Phase, Rank, Stop, aborted, merged, requested
from perdure.engine.stored import Values
from perdure.engine.transaction import Ledger
from perdure.engine.undo import undo
from perdure.engine.unwind import UNWIND_SECONDS, Unwinding, cancel
from perdure.errors import (
    BodyStopped,
    CancelRequested,
    ControlSignal,
    OwnershipLost,
    ReleaseRequested,
    SlotGivenBack,
)
from perdure.model.outcome import Cancelled, Ending, Failed, Parked, Released, Succeeded
from perdure.model.rows import ClaimedRun

logger = logging.getLogger(__name__)

R = TypeVar("R")

MAX_LATE_CALLS = 100
"""Step calls that a stopped body may still build and see refused. A body that catches the signal in a loop would
hold the event loop for ever; after these its calls wait instead."""

DEADLINE = "its deadline has passed"


class Execution:
    """Runs the body of one claimed run, once.

    `threads` runs the bodies of sync steps. `more_history` reads what `run.steps` leaves out; None when it leaves out
    nothing. `ledger` is where transactions are run. A step's backoff longer than `park_after` seconds gives the slot
    back.
    """

    def __init__(
        self,
        run: ClaimedRun,
        registry: Registry,
        log: StepLog,
        *,
        threads: Executor,
        more_history: MoreHistory | None = None,
        ledger: Ledger | None = None,
        park_after: float = 1.0,
        unwind: float = UNWIND_SECONDS,
    ) -> None:
        self.claimed = run
        self.registry = registry
        self.values = Values(self)
        self.encoding = self.values.encoding
        self.ledger = ledger
        self.stopping = False
        """Whether durable calls are refused."""
        self.dropping = False
        """Whether also what steps in progress give is dropped."""
        self.log = log
        self.cancellations = Cancellations()
        """Those that attempts in progress have asked for."""
        self._threads = threads
        self._unwind = unwind
        self._phase = Phase.NEW
        self._stop: Stop | None = None
        self._outcome: Ending | None = None
        self._told = False
        self._body: asyncio.Task[Ending] | None = None
        self._done: asyncio.Future[Ending] | None = None
        self._unwinding: Unwinding | None = None
        self.next_index = 0
        """The index that the next call takes."""
        self._late_calls = 0
        self.promises: dict[int, Promise] = {}
        """What undoes the calls that were built and not begun yet, by index."""
        self.unawaited: dict[int, str] = {}
        """Names of the calls that were built and not awaited yet, by index."""
        self.determinism = Determinism(self)
        self._steps = Steps(self, History(run.steps, more_history), log, threads, park_after)
        self._calls = Calls(self, self._steps, log)

    @property
    def skipped(self) -> timedelta:
        """By how much the time of the run is ahead of the clocks: in tests, which skip time, and nowhere else."""
        return timedelta()

    @property
    def steps_in_progress(self) -> int:
        """Steps whose start is being written or whose body runs; a step that waits for its next attempt is none."""
        return len(self._steps.in_progress)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where the body runs; once it has begun."""
        assert self._body is not None
        return self._body.get_loop()

    async def run(self) -> Ending:
        """Run to an ending, which the caller has to commit. Raises nothing but what cancels the caller itself."""
        if self._phase is not Phase.NEW:
            raise RuntimeError(f"run {self.claimed.id} is executed a second time under one claim")
        prepared = self._prepare()
        if not isinstance(prepared, Coroutine):
            self._phase = Phase.ENDED
            return prepared
        self._phase = Phase.BODY
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        context = copy_context()
        context.run(current_scope.set, Scope(self))
        self._body = loop.create_task(prepared, name=f"run {self.claimed.id}", context=context)
        self._body.add_done_callback(self._body_over)
        deadline = self._watch_deadline(loop)
        try:
            return await self._done
        except asyncio.CancelledError:
            self.interrupt(OwnershipLost("the worker stops"))
            raise
        finally:
            if deadline is not None:
                deadline.cancel()

    def interrupt(self, signal: ControlSignal) -> None:
        """End the body from outside; `run` then returns. From the event loop's thread. May be called again, stronger.

        `CancelRequested` and `ReleaseRequested` let steps in progress finish and be recorded unless they are
        `immediate`; `OwnershipLost` stops everything and nothing is written from here on.
        """
        self._request(requested(signal))

    def abort(self, ending: Ending, reason: str) -> None:
        """End the body because the engine cannot go on with it; steps in progress finish and are recorded first."""
        self._request(aborted(ending, reason))

    def give_up(self, error: Exception, what: str) -> None:
        """The journal or the history failed: a lasting reason ends the run, any other gives it back to the queue."""
        reason = f"{what}: {error}"
        if (ending := lasting(error)) is not None:
            self.abort(ending, reason)
        else:
            logger.warning("run %s is given back: %s", self.claimed.id, reason, exc_info=error)
            self.interrupt(ReleaseRequested(reason))

    def park(self, parked: Parked) -> None:
        """Give the slot back: nothing but waits is left."""
        self._request(Stop(Rank.PARK, SlotGivenBack(parked.waiting_for.message), parked, immediate=True))

    def quiet(self) -> None:
        """No step is in progress any more, and somebody waits for that."""
        if self._phase is Phase.CLOSING:
            self._end()
        elif self._stop is not None:
            asyncio.get_running_loop().call_soon(self._stop_body)
        else:
            self._steps.backoffs.consider()

    @property
    def aborted(self) -> bool:
        """Whether the engine cannot go on with this body."""
        return self._stop is not None and self._stop.rank is Rank.ABORT

    def next_seq(self) -> int:
        """The number of a write that a step's body makes."""
        return self._steps.next_seq()

    def signal(self) -> ControlSignal:
        """What a durable call of a stopped body raises."""
        self._told = True
        task = asyncio.current_task()
        if task is not None and task is not self._body:
            task.add_done_callback(_retrieve)
        if self._stop is None:
            return BodyStopped(f"the body of run {self.claimed.id} has ended")
        return self._stop.again()

    async def refuse(self) -> NoReturn:
        """Raise the signal; hold the caller when it does not want to hear it."""
        if self._late_calls > MAX_LATE_CALLS:
            await asyncio.get_running_loop().create_future()
        raise self.signal()

    def call(
        self, scope: Scope, definition: StepDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> PendingStep[Any]:
        """Build a step call at the next index. Raises `TypeError`, `EncodingFailed`, and then takes none."""
        text = definition.encode_call(args, kwargs, self.encoding)
        call = self.place(scope, definition, args, kwargs, self.next_index, text)
        self.next_index += 1
        return call

    def place(
        self,
        scope: Scope,
        definition: StepDefinition,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        index: int,
        text: str,
    ) -> PendingStep[Any]:
        """Build a step call at this index with this recorded input, which is JSON. Raises `EncodingFailed`."""
        call: PendingStep[Any] = PendingStep(scope, definition, args, kwargs, definition.name, index, text)
        if self.encoding is not PLAIN:
            call.stored = self.encoding.begin(text, f"the arguments of step {definition.name}")
        if self.stopping:
            self._late_calls += 1
        self.unawaited[index] = definition.name
        return call

    def build(self, scope: Scope, kind: Kind[R]) -> DurableCall[R]:
        """Build a durable call that is no step at the next index. Raises `EncodingFailed`, and then takes none."""
        call = call_of(scope, kind, self.next_index, input_of(kind, self.encoding))
        if self.encoding is not PLAIN and kind.holds:
            call.stored = self.encoding.begin(call.input, f"the arguments of {kind.name}")
        if self.stopping:
            self._late_calls += 1
        self.unawaited[self.next_index] = kind.name
        self.next_index += 1
        return call

    def select(self, scope: Scope, branches: Sequence[PendingCall[Any]], names: Sequence[str] | None) -> PendingSelect:
        """Build the race of these calls at the next index."""
        index = self.next_index
        self.next_index = index + 1
        if self.stopping:
            self._late_calls += 1
        for branch in branches:
            self.unawaited.pop(branch.step_id or 0, None)
            self.determinism.racing.add(branch.step_id)
        call = PendingSelect(scope, branches, names, index)
        self.unawaited[index] = call.name
        return call

    def perform_select(self, call: PendingSelect) -> Coroutine[Any, Any, Selected[Any]]:
        """Replay or carry out a select of this run."""
        self.unawaited.pop(call.step_id or 0, None)
        return Race(self, self._steps, self._calls, call).perform()

    def perform_call(self, call: DurableCall[R]) -> Coroutine[Any, Any, R]:
        """Replay or carry out a durable call of this run that is no step."""
        self.unawaited.pop(call.step_id or 0, None)
        return self._calls.perform(call)

    def perform_unrecorded(self, work: Callable[[Calls], Awaitable[R]]) -> Coroutine[Any, Any, R]:
        """Carry out a wait of this run that takes no index."""
        self._late_calls += self.stopping
        return self._calls.unrecorded(work)

    def forgo(self, call: PendingCall[Any]) -> None:
        """This call will never be awaited, and that is as it should be."""
        self.unawaited.pop(call.step_id or 0, None)
        call.close()

    def perform(self, call: PendingStep[Any]) -> Coroutine[Any, Any, Any]:
        """Replay or run a step call of this run."""
        self.unawaited.pop(call.step_id or 0, None)
        return self._steps.perform(call)

    async def in_thread(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a sync step that is called inside another one: beside the loop, or inline when that is in a thread."""
        if self._body is None or asyncio.get_running_loop() is not self._body.get_loop():
            value = function(*args, **kwargs)
            return await value if inspect.isawaitable(value) else value
        return await run_in_thread(self._threads, function, args, kwargs)

    def _prepare(self) -> Ending | Coroutine[Any, Any, Ending]:
        """The body ready to run, or how the run ends without it."""
        run = self.claimed
        if self._stop is not None:
            return self._stop.ending
        if run.undoes:
            return undo(self, lambda: self._body)
        if run.cancel_mode is not None:
            return Cancelled("the run was cancelled")
        if run.deadline_in is not None and run.deadline_in <= 0:
            return Cancelled(DEADLINE)
        if run.suspended:
            return Released("the run is suspended")
        return body_of(self, lambda: self._body)

    def _body_over(self, body: asyncio.Task[Ending]) -> None:
        """The body's function has ended. Steps that it left in progress finish and are recorded first."""
        if self._phase is Phase.ENDED:
            return
        if self._stop is None:
            self._outcome = self.determinism.outcome(outcome_of_body(body))
        self._phase = Phase.CLOSING
        self.stopping = True
        self._steps.backoffs.wake_all()
        if not self._steps.in_progress:
            self._end()

    def _request(self, asked: Stop) -> None:
        before = self._stop
        stop = merged(before, asked)
        if self._phase is Phase.ENDED or stop == before:
            return
        self._stop = stop
        self.stopping = True
        self.dropping = stop.immediate
        if self._body is None:
            return
        if self._steps.backoffs:
            self._told = True
            self._steps.backoffs.wake_all()
        if stop.immediate:
            self.cancellations.stop()
            if stop.rank is not Rank.PARK:
                cancel(self._left())
            self.watch_unwinding()
        elif not self._steps.in_progress:
            # A durable call that asks for this tells the body with its own signal: look after that.
            asyncio.get_running_loop().call_soon(self._stop_body)
        elif stop.rank is Rank.CANCEL:
            self._steps.preempt()

    def _stop_body(self) -> None:
        """End a body that no step in progress holds up; it may know already."""
        if self._phase is Phase.BODY and not self._steps.in_progress and self._body is not None:
            if not self._told:
                self._body.cancel()
            self.watch_unwinding()

    def watch_unwinding(self) -> None:
        """All that is left was told to stop: from now on it has the time that a body gets."""
        if self._unwinding is None:
            self._unwinding = Unwinding(self.claimed.id, self._unwind, self._left, self._end)
        self._unwinding.watch()

    def _left(self) -> set[asyncio.Task[Any]]:
        """The tasks that have to end before the run does."""
        assert self._body is not None
        return {*self._steps.in_progress, self._body}

    def _watch_deadline(self, loop: asyncio.AbstractEventLoop) -> asyncio.TimerHandle | None:
        seconds = self.claimed.deadline_in
        if seconds is None:
            return None
        return loop.call_later(seconds, self.interrupt, CancelRequested(DEADLINE, immediate=True))

    def _end(self) -> None:
        """Nothing of the run is in progress, or it is left behind: say how it ended."""
        self._phase = Phase.ENDED
        self.stopping = self.dropping = True
        if self._unwinding is not None:
            self._unwinding.end()
        ending = self._outcome
        if self._stop is not None and (ending is None or self._stop.rank > Rank.OUTCOME):
            ending = self._stop.ending
        assert ending is not None
        if isinstance(ending, Failed):
            ending = Failed(self.values.sealed(ending.error))
        if isinstance(ending, Succeeded) and self.unawaited:
            names = ", ".join(f"{name} ({index})" for index, name in self.unawaited.items())
            logger.warning("run %s: steps were called and never awaited: %s", self.claimed.id, names)
        if self._done is not None and not self._done.done():
            self._done.set_result(ending)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """A signal in a task that nobody awaits is no news: keep asyncio from logging it."""
    if not task.cancelled():
        task.exception()
