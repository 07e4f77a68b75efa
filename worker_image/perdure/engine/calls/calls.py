"""Carries out the durable calls of one claim that are no steps: replay, effect, waiting.

Used by `Execution` alone, beside `Steps`, with which it shares history, numbers and what is in progress. Keeps
invariants 1 and 5 for them: what is recorded is compared and returned; what waits gives the slot back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from perdure.engine.backoff import Wait
from perdure.engine.calls.kinds import DurableCall, Place
from perdure.engine.calls.waits import Listening
from perdure.engine.decide import Raise, Return
from perdure.engine.encoding import MARK, Encoding
from perdure.engine.failures import describe
from perdure.engine.log import StepLog
from perdure.errors import CancelRequested, ControlSignal, DecodingFailed, ReleaseRequested
from perdure.model.calls import CHILD_PREFIX, CallAnswer, Outcomes, OwnCall, RunOutcome, child_key
from perdure.model.outcome import ErrorRecord, Mismatch
from perdure.model.rows import OwnedFlags, RecordedStep, StepWrite
from perdure.model.states import CancelMode, StepStatus

if TYPE_CHECKING:
    from perdure.engine.execute import Execution
    from perdure.engine.steps import Steps

PAGE = 500
"""Runs looked at in one question."""

LOOK_PAUSE = 0.00001
"""Seconds for each awaited run between a wake and the look: what that costs, so that it is half of the work at most."""

HOLD_PER_STEP = 0.001
"""Seconds for each step before the waiting one: what its replay costs, and what it is worth to be spared of it."""

R = TypeVar("R")


class Ends:
    """An instant of the loop's clock at which a wait is over."""

    __slots__ = ("_at",)

    def __init__(self, seconds: float) -> None:
        self._at = asyncio.get_running_loop().time() + seconds

    @property
    def left(self) -> float:
        """Seconds until then, never less than zero."""
        return max(0.0, self._at - asyncio.get_running_loop().time())

    @property
    def over(self) -> bool:
        """Whether it has passed."""
        return self.left <= 0


