"""Carries out a select in a run: races its branches, records which one won, or replays the winner alone.

Used by `Execution`, one `Race` for each select that is awaited. Promises:

* Only the winner records an outcome: the end of a branch is held back until the race is decided, and of several that
  have ended in one turn of the loop the first in source order wins.
* A message is taken for a branch only once it has won; until then the inbox is only looked at.
* The winner's outcome, the select and what became of the losers are written one after the other, with nothing that
  anybody could see in between. A branch whose outcome was recorded before a crash has won, whatever else is ready.
* What is no outcome (a stop, a database that is away) ends the race without a winner, and the next claim races again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from perdure.engine.backoff import Wait
from perdure.engine.calls.calls import Calls
from perdure.engine.calls.kinds import DurableCall
from perdure.engine.decide import Return
from perdure.engine.failures import describe
from perdure.engine.log import StepLog
from perdure.engine.pending import PendingCall, PendingStep
from perdure.engine.select import NO_INPUT, PendingSelect, Selected, give_up
from perdure.errors import ControlSignal, UnexpectedStep
from perdure.model.calls import CallAnswer, CallName, Otherwise, OwnCall, Receive, RunOutcome
from perdure.model.outcome import Mismatch
from perdure.model.rows import OwnedFlags, StepWrite
from perdure.model.states import StepStatus

if TYPE_CHECKING:
    from perdure.engine.execute import Execution
    from perdure.engine.steps import Steps

OUTCOMES = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED})


class Race:
    """One select of one claim."""

    def __init__(self, run: Execution, steps: Steps, calls: Calls, call: PendingSelect) -> None:
        self._run = run
        self._steps = steps
        self._calls = calls
        self._call = call
        self._branches: list[Branch] = []
        self._news = asyncio.Event()
        self.over = False
        """Whether it is decided, or given up: no branch may write any more."""

    async def perform(self) -> Selected[Any]:
        """The result of the branch that has won, now or before. Raises what that one raised."""
        try:
            _, decision = await self._steps.look_up(self._call)
            if isinstance(decision, Return):
                return await self._again(decision.output)
            position = self._recorded()
            if position is not None:
                return await self._decided_before(position)
            return await self._race()
        except asyncio.CancelledError:
            if self._run.stopping:
                raise self._run.signal() from None
            self._run.determinism.dropped(self._call)
            raise

    # -- for the branches

    def tell(self) -> None:
        """Something has become of a branch."""
        self._news.set()

    def next_seq(self) -> int:
        """The number of the run's next write."""
        return self._steps.next_seq()

    # -- a winner that is known

    async def _again(self, output: str) -> Selected[Any]:
        """Poll the recorded winner and no other."""
        position = int(output) if output.isdecimal() else -1
        if position not in range(len(self._call.branches)):
            self._refuse(output)
        return self._call.won(position, await self._alone(position))

    def _refuse(self, output: str) -> None:
        error = UnexpectedStep(
            f"at index {self._call.step_id} branch {output} is recorded as the winner of a race, but the code has "
            f"{len(self._call.branches)} branches, counted from 0"
        )
        self._run.abort(Mismatch(describe(error, self._call.name)), error.message)
        raise self._run.signal()

    def _recorded(self) -> int | None:
        """The branch that has won before a crash kept the race itself from being recorded."""
        for position, branch in enumerate(self._call.branches):
            row = self._steps.recorded(branch.step_id or 0)
            if row is not None and row.status in OUTCOMES:
                return position
        return None

    async def _decided_before(self, position: int) -> Selected[Any]:
        written = [self._steps.recorded(branch.step_id or 0) is not None for branch in self._call.branches]
        try:
            value = await self._alone(position)
        except Exception:
            self._record(position, written)
            raise
        self._record(position, written)
        return self._call.won(position, value)

    async def _alone(self, position: int) -> Any:
        branch = self._call.branches[position]
        try:
            if isinstance(branch, PendingStep):
                return await self._steps.perform(branch)
            return await self._calls.perform(_durable(branch))
        except Exception as error:
            raise _as_told(branch, error)  # noqa: B904 - its cause is its own

    # -- the race

    async def _race(self) -> Selected[Any]:
        for position, branch in enumerate(self._call.branches):
            self._branches.append(Branch(self, position, branch, self._steps, self._calls))
        for each in self._branches:
            each.begin()
        tasks = [each.task for each in self._branches]
        try:
            winner = await self._winner()
            self.over = True
            if winner.held is not None:
                winner.held.seq = self.next_seq()
                self._calls.record(winner.held)
            self._record(winner.position, [each.written for each in self._branches])
        finally:
            self.over = True
            self._run.cancellations.stop({each.step_id for each in self._call.branches})
            await give_up(tasks)
        if self._run.stopping:
            raise self._run.signal()
        try:
            value = winner.task.result()
        except Exception as error:
            raise _as_told(self._call.branches[winner.position], error)  # noqa: B904 - its cause is its own
        return self._call.won(winner.position, value)

    async def _winner(self) -> Branch:
        """The first branch to have an outcome. Raises when there will be none."""
        while True:
            await self._news.wait()
            self._news.clear()
            with self._calls.busy():
                if self._run.aborted:
                    raise self._run.signal()  # it has met another code than it was recorded with
                for each in self._branches:
                    if each.ready or (each.asks and await each.take()):
                        return each
                self._look_for_ends()

    def _look_for_ends(self) -> None:
        """Raises what ended a branch without an outcome: at once when it is its own, once all have ended when it is a
        stop, as a stop may let steps in progress finish."""
        ended = [each.task for each in self._branches if each.task.done()]
        for task in ended:
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, ControlSignal):
                raise error
        if len(ended) == len(self._branches):
            raise self._run.signal() if self._run.stopping else asyncio.CancelledError

    def _record(self, position: int, written: Sequence[bool]) -> None:
        """Write who won, and that the others are over."""
        self._calls.record(
            StepWrite(
                self._call.step_id or 0,
                self.next_seq(),
                CallName.SELECT,
                StepStatus.SUCCEEDED,
                NO_INPUT,
                output=str(position),
            )
        )
        for loser, branch in enumerate(self._call.branches):
            if loser != position and written[loser]:
                self._calls.record(StepWrite(branch.step_id or 0, self.next_seq(), branch.name, StepStatus.DROPPED))


