"""The journal: the only way by which a run's steps and its ending become durable.

It gathers what all runs want written in one turn of the loop and writes it as one statement on a few connections.
Each run always uses the same connection, one statement at a time (rule R14). Called by `runner` and, through the
`StepLog` it implements, by the engine.

Promises: `start` returns only when the step and everything before it is committed; a recorded outcome is written
with the next start, with the ending, or alone after `HOLD_SECONDS`; nothing is given up while the lease may hold, and
sending again is harmless (rules R1 to R3); ownership lost is told once; data that Postgres refuses fails its own run
and no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NoReturn

from perdure.engine.failures import describe
from perdure.errors import EncodingFailed, OwnershipLost
from perdure.model.calls import CallAnswer, EventValue, InboxLook, Outcomes, OwnCall, PlainSend, Statuses, is_plain
from perdure.model.listing import Question
from perdure.model.management import Verb
from perdure.model.outcome import Ending, ErrorRecord, Failed
from perdure.model.rows import ClaimedRun, OwnedFlags, StepWrite
from perdure.model.states import RunStatus, StepStatus
from perdure.model.streams import StreamLook
from perdure.store import calls, clients, listing, looks, plain, streams
from perdure.store.calls import RunCalls
from perdure.store.clients import ExistingRun, Holder
from perdure.store.debounce import Debounce, debounce
from perdure.store.journal import DEFAULT_BACKOFF, Backoff
from perdure.store.management import Done
from perdure.store.transaction import Claim
from perdure.store.undo import Plan
from perdure.telemetry import names
from perdure.telemetry.prometheus import Metrics
from perdure.worker.batch import Asked, Entry, Observer, Settled, give_up, stops
from perdure.worker.lane import Lane
from perdure.worker.lease import LocalLease
from perdure.worker.link import Link
from perdure.worker.managing import Managing
from perdure.worker.meters import Meters
from perdure.worker.outbox import Outbox
from perdure.worker.wakes import Wakes

HOLD_SECONDS = 0.002
"""How long a finish waits for the next start to travel with: a body needs less between two steps."""

MAX_PENDING_BYTES = 64 * 1024 * 1024
"""Bytes waiting to be written before new steps are held back: an eighth of a small pod's memory."""

MAX_PENDING_ROWS = 20_000
"""Rows waiting to be written before new steps are held back: several seconds of a healthy database."""