class Calls:
    """The durable calls of one claim."""

    def __init__(self, run: Execution, steps: Steps, log: StepLog) -> None:
        self.run = run
        self.log = log
        self._steps = steps
        self._watching: asyncio.Task[None] | None = None
        self._watched_from = 0
        self._ended: dict[str, RunOutcome] = {}
        self._asked: list[str] | None = None
        self._answer: asyncio.Future[Outcomes]
        self.listening = Listening(self)

    async def perform(self, call: DurableCall[R]) -> R:
        """The recorded outcome of the call if there is one, else that of doing it. Raises its recorded failure."""
        try:
            recorded, decision = await self._steps.look_up(call)
            match decision:
                case Return(output):
                    return self.read_back(call, output)
                case Raise(error):
                    raise call.kind.rebuild(error)
                case _:
                    assert call.step_id is not None
                    at = Place(call, call.step_id, recorded, self.run.claimed)
                    if call.kind.holds and self.run.encoding.layered:
                        at.input = await self.finish(call.stored, self.run.encoding, f"the arguments of {call.name}")
                    result = await call.kind.perform(self, at)
                    if self.run.stopping:
                        raise self.run.signal()
                    return result
        except asyncio.CancelledError:
            if self.run.stopping:
                raise self.run.signal() from None
            self.run.determinism.dropped(call)
            raise

    async def unrecorded(self, work: Callable[[Calls], Awaitable[R]]) -> R:
        """Do what takes no index and leaves no row. Raises the signal when the run is stopped."""
        try:
            if self.run.stopping:
                await self.run.refuse()
            result = await work(self)
        except asyncio.CancelledError:
            if self.run.stopping:
                raise self.run.signal() from None
            self.run.determinism.dropped(None)
            raise
        if self.run.stopping:
            raise self.run.signal()
        return result

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
        return StepWrite(at.index, self._steps.next_seq(), call.name, status, at.input, output, error, wake_in=wake_in)

    async def finish(self, text: str, encoding: Encoding, what: str) -> str:
        """What is stored of a value of which the beginning is written. The run does not park meanwhile."""
        if not encoding.blocking and type(text) is str:
            return text
        with self.busy():
            return await self.run.values.finish(text, encoding, what)

    async def read(self, text: str, what: str) -> str:
        """The JSON of what others, or an earlier claim, have stored. Raises the signal when this process cannot."""
        return text if text[:1] != MARK else await self.run.values.read(text, what)

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
        return self.fail_as(at, describe(error))

    def fail_as(self, at: Place, record: ErrorRecord) -> Exception:
        """Record this failure; what to raise."""
        values = self.run.values
        record = values.failure(values.opened(record, at.call.name))
        self.record(self.write(at, StepStatus.FAILED, error=values.text_of(record)))
        return at.call.kind.rebuild(record)

    async def wait(self, wait: Wait) -> None:
        """Wait in memory, or have the run parked. Raises the signal when the run is stopped meanwhile."""
        if wait.key:
            self._watch(wait.seen)
        try:
            await self._steps.backoffs.wait(wait)
        finally:
            if self._watching is not None and not self._steps.backoffs.keyed:
                self._watching.cancel()
                self._watching = None
        if self.run.stopping:
            raise self.run.signal()

    def clock(self, seconds: float | None) -> Ends | None:
        """The end of a wait of so many seconds; None without one."""
        return None if seconds is None else Ends(seconds)

    def hold(self, at: Place) -> float:
        """Seconds for which it is worth waiting in memory for what may come any moment: coming back costs a replay of
        all that the run has recorded."""
        return self.hold_at(at.index)

    def hold_at(self, index: int) -> float:
        """The same, of a wait after so many calls."""
        return min(self._steps.backoffs.park_after, index * HOLD_PER_STEP)

    def next_seq(self) -> int:
        """The number of a write that stands for no step."""
        return self._steps.next_seq()

    async def was_beyond(self, index: int) -> bool:
        """Whether an earlier claim has recorded anything at this index or behind it."""
        return await self._steps.recorded_from(index)

    def recorded(self, index: int) -> RecordedStep | None:
        """What is recorded at the index of the next call, once `was_beyond` has looked there."""
        return self._steps.recorded(index)

    async def ask(self, call: OwnCall) -> CallAnswer:
        """Carry out a call with an effect outside. Raises the signal when it must not, or cannot, be done."""
        try:
            answer = await self.log.call(call)
        except ControlSignal as signal:
            self.run.interrupt(signal)
        except Exception as error:
            self.run.give_up(error, f"{call.step.name} could not be done")
        else:
            self.obey(answer.flags)
            if not self.run.dropping and (answer.done or answer.flags.cancel_mode is None):
                return answer
        raise self.run.signal()

    async def look(self, question: Awaitable[R]) -> R:
        """The answer to a question about something outside. Raises the signal when there is none."""
        try:
            answer = await question
        except Exception as error:
            self.run.give_up(error, "the state of another run could not be read")
        else:
            if not self.run.dropping:
                return answer
        raise self.run.signal()

    async def outcome_of(self, run_id: str) -> tuple[RunOutcome | None, int]:
        """How another run stands, None if there is none; and the count of wakes of this run. All that ask in one turn
        of the loop share a question."""
        ended = self._ended.pop(run_id, None)
        if ended is not None:
            return ended, 0
        if self._asked is None:
            self._asked = []
            self._answer = asyncio.ensure_future(self._next_outcomes(self._asked))
            self._answer.add_done_callback(_retrieve)
        self._asked.append(run_id)
        outcomes = await self.look(asyncio.shield(self._answer))
        return outcomes.runs.get(run_id), outcomes.wake_seq

    async def _next_outcomes(self, ids: list[str]) -> Outcomes:
        await asyncio.sleep(0)
        self._asked = None
        return await self._outcomes(ids, ended=False)

    async def _outcomes(self, ids: list[str], *, ended: bool) -> Outcomes:
        found: dict[str, RunOutcome] = {}
        seen: int | None = None
        for first in range(0, len(ids), PAGE):
            page = await self.log.look_at_runs(ids[first : first + PAGE], ended=ended)
            found.update(page.runs)
            seen = page.wake_seq if seen is None else seen
        return Outcomes(found, seen or 0)

    def obey(self, flags: OwnedFlags) -> None:
        """Stop the body if it is asked for."""
        if flags.cancel_mode is not None:
            immediate = flags.cancel_mode is CancelMode.IMMEDIATE
            self.run.interrupt(CancelRequested("the run was cancelled", immediate=immediate))
        elif flags.suspended:
            self.run.interrupt(ReleaseRequested("the run is suspended"))

    def _watch(self, seen: int) -> None:
        """Have the waits look again when the run is woken."""
        watching = self._watching
        if watching is not None and not watching.done():
            if self._watched_from <= seen:
                return
            watching.cancel()
        self._watched_from = seen
        self._watching = asyncio.create_task(self._until_woken(seen))

    async def _until_woken(self, seen: int) -> None:
        """Of the runs whose ends are waited for, only those that have ended are looked at each by itself: a parent of
        thousands is woken as often as there are children."""
        backoffs = self._steps.backoffs
        while True:
            await self.log.woken(seen)
            awaited = [key.removeprefix(CHILD_PREFIX) for key in backoffs.keys if key.startswith(CHILD_PREFIX)]
            if not awaited:
                backoffs.woken((), seen)
                return
            await asyncio.sleep(len(awaited) * LOOK_PAUSE)
            try:
                outcomes = await self._outcomes(awaited, ended=True)
            except Exception:
                backoffs.woken((), seen)  # they ask again, each for itself, and meet the same error where it counts
                return
            self._ended.update(outcomes.runs)
            self._watched_from = seen = outcomes.wake_seq
            backoffs.woken({child_key(run_id) for run_id in awaited if run_id not in outcomes.runs}, seen)

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

    def read_back(self, call: DurableCall[R], output: str) -> R:
        """The result from its recorded form. One that does not fit ends the body, unless others have made it."""
        try:
            return call.kind.read_back(output)
        except DecodingFailed as error:
            if call.kind.foreign:
                raise
            self.run.abort(Mismatch(describe(error, call.name)), error.message)
            raise self.run.signal() from error


def _retrieve(future: asyncio.Future[Outcomes]) -> None:
    """An error that nobody is left to hear is no news."""
    if not future.cancelled():
        future.exception()
