"""One claimed run in this process: executes the body, writes its ending, tells who has to know.

Created by `session` for each `Start` of the machine. Keeps invariant 3 at this end: once the fence has moved, the
body is stopped and nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import assert_never

from perdure.engine.execute import DEADLINE, Execution
from perdure.engine.registry import Registry
from perdure.errors import (
    CancelRequested,
    CompensationFailed,
    ControlSignal,
    OwnershipLost,
    ReleaseRequested,
    WorkflowConflict,
)
from perdure.model.outcome import Cancelled, Ending, ErrorRecord, Failed, Lost, Mismatch, Parked, Released
from perdure.model.rows import ClaimedRun, OwnedFlags, RecordedStep
from perdure.model.states import CancelMode, RunStatus
from perdure.store import claims as store
from perdure.store.usersql import SqlPool
from perdure.telemetry import names, settles
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.telemetry.settles import Settle
from perdure.worker.batch import Observer
from perdure.worker.journal import Journal
from perdure.worker.ledger import RunLedger
from perdure.worker.link import Link
from perdure.worker.machine import Machine, RunKey, Stop
from perdure.worker.wakes import Wakes

log = get_logger(__name__)

HISTORY_PAGE = 1000
"""Recorded steps per page beyond those that come with the claim."""

FORCED = "the time to drain was over"

_OUTCOMES = {
    RunStatus.SUCCEEDED: "succeeded",
    RunStatus.FAILED: "failed",
    RunStatus.CANCELLED: "cancelled",
    RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED: "recovery_attempts_exceeded",
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all runs of one registration share."""

    registry: Registry
    journal: Journal
    machine: Machine
    threads: Executor
    link: Link
    """For pages of history."""
    worker_id: str
    sql: SqlPool
    """For the SQL of steps' bodies."""
    metrics: Metrics
    wakes: Wakes
    ready: Callable[[], None]
    """A run of this pool became claimable again."""
    left: Callable[[RunKey], None]
    """The run is no longer held."""
    settled: Callable[[ClaimedRun, RunStatus, Ending], None]
    """The run is no longer this worker's: it has ended, or waits, or went to the queue."""
    changed: Callable[[ClaimedRun, bool], None] | None
    """Something of a run with a resource was committed; True when this worker will write no more of it."""
    execution: Callable[..., Execution] = Execution
    """Carries out a claim; tests have one of their own."""


