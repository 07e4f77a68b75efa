"""Carries out the step calls of one claim: replay, durable start, body, outcome, retry.

Used by `Execution` alone, which owns the body and says when it stops. Keeps invariants 1, 2 and 5: a body runs only
where nothing final is recorded, after its start is durable and the lease was looked at once more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from concurrent.futures import Executor
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perdure.engine.backoff import Backoffs, retry
from perdure.engine.bodies import Limit, ThreadsGone, not_its_own, run_body, run_in_thread
from perdure.engine.context import Scope, current_scope
from perdure.engine.decide import Decision, Diverged, GiveUp, Raise, RetryIn, Return, Run, Wait, after_failure, decide
from perdure.engine.encoding import PLAIN
from perdure.engine.failures import NONE, Failures, describe, is_outage, rebuild
from perdure.engine.history import History
from perdure.engine.log import StepLog
from perdure.engine.pending import PendingCall, PendingStep
from perdure.engine.promises import keep_promise
from perdure.engine.registry import StepOptions
from perdure.engine.stored import marked
from perdure.engine.transaction import Connection, commit_with_step
from perdure.errors import (
    CancelRequested,
    ControlSignal,
    DecodingFailed,
    EncodingFailed,
    OwnershipLost,
    ReleaseRequested,
    TransactionMisused,
)
from perdure.model.outcome import ErrorRecord, Mismatch
from perdure.model.rows import MAX_WRITES, OwnedFlags, RecordedStep, StepWrite
from perdure.model.states import CancelMode, StepStatus

if TYPE_CHECKING:
    from perdure.engine.execute import Execution

logger = logging.getLogger(__name__)

NEVER_AGAIN = (EncodingFailed, DecodingFailed, TransactionMisused)
"""Failures that another attempt cannot help, or could only make worse."""

OUTAGE_SECONDS = 5.0
"""Pause of a step that has met an outage of our own database: whoever says so has tried for longer than that."""


class Steps:
    """The step calls of one claim. `in_progress` are the tasks in which a start is written or a body runs."""

    def __init__(self, run: Execution, history: History, log: StepLog, threads: Executor, park_after: float) -> None:
        self._run = run
        self._history = history
        self._log = log
        self._threads = threads
        self._seq = 0
        self.in_progress: set[asyncio.Task[Any]] = set()
        self._preemptible: dict[asyncio.Task[Any], Scope] = {}
        self._preempted: set[asyncio.Task[Any]] = set()
        self.backoffs = Backoffs(park_after, lambda: bool(self.in_progress), run.park)

    async def perform(self, call: PendingStep[Any]) -> Any:
        """The recorded outcome of the call if there is one, else that of running the step. Raises the step's error."""
        try:
            if self._run.stopping:
                await self._run.refuse()
            failures = NONE
            assert call.step_id is not None
            if not self._history.knows(call.step_id):
                await self._read_history(call.step_id)
            recorded = self._history.take(call.step_id)
            if recorded is not None:
                if marked(recorded):
                    recorded = await self._run.values.row(recorded)
                match decide(recorded, call.name, call.input, call.args):
                    case Return(output):
                        return self._read_back(call, output)
                    case Raise(error, failures):
                        raise rebuild(error, self._run.values.legible(failures), call.name)
                    case Diverged(error):
                        self._run.abort(Mismatch(error), error.message)
                        raise self._run.signal()
                    case Wait(seconds, failures):
                        await self._wait(call, failures, seconds)
                    case Run(failures):
                        pass
            return await self._until_outcome(call, call.step_id, failures, fresh=recorded is None)
        except asyncio.CancelledError:
            if self._run.stopping:
                raise self._run.signal() from None
            self._run.determinism.dropped(call)
            raise

    def through(self, log: StepLog) -> Steps:
        """The same steps, written through another log, which gives the writes their numbers."""
        other = copy(self)
        other._log = log
        return other

    def recorded(self, index: int) -> RecordedStep | None:
        """What is recorded at an index below one that was looked up, and that no call has met yet."""
        return self._history.recorded(index)

    async def look_up(self, call: PendingCall[Any]) -> tuple[RecordedStep | None, Decision]:
        """What is recorded at the index of a call, and what to do; never `Diverged`, which ends the body here."""
        if self._run.stopping:
            await self._run.refuse()
        assert call.step_id is not None
        if not self._history.knows(call.step_id):
            await self._read_history(call.step_id)
        recorded = self._history.take(call.step_id)
        if recorded is not None and marked(recorded):
            recorded = await self._run.values.row(recorded)
        decision = decide(recorded, call.name, call.input)
        if isinstance(decision, Diverged):
            self._run.abort(Mismatch(decision.error), decision.error.message)
            raise self._run.signal()
        if not isinstance(decision, Return | Raise):
            self._bound()
        return recorded, decision

    async def recorded_from(self, index: int) -> bool:
        """Whether anything was recorded at this index or behind it when this claim began."""
        if not self._history.knows(index):
            await self._read_history(index)
        return self._history.reaches(index)

    def _bound(self) -> None:
        """Raises the signal when this claim has written as much as one may."""
        if self._seq >= MAX_WRITES:
            self._run.interrupt(ReleaseRequested(f"{self._seq} writes under one claim: the run goes on under another"))
            raise self._run.signal()

    def next_seq(self) -> int:
        """The number of the run's next write."""
        self._seq += 1
        return self._seq

    async def _until_outcome(self, call: PendingStep[Any], index: int, failures: Failures, *, fresh: bool) -> Any:
        """Attempts, until one succeeds or none is left. `fresh`: nothing is recorded at this index."""
        text: str | None = call.input
        task = asyncio.current_task()
        assert task is not None
        self._bound()
        while True:
            self.in_progress.add(task)
            self.backoffs.started()
            try:
                if self._run.encoding is not PLAIN and text is not None:
                    what = f"the arguments of step {call.name}"
                    text = await self._run.values.finish(call.stored, self._run.encoding, what)
                if self._run.promises:
                    await keep_promise(self._run, index)
                self._seq = seq = self._seq + 1
                start = StepWrite(
                    index,
                    seq,
                    call.name,
                    StepStatus.RUNNING,
                    text,
                    None,
                    None,
                    failures.count,
                    failures.to_json(),
                )
                start.fresh, fresh = fresh, False
                if call.definition.transaction is not None:
                    self._seq += 1  # of the outcome, beside which the journal writes on: see `_in_transaction`
                try:
                    flags = await self._log.start(start)
                except ControlSignal as signal:
                    self._run.interrupt(signal)
                except Exception as reason:
                    self._run.give_up(reason, f"the start of step {call.name} could not be written")
                else:
                    self._admit(flags)
                if self._run.stopping:
                    raise self._run.signal()
                error, value, output = await self._attempt(call, index, failures, task, seq + 1)
                if error is None:
                    if output is not None:
                        self._log.record(self._write(call, index, StepStatus.SUCCEEDED, failures, output=output))
                else:
                    failures, record, then = self._judge(call, failures, error)
                    self._record_failure(call, index, failures, record, then)
            finally:
                self.in_progress.discard(task)
                if not self.in_progress:
                    if self._run.stopping or self.backoffs:
                        self._run.quiet()
                elif self._preempted:
                    self._insist()
            if self._run.stopping:
                raise self._run.signal()
            if error is None:
                return value
            if isinstance(then, GiveUp):
                raise rebuild(then.error, self._run.values.legible(failures), call.name) from error
            text = None
            await self._wait(call, failures, then.seconds)

    def _admit(self, flags: OwnedFlags) -> None:
        """The start is durable: stop the run when the body must not begin after all."""
        run = self._run
        if flags.cancel_mode is not None:
            run.interrupt(CancelRequested("the run was cancelled", immediate=flags.cancel_mode is CancelMode.IMMEDIATE))
        elif flags.suspended:
            run.interrupt(ReleaseRequested("the run is suspended"))
        elif not self._log.admitted():
            run.interrupt(OwnershipLost("the lease of this worker has run out"))

    async def _attempt(
        self, call: PendingStep[Any], index: int, failures: Failures, task: asyncio.Task[Any], seq: int
    ) -> tuple[BaseException | None, Any, str | None]:
        """Run the body once: what it raised, or what the run sees as its result and how that is written (None when it
        is written already, with number `seq`)."""
        definition = call.definition
        options = definition.options
        scope = Scope(self._run, index, call.name, failures.count + 1)
        token = current_scope.set(scope)
        if options.preemptible:
            self._preemptible[task] = scope
        try:
            if definition.transaction is not None:
                return None, await self._in_transaction(call, index, failures, seq), None
            if options.timeout is not None:
                threads = None if definition.is_async else self._threads
                limit = Limit(call.name, options.timeout, scope.stop)
                value = await run_body(definition.function, call.args, call.kwargs, limit, threads)
            elif definition.is_async:
                value = await definition.function(*call.args, **call.kwargs)
            else:
                value = await run_in_thread(self._threads, definition.function, call.args, call.kwargs)
            if self._run.stopping and self._dropped(task):
                raise self._run.signal()
            output, seen = definition.result.round_trip(value, f"the result of step {call.name}", self._run.encoding)
            if self._run.encoding is not PLAIN:
                output = await self._stored(call, output)
                if self._run.stopping and self._dropped(task):
                    raise self._run.signal()
        except ThreadsGone as signal:
            self._run.interrupt(signal)
            raise self._run.signal() from None
        except BaseException as error:
            if self._run.stopping and self._dropped(task):
                raise self._run.signal() from None
            if not_its_own(error, task):
                scope.stop()
                raise
            return error, None, None
        finally:
            current_scope.reset(token)
            if options.preemptible:
                del self._preemptible[task]
            if self._run.cancellations:
                self._run.cancellations.pop(scope, None)
        return None, seen, output

    def preempt(self) -> None:
        """The run is cancelled gracefully: stop the bodies that are preemptible. Nothing of them is recorded."""
        for task, scope in self._preemptible.items():
            if task not in self._preempted:
                self._preempted.add(task)
                scope.stop()
                task.cancel()
        self._insist()

    def _insist(self) -> None:
        if self._preempted and self.in_progress <= self._preempted:
            self._run.watch_unwinding()

    def _dropped(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether nobody wants what the body in this task gives."""
        return self._run.dropping or task in self._preempted

    async def _in_transaction(self, call: PendingStep[Any], index: int, failures: Failures, seq: int) -> Any:
        """Run the body and commit its outcome with it.

        `seq` was taken together with that of the start: so whatever of the run is on its way to Postgres meanwhile has
        a higher number, and the revision of its status rises with each commit.
        """
        run, definition = self._run, call.definition
        assert run.ledger is not None, "this execution has no connections for transactions"
        assert definition.transaction is not None
        seen: Any = None

        def body(connection: Connection) -> Awaitable[Any]:
            args, seconds = (connection, *call.args), definition.options.timeout
            if seconds is None:
                return definition.function(*args, **call.kwargs)  # type: ignore[no-any-return]
            scope = current_scope.get()
            limit = Limit(call.name, seconds, lambda: None if scope is None else scope.stop())
            return run_body(definition.function, args, call.kwargs, limit, None)

        async def record(value: Any) -> StepWrite:
            nonlocal seen
            if self._dropped(asyncio.current_task()):
                raise run.signal()
            if not self._log.admitted():
                raise OwnershipLost("the lease of this worker has run out")
            output, seen = definition.result.round_trip(value, f"the result of step {call.name}", self._run.encoding)
            if self._run.encoding is not PLAIN:
                output = await self._stored(call, output)
            return self._write(call, index, StepStatus.SUCCEEDED, failures, output=output, seq=seq)

        try:
            await commit_with_step(run.ledger, definition.transaction, body, record)
        except OwnershipLost as signal:
            run.interrupt(signal)
            raise
        return seen

    async def _stored(self, call: PendingStep[Any], output: str) -> str:
        return await self._run.values.write(output, f"the result of step {call.name}")

    def _judge(
        self, call: PendingStep[Any], failures: Failures, error: BaseException
    ) -> tuple[Failures, ErrorRecord, RetryIn | GiveUp]:
        """The failures with this one, unless it is none of the step; its record; and what follows."""
        options = call.definition.options
        record = self._run.values.failure(describe(error))
        if is_outage(error):
            return failures, record, RetryIn(OUTAGE_SECONDS)
        failures = failures.plus(self._run.values.sealed(record))
        declined = isinstance(error, NEVER_AGAIN) or not _worth_retrying(options, error)
        then = after_failure(call.definition.policy, call.name, failures, record, declined=declined)
        return failures, record, then

    def _record_failure(
        self, call: PendingStep[Any], index: int, failures: Failures, record: ErrorRecord, then: RetryIn | GiveUp
    ) -> None:
        match then:
            case RetryIn(seconds):
                # Not an outcome, replay does not look at it: it tells people why the step waits.
                last = self._run.values.text_of(replace(record, attempts=()))
                write = self._write(call, index, StepStatus.RETRYING, failures, error=last, wake_in=seconds)
            case GiveUp(error):
                write = self._write(call, index, StepStatus.FAILED, failures, error=self._run.values.text_of(error))
        self._log.record(write)

    def _write(
        self,
        call: PendingStep[Any],
        index: int,
        status: StepStatus,
        failures: Failures,
        text: str | None = None,
        *,
        output: str | None = None,
        error: str | None = None,
        wake_in: float | None = None,
        seq: int | None = None,
    ) -> StepWrite:
        if seq is None:
            seq = self._seq = self._seq + 1
        return StepWrite(
            index, seq, call.name, status, text, output, error, failures.count, failures.to_json(), wake_in
        )

    def _read_back(self, call: PendingStep[Any], output: str) -> Any:
        try:
            value = call.definition.result.decode(output, f"the recorded result of step {call.name}")
        except DecodingFailed as error:
            self._run.abort(Mismatch(describe(error, call.name)), error.message)
            raise self._run.signal() from error
        return value

    async def _wait(self, call: PendingStep[Any], failures: Failures, seconds: float) -> None:
        if seconds > 0:
            await self.backoffs.wait(retry(call.name, failures.count, seconds))
        if self._run.stopping:
            raise self._run.signal()

    async def _read_history(self, index: int) -> None:
        try:
            await self._history.read_to(index)
        except ControlSignal as signal:
            self._run.interrupt(signal)
        except Exception as error:
            self._run.give_up(error, "the recorded steps could not be read")
        if self._run.stopping:
            raise self._run.signal()


def _worth_retrying(options: StepOptions, error: BaseException) -> bool:
    if options.should_retry is None:
        return True
    offered = error if isinstance(error, Exception) else rebuild(describe(error), NONE, "")
    try:
        return bool(options.should_retry(offered))
    except Exception:
        logger.exception("should_retry itself failed; the step is not tried again")
        return False