class Branch:
    """One branch of a race, which runs in a task of its own. It is its own log: see `StepLog`."""

    def __init__(self, race: Race, position: int, call: PendingCall[Any], steps: Steps, calls: Calls) -> None:
        self.position = position
        self.task: asyncio.Task[Any]
        self.held: StepWrite | None = None
        """Its outcome, which is written if it wins."""
        self.done = False
        """Whether a call of it with an effect outside was done: its row says so already."""
        self.written = False
        """Whether there is a row of it."""
        self._race = race
        self._call = call
        self._steps = steps
        self._calls = calls
        self._log = calls.log
        self._turn: asyncio.Future[None] | None = None
        self._answered: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Have it run."""
        call = self._call
        self.written = self._steps.recorded(call.step_id or 0) is not None
        if isinstance(call, PendingStep):
            coroutine = self._steps.through(cast(StepLog, self)).perform(call)
        else:
            coroutine = BranchCalls(self._calls, self._steps, cast(StepLog, self)).perform(_durable(call))
        self.task = asyncio.create_task(coroutine, name=f"branch {self.position} of a select: {call.name}")
        self.task.add_done_callback(lambda _: self._race.tell())

    @property
    def ready(self) -> bool:
        """Whether it has an outcome."""
        if self.held is not None:
            return self.task.done()
        if not self.task.done() or self.task.cancelled():
            return False
        error = self.task.exception()
        return error is None or (self.done and isinstance(error, Exception))

    @property
    def asks(self) -> bool:
        """Whether there is a message that it would take."""
        return self._turn is not None and not self._turn.done()

    async def take(self) -> bool:
        """It may take its message: whether it did, as another receive of the run may have been quicker."""
        assert self._turn is not None
        self._answered = asyncio.get_running_loop().create_future()
        self._turn.set_result(None)
        await asyncio.wait({self._answered, self.task}, return_when=asyncio.FIRST_COMPLETED)
        if not self.ready:
            self._race.tell()  # whatever became of it is looked at once more
        return self.ready

    # -- its log

    async def start(self, write: StepWrite) -> OwnedFlags:
        """See `StepLog.start`."""
        self._write(write)
        return await self._log.start(write)

    def record(self, write: StepWrite) -> None:
        """See `StepLog.record`; an outcome is held back."""
        if write.status.final:
            self._check()
            self.held = write
        else:
            self._write(write)
            self._log.record(write)

    async def call(self, call: OwnCall) -> CallAnswer:
        """See `StepLog.call`; a receive only looks until it has won."""
        self._check()
        if not isinstance(call, Receive):
            self.written = True
            answer = await self._log.call(call)
            self.done = self.done or (answer.done and call.step.index == self._call.step_id)
            return answer
        found = await self._log.look_at_inbox(call.topic)
        if not found.there and call.otherwise is not Otherwise.NONE:
            if call.otherwise is Otherwise.WAITING:
                self.record(replace(call.step, status=StepStatus.WAITING))
            return CallAnswer(OwnedFlags(None, False, found.wake_seq), done=False)
        self._turn = asyncio.get_running_loop().create_future()
        self._race.tell()
        await self._turn
        self._check()
        try:
            answer = await self._log.call(replace(call, step=replace(call.step, seq=self._race.next_seq())))
            self.done = answer.done
            return answer
        finally:
            if self._answered is not None and not self._answered.done():
                self._answered.set_result(None)

    def __getattr__(self, name: str) -> Any:
        """All else is as of the run's log."""
        return getattr(self._log, name)

    def _write(self, write: StepWrite) -> None:
        """A write that is no outcome goes out, with the run's next number."""
        self._check()
        write.seq = self._race.next_seq()
        self.written = True

    def _check(self) -> None:
        """What a loser still does when it is told is not written."""
        if self._race.over:
            raise asyncio.CancelledError


class BranchCalls(Calls):
    """The durable calls of a claim, written through a branch's log. Waits and questions are those of all."""

    def __init__(self, calls: Calls, steps: Steps, log: StepLog) -> None:
        super().__init__(calls.run, steps, log)
        self._all = calls
        self.listening = calls.listening

    async def wait(self, wait: Wait) -> None:
        """See `Calls.wait`."""
        await self._all.wait(wait)

    async def outcome_of(self, run_id: str) -> tuple[RunOutcome | None, int]:
        """See `Calls.outcome_of`."""
        return await self._all.outcome_of(run_id)


def _durable(call: PendingCall[Any]) -> DurableCall[Any]:
    assert isinstance(call, DurableCall)  # `build_select` takes no others
    return call


def _as_told(branch: PendingCall[Any], error: Exception) -> Exception:
    """The failure of a branch as whoever built it wants to see it."""
    made = branch.failure(error)
    if made is not error:
        made.__cause__ = error
    return made