class RunJournal:
    """Writes of one claim of one run: the engine's `StepLog`, and the ending."""

    def __init__(self, journal: Journal, run: ClaimedRun, observer: Observer) -> None:
        self.run = run
        self.run_id = run.id
        self.fence = run.fence
        self.observer = observer
        self.lost = False
        self.refused: ErrorRecord | None = None
        self.progress = False
        """Whether anything final was recorded in this claim."""
        self._journal = journal
        self._outbox = journal.outbox_of(run.id)
        self._closed = False
        self._started_at: dict[int, float] = {}

    def start(self, write: StepWrite) -> Awaitable[OwnedFlags]:
        """See `StepLog.start`."""
        if self._journal.full and not self.lost:
            return self._start_later(write)
        if self.lost or self._closed or self.refused is not None:
            self._refuse()
        answer: asyncio.Future[OwnedFlags] = self._journal.loop.create_future()
        self._outbox.add_step(self, write, due=0.0, waiter=answer)
        return answer

    async def _start_later(self, write: StepWrite) -> OwnedFlags:
        while self._journal.full and not self.lost:
            await self._journal.room()
        return await self.start(write)

    def record(self, write: StepWrite) -> None:
        """See `StepLog.record`. Dropped when the run is no longer ours."""
        if self.lost or self._closed or self.refused is not None:
            return
        self.progress = self.progress or write.status.final
        self._outbox.add_step(self, write, due=time.monotonic() + HOLD_SECONDS, waiter=None)
        self._measure(write)

    async def call(self, call: OwnCall) -> CallAnswer:
        """See `StepLog.call`. Not held back when much is pending: the numbers of calls must rise as they are sent."""
        if self.lost or self._closed or self.refused is not None:
            self._refuse()
        answer: asyncio.Future[CallAnswer] = asyncio.get_running_loop().create_future()
        self._outbox.add_call(self, Asked(call, answer))
        return await answer

    async def look_at_runs(self, ids: Sequence[str], *, ended: bool) -> Outcomes:
        """See `StepLog.look_at_runs`."""
        return await self._outside.ask(calls.look_at_runs, self.run_id, ids, ended=ended)

    async def statuses_of(self, ids: Sequence[str]) -> Statuses:
        """See `StepLog.statuses_of`."""
        return await self._outside.ask(calls.statuses_of, self.run_id, ids)

    async def ask_for_news(self, ids: Sequence[str]) -> None:
        """See `StepLog.ask_for_news`."""
        await self._outside.ask(calls.ask_for_news, ids)

    async def look_at_event(self, setter: str, name: str) -> EventValue:
        """See `StepLog.look_at_event`."""
        return await self._outside.ask(calls.look_at_event, self.run_id, setter, name)

    async def look_at_stream(self, writer: str, key: str, offset: int) -> StreamLook:
        """See `StepLog.look_at_stream`."""
        return await self._outside.ask(streams.look, self.run_id, writer, key, offset)

    async def look_at_inbox(self, topic: str) -> InboxLook:
        """See `StepLog.look_at_inbox`."""
        return await self._outside.ask(looks.inbox, self.run_id, topic)

    async def clock(self) -> datetime:
        """See `StepLog.clock`."""
        return await self._outside.ask(looks.clock)

    async def existing(self, run_id: str) -> ExistingRun | None:
        """See `StepLog.existing`."""
        return (await self._outside.ask(clients.existing, [run_id])).get(run_id)

    async def holder(self, queue: str | None, deduplication_id: str) -> Holder | None:
        """See `StepLog.holder`."""
        return await self._outside.ask(clients.holder_for_child, self.run_id, queue, deduplication_id)

    async def rerun(self, run_id: str, token: int) -> None:
        """See `StepLog.rerun`."""
        if (where := await self._outside.ask(clients.rerun, run_id, token)) is not None:
            self._outside.ready(*where)

    async def debounce(self, asked: Debounce) -> str:
        """See `StepLog.debounce`."""
        run = replace(asked.run, pool=asked.run.pool or self._outside.pool)
        return await self._outside.ask(debounce, self.run.namespace, replace(asked, run=run))

    async def plainly(self, call: PlainSend) -> bool:
        """See `StepLog.plainly`."""
        if not self.admitted():
            raise OwnershipLost
        done = await self._outside.ask(plain.send, Claim(self.run_id, self._journal.worker_id, self.fence), call)
        if done is None:
            self.not_owned([])
            raise OwnershipLost
        if done:
            self._outside.sent(call)
        return done

    async def manage(self, run_id: str, verb: Verb, write: StepWrite | None) -> Done:
        """See `StepLog.manage`."""
        return await self._managing.carry_out(self, run_id, verb, write)

    async def promise(self, index: int, name: str, text: str) -> OwnedFlags:
        """See `StepLog.promise`."""
        return await self._managing.promise(self, index, name, text)

    async def undo(self, seq: int) -> Plan:
        """See `StepLog.undo`."""
        plan = await self._managing.undo(self, seq)
        if self.observer.committed is not None:
            self.observer.committed(None)
        return plan

    async def inspect(self, question: Question) -> Any:
        """See `StepLog.inspect`."""
        return await self._outside.ask(listing.answer, question)

    async def woken(self, seen: int) -> None:
        """See `StepLog.woken`."""
        await self._outside.woken(self.run_id, seen)

    @property
    def _managing(self) -> Managing:
        assert self._journal.managing is not None, "this journal is alone"
        return self._journal.managing

    @property
    def _outside(self) -> Wakes:
        assert self._journal.wakes is not None, "this journal is alone"
        return self._journal.wakes

    async def flush(self) -> None:
        """See `StepLog.flush` (rule R14)."""
        if self.lost or self._closed or self.refused is not None:
            self._refuse()
        answer: asyncio.Future[OwnedFlags] = asyncio.get_running_loop().create_future()
        if self._outbox.flush(self, answer):
            await answer

    def admitted(self) -> bool:
        """See `StepLog.admitted` (rule R13)."""
        return not self.lost and not self._closed and self.refused is None and self._journal.lease.holds()

    async def end(self, ending: Ending) -> Settled:
        """Write the ending, with everything of the run that is still pending. Nothing is recorded after it.

        Durable on return. Raises OwnershipLost when the run has another owner.
        """
        if self.lost:
            raise OwnershipLost
        self._closed = True
        answer: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._outbox.add_ending(self, ending, waiter=answer)
        return await answer

    # -- answers, called by the lane

    def acknowledged(self, entry: Entry, flags: OwnedFlags, ended: RunStatus | None) -> None:
        """The entry is committed."""
        if entry.starts:
            now = time.monotonic()
            for write in entry.steps.values():
                if write.status is StepStatus.RUNNING:
                    self._started_at[write.index] = now
        for waiter in entry.starts:
            if not waiter.done():
                waiter.set_result(flags)
        if entry.settled is not None and not entry.settled.done():
            entry.settled.set_result(Settled(ended, flags))
        if entry.ending is not None:
            for asked in entry.calls:
                if not asked.answer.done():
                    asked.answer.set_exception(OwnershipLost())
        if self.observer.committed is not None:
            self.observer.committed(ended)
        if entry.ending is None and stops(flags):
            self.observer.flags(flags)

    def committed_elsewhere(self, write: StepWrite, flags: OwnedFlags) -> None:
        """A step of the run was committed with the SQL of its own body."""
        self._measure(write)
        if self.observer.committed is not None:
            self.observer.committed(None)
        if stops(flags):
            self.observer.flags(flags)

    def asked(self, entry: Entry) -> RunCalls:
        """The entry's calls, for the store."""
        return RunCalls(self.run_id, self.fence, tuple(each.call for each in entry.calls), again=entry.uncertain)

    def called(self, entry: Entry, answers: Sequence[CallAnswer]) -> None:
        """The entry's calls were carried out."""
        for asked, answer in zip(entry.calls, answers, strict=True):
            if not asked.answer.done():
                asked.answer.set_result(answer)
            if answer.done:
                if not is_plain(asked.call):
                    self.progress = True
                    self._measure(asked.call.step)
                if self._journal.wakes is not None:
                    self._journal.wakes.effect(self.run, asked.call)
        flags = answers[-1].flags
        for waiter in entry.starts:
            if not waiter.done():
                waiter.set_result(flags)
        if self.observer.committed is not None:
            self.observer.committed(None)
        if stops(flags):
            self.observer.flags(flags)

    def not_owned(self, entries: Iterable[Entry], *, tell: bool = True) -> None:
        """The fence moved on. These entries are dropped, later calls raise; the observer hears it once."""
        first, self.lost = not self.lost, True
        for entry in entries:
            give_up(entry, OwnershipLost)
        if first and tell:
            self.observer.lost()

    def bad_data(self, entry: Entry, message: str) -> None:
        """Postgres refuses what the entry holds: the run fails with that message instead."""
        repeated = self.refused is not None and entry.ending == Failed(self.refused)
        if repeated:
            # Our own sentence is refused as well: leave the row to whoever claims it next.
            self.not_owned([entry])
            return
        if self.refused is None:
            self.refused = describe(EncodingFailed(message))
        if entry.ending is not None:
            self._outbox.add_ending(self, Failed(self.refused), waiter=entry.settled)
            return
        give_up(entry, lambda: EncodingFailed(message))
        self.observer.refused()

    def _refuse(self) -> NoReturn:
        if self.refused is not None and not self.lost:
            raise EncodingFailed(self.refused.message)
        raise OwnershipLost

    def _measure(self, write: StepWrite) -> None:
        started = self._started_at.pop(write.index, None)
        seconds = None if started is None else time.monotonic() - started
        self._journal.meters.note(self.run.workflow, write.name, write.status, seconds)


