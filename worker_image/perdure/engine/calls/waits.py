"""Waiting for the ends of runs, whoever started them: the first of several, or all.

The end of a run wakes the run that started it. Any other that waits for it says so first and looks once more after
that: an end before it is seen, a later one finds the wait. Used by the kinds of calls that wait for runs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.engine.backoff import ANY_KEY, Wait
from perdure.engine.calls.kinds import Common, Place
from perdure.engine.context import Scope
from perdure.engine.failures import describe
from perdure.engine.pending import PendingCall
from perdure.errors import ControlSignal, DecodingFailed, NonExistentWorkflow
from perdure.model.calls import AwaitRuns, CallName, Statuses, child_key
from perdure.model.outcome import Failed
from perdure.model.rows import StepWrite, WaitingFor
from perdure.model.states import RunStatus, StepStatus

if TYPE_CHECKING:
    from perdure.engine.calls.calls import Calls

KIND = "Child"

PAGE = 500
"""Runs whose ends are waited for in one call: some 10 ms, in which this run's own row is locked."""

NAMED = 3
"""Runs that a sentence names of those that are waited for."""

JOIN = "perdure.join_workflows"
"""What people see of a call that is recorded nowhere."""

UNPLACED = -1
"""Index of a write that stands for no step."""


class Listening:
    """Has this run woken by the ends of runs that it has not started. All that ask in one turn of the loop share the
    statements."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._asked: dict[str, None] | None = None
        self._answer: asyncio.Future[None]

    async def to(self, runs: Sequence[str]) -> None:
        """From now on the ends of these runs wake this one. What has ended before does not: look after this."""
        if self._asked is None:
            self._asked = {}
            self._answer = asyncio.ensure_future(self._next(self._asked))
            self._answer.add_done_callback(_retrieve)
        self._asked.update(dict.fromkeys(runs))
        await asyncio.shield(self._answer)

    async def _next(self, asked: dict[str, None]) -> None:
        await asyncio.sleep(0)
        self._asked = None
        calls, runs = self._calls, tuple(asked)
        for first in range(0, len(runs), PAGE):
            page = runs[first : first + PAGE]
            step = StepWrite(UNPLACED, calls.next_seq(), CallName.RESULT, StepStatus.WAITING, "[]")
            await calls.ask(AwaitRuns(step, page))
            await calls.look(calls.log.ask_for_news(page))


def missing(runs: Sequence[str], seen: Statuses) -> NonExistentWorkflow | None:
    """The error for those of the runs that are not there, if there are any."""
    gone = [run for run in runs if run not in seen.runs]
    return NonExistentWorkflow(f"there is no run {_some(gone)}") if gone else None


@dataclass(frozen=True)
class SelectRun(Common):
    """Wait until one of several runs has ended; its id. Of those that have, the first as they are given."""

    runs: tuple[str, ...]
    name = CallName.SELECT_WORKFLOW

    @property
    def arguments(self) -> list[Any]:
        """The runs, as they were given."""
        return list(self.runs)

    async def perform(self, calls: Calls, at: Place) -> str:
        """One question about all of them, until one has ended."""
        recorded = at.recorded is not None and at.recorded.status is StepStatus.WAITING
        while True:
            with calls.busy():
                seen = await self._look(calls)
                error = missing(self.runs, seen)
                if error is not None:
                    raise calls.fail(at, error)
                first = next((run for run in self.runs if seen.runs[run].finished), None)
                if first is not None:
                    calls.succeed(at, json.dumps(first))
                    return first
                if not recorded:
                    calls.record(calls.write(at, StepStatus.WAITING))
                    recorded = True
            keys = tuple(child_key(run) for run in self.runs)
            await calls.wait(Wait(self._why, None, ANY_KEY, seen.wake_seq, calls.hold_at(at.index), keys))

    async def _look(self, calls: Calls) -> Statuses:
        seen = await calls.look(calls.log.statuses_of(self.runs))
        others = [run for run in seen.runs if run not in seen.own]
        if not others or len(seen.runs) < len(self.runs) or any(status.finished for status in seen.runs.values()):
            return seen
        await calls.listening.to(others)
        return await calls.look(calls.log.statuses_of(self.runs))

    def read_back(self, output: str) -> str:
        """The id."""
        found = json.loads(output)
        if found not in self.runs:
            raise DecodingFailed(f"{shortened(found)} is recorded, which is none of the runs that were waited for")
        return str(found)

    def _why(self, left: float) -> WaitingFor:
        return WaitingFor(KIND, _some(self.runs), f"it waits for the first end of {_some(self.runs)}")


@dataclass(frozen=True)
class StatusOf(Common):
    """How a run stands, as it was when the call was first done."""

    run_id: str
    name = CallName.STATUS

    @property
    def arguments(self) -> list[Any]:
        """The run."""
        return [self.run_id]

    async def perform(self, calls: Calls, at: Place) -> RunStatus:
        """Look and record."""
        with calls.busy():
            seen = await calls.look(calls.log.statuses_of([self.run_id]))
            error = missing([self.run_id], seen)
            if error is not None:
                raise calls.fail(at, error)
            calls.succeed(at, json.dumps(seen.runs[self.run_id].name))
            return seen.runs[self.run_id]

    def read_back(self, output: str) -> RunStatus:
        """The status."""
        found = json.loads(output)
        if found not in RunStatus.__members__:
            raise DecodingFailed(f"{shortened(found)} is recorded, which is no status of a run")
        return RunStatus[found]


class PendingJoin(PendingCall[None]):
    """Waits until all of several runs have ended. Takes no index and is recorded nowhere: `place` is the index that the
    next call has taken or will take."""

    __slots__ = ("place", "runs")

    def __init__(self, scope: Scope, runs: tuple[str, ...], place: int) -> None:
        super().__init__(scope, JOIN, None, "")
        self.runs = runs
        self.place = place

    def _durably(self, execution: Any) -> Coroutine[Any, Any, None]:
        raise AssertionError("it has no index")

    def _plainly(self, scope: Scope | None) -> Coroutine[Any, Any, None]:
        assert scope is not None
        return scope.execution.perform_unrecorded(lambda calls: join(calls, self.runs, self.place))


class PendingResults(PendingCall[tuple[Any, ...]]):
    """Waits until several runs have ended, then gives their results in order. Each wait for a result is a call that
    has taken its own index; this one has none."""

    __slots__ = ("results",)

    def __init__(self, scope: Scope, results: Sequence[PendingCall[Any]]) -> None:
        super().__init__(scope, JOIN, None, "")
        self.results = results

    def _durably(self, execution: Any) -> Coroutine[Any, Any, tuple[Any, ...]]:
        raise AssertionError("it has no index")

    def _plainly(self, scope: Scope | None) -> Coroutine[Any, Any, tuple[Any, ...]]:
        return self._all()

    async def _all(self) -> tuple[Any, ...]:
        found = await asyncio.gather(*self.results, return_exceptions=True)
        failures = [each for each in found if isinstance(each, BaseException)]
        for failure in sorted(failures, key=lambda each: not isinstance(each, ControlSignal)):
            raise failure
        return tuple(found)


async def join(calls: Calls, runs: Sequence[str], place: int) -> None:
    """Wait for the last of those that have not ended, as often as there is one: mostly the others, which were started
    before it, have ended by then.

    A run that is not there ends this one, but where this wait was over before: there it has been removed since then.
    """
    left = tuple(runs)
    while True:
        with calls.busy():
            seen = await calls.look(calls.log.statuses_of(left))
            left = await _going(calls, left, seen, place)
            if left and left[-1] not in seen.own:
                await calls.listening.to(left[-1:])
                seen = await calls.look(calls.log.statuses_of(left))
                now = await _going(calls, left, seen, place)
                if now and now[-1] != left[-1]:
                    continue  # for this one nobody listens yet
                left = now
        if not left:
            return

        def why(_: float, left: tuple[str, ...] = left) -> WaitingFor:
            return WaitingFor(KIND, _some(left), f"it waits for the ends of {_some(left)}")

        await calls.wait(Wait(why, None, child_key(left[-1]), seen.wake_seq, calls.hold_at(place)))


async def _going(calls: Calls, runs: tuple[str, ...], seen: Statuses, place: int) -> tuple[str, ...]:
    """Those that have not ended. Ends the run when one was never there: as nothing is recorded, a body that caught an
    error here would not meet it again at a replay."""
    error = missing(runs, seen)
    if error is not None and not await calls.was_beyond(place):
        calls.run.abort(Failed(describe(error)), error.message)
        raise calls.run.signal()
    return tuple(run for run in runs if run in seen.runs and not seen.runs[run].finished)


def shortened(value: object) -> str:
    """For a sentence."""
    return str(value)[:100]


def _some(runs: Sequence[str]) -> str:
    named = ", ".join(shortened(run) for run in runs[:NAMED])
    return named if len(runs) <= NAMED else f"{named} and {len(runs) - NAMED} others"


def _retrieve(future: asyncio.Future[None]) -> None:
    """An error that nobody is left to hear is no news."""
    if not future.cancelled():
        future.exception()