class RunningRun:
    """Execution, journal and ending of one claim."""

    def __init__(self, run: ClaimedRun, around: Surroundings) -> None:
        self.run = run
        self.key = RunKey(run.id, run.fence)
        self._around = around
        self._forced: asyncio.Task[None] | None = None
        self._told_lost = False
        report = around.changed if run.name is not None else None
        self._report = report
        self._journal = around.journal.open(
            run,
            Observer(
                lost=self._lost,
                refused=self._refused,
                flags=self._flags,
                committed=None if report is None else lambda ended: report(run, ended is not None),
            ),
        )
        self._execution = around.execution(
            run,
            around.registry,
            self._journal,
            threads=around.threads,
            ledger=RunLedger(around.sql, around.worker_id, self._journal),
            more_history=self._more_history if run.more_steps else None,
        )

    async def execute(self) -> None:
        """Run to the end and leave the slot. Raises nothing."""
        try:
            if self._report is not None:
                self._report(self.run, False)
            ending = await self._body()
            if self._forced is not None:
                await self._forced
            elif self._journal.lost or isinstance(ending, Lost):
                self._gone("lost")
            else:
                await self._settle(ending)
        except OwnershipLost:
            self._gone("lost")
        except Exception:
            log.exception("a run could not be ended here; the beats will give it back", run_id=self.run.id)
        finally:
            self._around.left(self.key)

    async def _body(self) -> Ending:
        try:
            ending = await self._execution.run()
        except Exception as error:
            # The engine promises not to raise: a bug, which must neither kill the worker nor spin.
            log.exception("the engine failed", run_id=self.run.id, workflow=self.run.workflow)
            return Mismatch(ErrorRecord(type=type(error).__name__, message=str(error)))
        return Failed(self._journal.refused) if self._journal.refused is not None else ending

    async def _settle(self, ending: Ending) -> None:
        self._around.machine.run_ending(self.key)
        settled = await self._journal.end(ending)
        if settled.status is None:
            # A cancel came first and beats every other end (rule R9).
            settled = await self._journal.end(Cancelled("the run was cancelled while it ended"))
        if settled.status is not None:
            self._around.settled(self.run, settled.status, ending)
            if settled.status.finished and self.run.parent_id is not None:
                self._around.wakes.ended(self.run.id, self.run.parent_id)
            self._ended(settled.status, ending)

    def _ended(self, status: RunStatus, ending: Ending) -> None:
        metrics, run = self._around.metrics, self.run
        self._tell(_settle_of(status, ending), ending)
        if status in _OUTCOMES:
            metrics.count(names.RUNS_FINISHED, run.namespace, run.workflow, _OUTCOMES[status])
            if run.undoes and status in (RunStatus.FAILED, RunStatus.CANCELLED):
                metrics.count(names.RUNS_UNDONE, run.namespace, run.workflow, _undone(ending))
        elif status is RunStatus.WAITING:
            again = bool(run.steps) and not self._journal.progress
            metrics.count(names.RUNS_GIVEN_BACK, "parked_again" if again else "parked")
        elif status is RunStatus.DELAYED:
            metrics.count(names.RUNS_GIVEN_BACK, "delayed")
        else:
            metrics.count(names.RUNS_GIVEN_BACK, "parked" if isinstance(ending, Parked) else "released")
            self._around.ready()

    def _tell(self, how: Settle, ending: Ending | None = None) -> None:
        """The one log record of this claim's end."""
        run, limit = self.run, self.run.max_run_attempts
        failed = isinstance(ending, Failed)
        settles.tell(
            how,
            worker_id=self._around.worker_id,
            run_id=run.id,
            workflow=run.workflow,
            run_attempts=run.run_attempts + failed,
            max_run_attempts=self._around.journal.backoff.run_attempts if limit is None else limit,
            fence=run.fence,
            recoveries=run.recoveries,
            **(_details(ending) if failed or how in _DETAILED else {}),
            **({"code": WorkflowConflict.code} if how is Settle.LOST else {}),
        )

    def _gone(self, reason: str) -> None:
        if reason == "lost" and not self._told_lost:
            self._told_lost = True
            self._tell(Settle.LOST)
        self._around.metrics.count(names.RUNS_GIVEN_BACK, reason)
        if self._report is not None:
            # Whatever the row says now is written once more, and then it is nobody's business here.
            self._report(self.run, True)

    # -- from outside

    def interrupt(self, why: Stop) -> None:
        """Have the body stop for this reason."""
        if why in {Stop.LOST, Stop.ABANDON}:
            # Of a lost registration the session has told already, once for all its runs.
            self._journal.not_owned([], tell=why is Stop.LOST)
        self._execution.interrupt(_signal(why))

    def force(self) -> None:
        """Release the run although its body goes on; what it does from here on is dropped."""
        if self._forced is None:
            self._around.machine.run_ending(self.key)
            self._forced = asyncio.create_task(self._force())

    async def _force(self) -> None:
        ending = asyncio.ensure_future(self._journal.end(Released(FORCED)))
        self._execution.interrupt(OwnershipLost())
        try:
            await ending
        except OwnershipLost:
            self._gone("lost")
        else:
            self._tell(Settle.FORCED)
            self._gone("forced")
            self._around.ready()
        finally:
            # The body may be a thread that nobody can stop: the slot does not wait for it.
            self._around.left(self.key)

    # -- from the journal

    def _lost(self) -> None:
        self._told_lost = True
        self._tell(Settle.LOST)
        self._around.metrics.count(names.OWNERSHIP_LOST)
        self._execution.interrupt(OwnershipLost())

    def _refused(self) -> None:
        self._execution.interrupt(OwnershipLost())

    def _flags(self, flags: OwnedFlags) -> None:
        if flags.cancel_mode is CancelMode.IMMEDIATE:
            self._execution.interrupt(_signal(Stop.CANCEL_IMMEDIATE))
        elif flags.cancel_mode is not None:
            self._execution.interrupt(_signal(Stop.CANCEL_GRACEFUL))
        elif flags.suspended:
            self._execution.interrupt(_signal(Stop.SUSPEND))

    async def _more_history(self, after: int) -> Sequence[RecordedStep]:
        return await self._around.link.call(store.history, self.run.id, after, HISTORY_PAGE)


_BY_STATUS = {
    RunStatus.SUCCEEDED: Settle.SUCCEEDED,
    RunStatus.FAILED: Settle.FAILED,
    RunStatus.CANCELLED: Settle.CANCELLED,
    RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED: Settle.GIVEN_UP,
    RunStatus.WAITING: Settle.PARKED,
}

_DETAILED = frozenset({Settle.MISMATCHED, Settle.GIVEN_UP, Settle.PARKED, Settle.RELEASED})
"""Beside failures: ends of which more is said."""


def _undone(ending: Ending) -> str:
    """Whether all that was to be undone is."""
    half = isinstance(ending, Failed) and ending.error.code == CompensationFailed.code
    return "incomplete" if half else "complete"


def _settle_of(status: RunStatus, ending: Ending) -> Settle:
    """How the claim ended, from the status that the row has now and what was asked for."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status is RunStatus.ENQUEUED and isinstance(ending, Failed | Cancelled):
        return Settle.UNDOING
    if status is RunStatus.DELAYED:
        return Settle.MISMATCHED if isinstance(ending, Mismatch) else Settle.RETRIED
    return Settle.WOKEN if isinstance(ending, Parked) else Settle.RELEASED


def _details(ending: Ending | None) -> dict[str, object]:
    """Never the message of an error: it is the user's and may hold anything; the row and the resource have it."""
    match ending:
        case Failed(error) | Mismatch(error):
            return {"error_type": error.type, "code": error.code, "step": error.step}
        case Parked(waiting_for, wake_in):
            return {"waits_for": waiting_for.kind, "wake_in_seconds": wake_in}
        case Released(reason):
            return {"reason": reason}
        case _:
            return {}


def _signal(why: Stop) -> ControlSignal:
    match why:
        case Stop.CANCEL_GRACEFUL:
            return CancelRequested("the run was cancelled")
        case Stop.DEADLINE:
            return CancelRequested(DEADLINE, immediate=True)
        case Stop.CANCEL_IMMEDIATE:
            return CancelRequested("the run was cancelled", immediate=True)
        case Stop.SUSPEND:
            return ReleaseRequested("the run was suspended")
        case Stop.DRAIN:
            return ReleaseRequested("the worker stops")
        case Stop.LOST | Stop.ABANDON:
            return OwnershipLost("the run has another owner")
        case _:
            assert_never(why)