class Journal:
    """The journal of one registration. `links` are its own connections."""

    def __init__(
        self,
        worker_id: str,
        links: Sequence[Link],
        lease: LocalLease,
        metrics: Metrics,
        backoff: Backoff = DEFAULT_BACKOFF,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.worker_id = worker_id
        self.lease = lease
        self.metrics = metrics
        self.backoff = backoff
        """When and how often runs are tried again that do not say it themselves."""
        self._lanes = [Lane(self, worker_id, link, number) for number, link in enumerate(links)]
        self._rows = 0
        self._bytes = 0
        self.managing: Managing | None = None
        """Does with other runs what runs here want; set before the first write."""
        self.wakes: Wakes | None = None
        """Wakes other runs for what runs here brought about, and runs here for what others did; set before the first
        write."""
        self.ended: Callable[[str], None] = lambda _: None
        """Hears of runs that have ended for good and that somebody waits for; set before the first write."""
        self.meters = Meters(metrics)
        self._room = asyncio.Event()
        self.full = False
        """Whether new steps have to wait for what is pending."""
        metrics.read_from(names.JOURNAL_PENDING_ROWS, lambda: float(self._rows))

    def open(self, run: ClaimedRun, observer: Observer) -> RunJournal:
        """The journal of one claimed run."""
        return RunJournal(self, run, observer)

    def start(self) -> None:
        """Begin to write."""
        for lane in self._lanes:
            lane.start()

    async def stop(self) -> None:
        """End. What is pending is dropped and its waiters hear OwnershipLost: flush by ending every run before."""
        self.abandon()
        for lane in self._lanes:
            await lane.stop()

    def abandon(self) -> None:
        """The registration is lost: drop everything, write nothing more. Every run with something pending hears it."""
        for lane in self._lanes:
            lane.outbox.abandon()

    # -- back-pressure

    async def room(self) -> None:
        """Wait until there is room."""
        await self._room.wait()

    def account(self, rows: int, size: int) -> None:
        """Called by the outboxes: so much more (or less) is pending."""
        self._rows += rows
        self._bytes += size
        if self.full:
            if self._rows <= MAX_PENDING_ROWS // 2 and self._bytes <= MAX_PENDING_BYTES // 2:
                self.full = False
                self._room.set()
        elif self._rows > MAX_PENDING_ROWS or self._bytes > MAX_PENDING_BYTES:
            self.full = True
            self._room.clear()

    def outbox_of(self, run_id: str) -> Outbox:
        """Always the same connection for one run (rule R14)."""
        return self._lanes[hash(run_id) % len(self._lanes)].outbox
