"""A claim as tests have it carried out: with the faults that were ordered, and replayed as often as they want.

Used by the worker of an `Environment` in the place of the engine's own. Everything else is as in production, down to
the statements; only that every wait gives its slot back at once, so that no time passes in memory, where it could not
be skipped, and that a run which does not fit its record fails at once, where in production it waits for a worker of
the code that has recorded it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from copy import copy
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

from perdure.engine.calls.kinds import DurableCall
from perdure.engine.context import Scope, current_scope
from perdure.engine.execute import Execution
from perdure.engine.log import StepLog
from perdure.engine.pending import PendingCall, PendingStep
from perdure.engine.registry import Registry, StepDefinition
from perdure.engine.select import PendingSelect, Selected
from perdure.errors import OwnershipLost, ReleaseRequested
from perdure.model.calls import CallAnswer, OwnCall
from perdure.model.management import Verb
from perdure.model.outcome import Ending, Failed, Mismatch
from perdure.model.rows import ClaimedRun, OwnedFlags, StepWrite
from perdure.model.states import StepStatus
from perdure.store.management import Done
from perdure.testing.faults import At, Faults

R = TypeVar("R")

CRASHED = "the test had the worker crash"

ENDED = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.RETRYING})
"""What is written when an attempt has ended."""


class Bench(Protocol):
    """The environment, as executions see it."""

    faults: Faults
    always_replay: bool

    @property
    def skipped(self) -> timedelta:
        """By how much time is ahead of the clocks."""
        ...

    def crash_now(self) -> None:
        """The worker dies: nothing more of what it does is written."""
        ...


class WatchedExecution(Execution):
    """See the module."""

    def __init__(self, bench: Bench, run: ClaimedRun, registry: Registry, log: StepLog, **parts: Any) -> None:
        self._bench = bench
        self._watched = WatchedLog(bench, run.id, log)
        super().__init__(run, registry, cast(StepLog, self._watched), park_after=0.0, **parts)

    @property
    def skipped(self) -> timedelta:
        """By how much the test has the time ahead of the clocks."""
        return self._bench.skipped

    async def run(self) -> Ending:
        """See `Execution.run`. A run that does not fit its record fails."""
        ending = await super().run()
        await self._watched.crashed()
        return Failed(ending.error) if isinstance(ending, Mismatch) else ending

    def place(
        self,
        scope: Scope,
        definition: StepDefinition,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        index: int,
        text: str,
    ) -> PendingStep[Any]:
        """See `Execution.place`. The body fails where the test wants it."""
        return super().place(scope, self._failing(definition), args, kwargs, index, text)

    def perform(self, call: PendingStep[Any]) -> Coroutine[Any, Any, Any]:
        """See `Execution.perform`."""
        return self._then_again(super().perform, call)

    def perform_call(self, call: DurableCall[R]) -> Coroutine[Any, Any, R]:
        """See `Execution.perform_call`."""
        return self._then_again(super().perform_call, call)

    def perform_select(self, call: PendingSelect) -> Coroutine[Any, Any, Selected[Any]]:
        """See `Execution.perform_select`."""
        return self._then_again(super().perform_select, call)

    async def _then_again(self, perform: Callable[[Any], Coroutine[Any, Any, R]], call: PendingCall[Any]) -> R:
        """Do the call; what has recorded its outcome just now is given to the body by a replay only."""
        try:
            result = await perform(call)
        except Exception:
            await self._suspend(call)
            raise
        await self._suspend(call)
        return result

    async def _suspend(self, call: PendingCall[Any]) -> None:
        await self._watched.crashed()
        if self._bench.always_replay and call.step_id in self._watched.written:
            self.interrupt(ReleaseRequested("the test has every call replayed"))
            raise self.signal()

    def _failing(self, definition: StepDefinition) -> StepDefinition:
        """The step, whose body raises what was ordered instead of running."""
        _ = definition.result  # of the function that has the annotations
        twin = copy(definition)
        function, name = definition.function, definition.name
        in_transaction = definition.transaction is not None

        if definition.is_async:

            @wraps(function)
            async def body(*args: Any, **kwargs: Any) -> Any:
                self._fail(name)
                value = await function(*args, **kwargs)
                if in_transaction:
                    self._watched.transaction_ends(name, _attempt())
                return value

            twin.function = body
        else:

            @wraps(function)
            def plain(*args: Any, **kwargs: Any) -> Any:
                self._fail(name)
                return function(*args, **kwargs)

            twin.function = plain
        return twin

    def _fail(self, name: str) -> None:
        error = self._bench.faults.failure(self.claimed.id, name, _attempt())
        if error is not None:
            raise error


class WatchedLog:
    """What is recorded of one claim: see `StepLog`. Dies where the test wants it."""

    def __init__(self, bench: Bench, run_id: str, log: StepLog) -> None:
        self._bench = bench
        self._run_id = run_id
        self._log = log
        self._dying: asyncio.Task[None] | None = None
        self._transactions: set[int] = set()
        self.written: set[int | None] = set()
        """Indices whose outcome was recorded in this claim."""

    def __getattr__(self, name: str) -> Any:
        """All else is as of the run's log."""
        return getattr(self._log, name)

    async def clock(self) -> datetime:
        """See `StepLog.clock`. The time of the test."""
        return await self._log.clock() + self._bench.skipped

    def start(self, write: StepWrite) -> Awaitable[OwnedFlags]:
        """See `StepLog.start`."""
        return self._start(write)

    async def _start(self, write: StepWrite) -> OwnedFlags:
        await self.crashed()
        attempt = write.attempts + 1
        if self._ordered(write.name, attempt, At.BEFORE):
            await self._die()
        flags = await self._log.start(write)
        if self._ordered(write.name, attempt, At.STARTED):
            await self._die()
        return flags

    def record(self, write: StepWrite) -> None:
        """See `StepLog.record`. After an ordered crash nothing is recorded."""
        if self._dying is not None:
            return
        name, attempt = write.name, max(1, write.attempts + (write.status is StepStatus.SUCCEEDED))
        # What is no end of an attempt is a durable call that begins to wait.
        without, after = (At.DONE, At.COMMITTED) if write.status in ENDED else (At.BEFORE, At.STARTED)
        dies = self._ordered(name, attempt, without)
        if not dies:
            self._log.record(write)
            if write.status.final:
                self.written.add(write.index)
            dies = self._ordered(name, attempt, after)
        if dies:
            self._dying = asyncio.create_task(self._die_once_written())

    async def call(self, call: OwnCall) -> CallAnswer:
        """See `StepLog.call`. What the call does and its record are one: between both nothing can crash."""
        await self.crashed()
        name = str(call.step.name)
        if self._ordered(name, 1, At.BEFORE):
            await self._die()
        answer = await self._log.call(call)
        if answer.done:
            self.written.add(call.step.index)
            if self._ordered(name, 1, At.STARTED, At.DONE, At.COMMITTED):
                await self._die()
        return answer

    async def manage(self, run_id: str, verb: Verb, write: StepWrite | None) -> Done:
        """See `StepLog.manage`."""
        await self.crashed()
        if write is not None and self._ordered(write.name, 1, At.BEFORE):
            await self._die()
        done = await self._log.manage(run_id, verb, write)
        if write is not None:
            self.written.add(write.index)
            if self._ordered(write.name, 1, At.STARTED, At.DONE, At.COMMITTED):
                await self._die()
        return done

    def transaction_ends(self, name: str, attempt: int) -> None:
        """The body of a transaction has ended; it commits when this returns."""
        scope = current_scope.get()
        if self._ordered(name, attempt, At.DONE):
            self._bench.crash_now()
            raise OwnershipLost(CRASHED)
        if scope is not None and scope.index is not None:
            self.written.add(scope.index)
            if self._ordered(name, attempt, At.COMMITTED):
                self._transactions.add(scope.index)

    async def crashed(self) -> None:
        """Let the worker die first, if it is about to. Raises `OwnershipLost` then."""
        if self._transactions:
            self._transactions.clear()
            await self._die()
        if self._dying is not None:
            await asyncio.shield(self._dying)
            raise OwnershipLost(CRASHED)

    def _ordered(self, name: str, attempt: int, *at: At) -> bool:
        return self._bench.faults.crash(self._run_id, name, attempt, *at)

    async def _die(self) -> None:
        await self._die_once_written()
        raise OwnershipLost(CRASHED)

    async def _die_once_written(self) -> None:
        """What was recorded up to here is durable: so that a test knows what there is after the crash."""
        await self._log.flush()
        self._bench.crash_now()


def _attempt() -> int:
    scope = current_scope.get()
    return 1 if scope is None else scope.attempt
