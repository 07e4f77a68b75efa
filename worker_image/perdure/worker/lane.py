"""One connection of the journal: gathers, sends one statement at a time, deals with every way in which it can fail.

Used by `journal` only. A failed statement's entries go back in front of what was added since and are sent again with
the same sequence numbers, which is harmless (rule R3); how long and in what company depends on the error:

| error | what happens |
|---|---|
| a value cannot be stored (classes 22, 23, 54, or the client cannot encode it) | halves, until the culprit is alone |
| a lock took too long | those whose rows are locked wait, and are looked at before they are sent again |
| the statement took too long | halves |
| no connection, no answer, server stops, deadlock | all again after a pause, outcome of the first unknown |
| anything else (a schema that does not fit, a bug) | the same, and said as an error each time |
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import asyncpg

from perdure.model.outcome import Ending
from perdure.model.rows import OwnedFlags, StepWrite
from perdure.store import calls as call_store
from perdure.store import journal as store
from perdure.store.pool import is_transient
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.worker import refusals
from perdure.worker.ambiguous import ended_by_us
from perdure.worker.batch import Asked, Entry, Settled, describe, halves, hold_back, next_due, row_count, take
from perdure.worker.link import Link, error_class
from perdure.worker.service import Service

if TYPE_CHECKING:
    from perdure.worker.journal import Journal, RunJournal

log = get_logger(__name__)

GATHER_TURNS = 1
"""Turns of the loop to wait for company once something is due: a body that was just answered is back in one."""

MAX_CALLS = 300
"""Calls carried out between two statements of the journal: others wait behind them, a few milliseconds at most."""

LEASE_CHECK = 0.05
"""Seconds between looks at a lease that does not hold now (rule R13: results are not sent without it)."""

MESSAGE_LIMIT = 1000
"""Characters of Postgres' message that go into the run's error."""

Batch = dict["RunJournal", Entry]


class Lane(Service):
    """See the module. `number` only tells the lanes apart in the logs."""

    name = "journal"

    def __init__(self, journal: Journal, worker_id: str, link: Link, number: int) -> None:
        super().__init__()
        self._journal = journal
        self._worker_id = worker_id
        self._link = link
        self._number = number
        self._pending: Batch = {}
        self._flight: Batch = {}
        self._abandoned = False
        self._failures = 0
        self._not_before = 0.0
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0

    # -- what runs want written

    def add_step(
        self, owner: RunJournal, write: StepWrite, *, due: float, waiter: asyncio.Future[OwnedFlags] | None
    ) -> None:
        """Queue one write; `waiter` hears when it is durable."""
        entry = self._pending.get(owner)
        if entry is None:
            entry = self._pending[owner] = Entry(due)
        rows, size = entry.add(write)
        if waiter is not None:
            entry.starts.append(waiter)
        self._journal.account(rows, size)
        self._queued(owner, entry, due)

    def add_ending(self, owner: RunJournal, ending: Ending, *, waiter: asyncio.Future[Settled] | None) -> None:
        """Queue the ending; `waiter` hears what became of it."""
        entry = self._pending.get(owner)
        if entry is None:
            entry = self._pending[owner] = Entry(0.0)
        self._journal.account(1 if entry.ending is None else 0, 0)
        entry.ending, entry.settled = ending, waiter
        self._queued(owner, entry, 0.0)

    def add_call(self, owner: RunJournal, asked: Asked) -> None:
        """Queue a call, to be carried out when all that the run has queued before is durable."""
        entry = self._pending.get(owner)
        if entry is None:
            entry = self._pending[owner] = Entry(0.0)
        self._journal.account(1, entry.ask(asked))
        self._queued(owner, entry, 0.0)

    def flush(self, owner: RunJournal, waiter: asyncio.Future[OwnedFlags]) -> bool:
        """Hurry what the run has queued; `waiter` hears when all of it is durable. False: nothing was queued."""
        entry = self._pending.get(owner)
        if entry is not None:
            entry.starts.append(waiter)
            self._queued(owner, entry, 0.0)
            return True
        entry = self._flight.get(owner)
        if entry is not None:
            entry.starts.append(waiter)
        return entry is not None

    def abandon(self) -> None:
        """Drop everything; nothing is sent from now on."""
        self._abandoned = True
        for owner, entry in [*self._flight.items(), *self._pending.items()]:
            self._account_gone(entry)
            owner.not_owned([entry], tell=False)
        self._flight.clear()
        self._pending.clear()

    def _account_gone(self, entry: Entry) -> None:
        self._journal.account(-entry.rows, -entry.bytes)

    def _leave(self, owner: RunJournal, entry: Entry) -> None:
        """The entry was answered."""
        self._flight.pop(owner, None)
        self._account_gone(entry)

    def _stay(self, owner: RunJournal, entry: Entry) -> None:
        """What the run recorded is durable, its calls are still to be carried out."""
        rest = self._flight[owner] = entry.rest()
        self._journal.account(rest.rows, rest.bytes)

    def _queued(self, owner: RunJournal, entry: Entry, due: float) -> None:
        if self._abandoned:
            self._pending.pop(owner, None)
            self._account_gone(entry)
            owner.not_owned([entry], tell=False)
            return
        if due < entry.due and not entry.failures:
            entry.due = due
        if self._wake is not None and not self._wake.done():
            self._kick_at(max(entry.due, self._not_before))

    # -- the loop

    async def run(self) -> None:
        """Send what is due, for ever."""
        while True:
            await self._until_due()
            for _ in range(GATHER_TURNS):
                await asyncio.sleep(0)
            self._flight = take(self._pending, time.monotonic())
            if self._flight:
                try:
                    await self._send(dict(self._flight))
                except Exception as error:
                    log.exception("the journal failed and tries again", lane=self._number)
                    self._again(dict(self._flight), error)

    async def _until_due(self) -> None:
        while (due := self._next_due()) is None or due > time.monotonic():
            self._wake = asyncio.get_running_loop().create_future()
            if due is not None:
                self._kick_at(due)
            try:
                await self._wake
            finally:
                self._wake = None

    def _next_due(self) -> float | None:
        due = next_due(self._pending)
        return None if due is None else max(due, self._not_before)

    def _kick_at(self, due: float) -> None:
        """End the wait of the loop at this instant; only called while it waits."""
        delay = due - time.monotonic()
        if delay <= 0:
            self._kick()
            return
        if self._timer is None or self._timer_due > due:
            if self._timer is not None:
                self._timer.cancel()
            # Not asked of the timer: uvloop gives none for what is due within half a millisecond.
            self._timer_due = due
            self._timer = asyncio.get_running_loop().call_later(delay, self._kick)

    def _kick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # -- one statement

    async def _send(self, batch: Batch) -> None:
        """First what the runs have recorded, then their calls (rule R14)."""
        await self._lease_holds()
        doubtful = {owner: entry for owner, entry in batch.items() if entry.locked}
        if doubtful:
            free = await self._set_aside(doubtful, asyncpg.LockNotAvailableError("the row of the run is still locked"))
            batch = {owner: entry for owner, entry in batch.items() if owner in free or owner not in doubtful}
        writes = {owner: entry for owner, entry in batch.items() if entry.writes}
        if writes:
            await self._write(writes)
        calls = {owner: entry for owner, entry in self._flight.items() if owner in batch and entry.calls}
        if calls:
            await self._call(calls)

    async def _call(self, batch: Batch) -> None:
        """As many as take little time; the others are the next."""
        chosen = hold_back(batch, self._pending, MAX_CALLS)
        for owner in batch.keys() - chosen.keys():
            del self._flight[owner]
        asked = [owner.asked(entry) for owner, entry in chosen.items()]
        try:
            answers = await self._link.call(call_store.execute, self._worker_id, asked)
        except Exception as error:
            await self._failed(chosen, error)
            return
        self._failures = 0
        for owner, entry in chosen.items():
            if self._abandoned:
                return
            if owner.run_id in answers:
                self._leave(owner, entry)
                owner.called(entry, answers[owner.run_id])
            else:
                self._lost(owner, entry)

    async def _write(self, batch: Batch) -> None:
        started = time.monotonic()
        try:
            writes = [
                store.RunWrites(
                    run_id=owner.run_id,
                    fence=owner.fence,
                    steps=tuple(entry.steps.values()),
                    ending=entry.ending,
                    wake_seq=owner.run.wake_seq,
                    resent=entry.uncertain,
                )
                for owner, entry in batch.items()
            ]
            acks = await self._link.call(store.commit, self._worker_id, writes, backoff=self._journal.backoff)
        except Exception as error:
            await self._failed(batch, error)
        else:
            self._failures = 0
            self._journal.metrics.observe(names.JOURNAL_FLUSH_SECONDS, time.monotonic() - started)
            self._journal.metrics.observe(names.JOURNAL_FLUSH_ROWS, row_count(batch.values()))
            self._journal.meters.enter()
            await self._answered(batch, acks)

    async def _lease_holds(self) -> None:
        while not self._journal.lease.holds():  # noqa: ASYNC110 - another thread renews it
            await asyncio.sleep(LEASE_CHECK)

    async def _answered(self, batch: Batch, acks: Mapping[str, store.Ack]) -> None:
        doubtful: Batch = {}
        for owner, entry in batch.items():
            ack = acks.get(owner.run_id)
            if self._abandoned:
                return
            if ack is not None and ack.owned and ack.flags is not None:
                self._leave(owner, entry)
                owner.acknowledged(entry, ack.flags, ack.ended)
                if entry.calls and entry.ending is None:
                    self._stay(owner, entry)
                if ack.awaited:
                    self._journal.ended(owner.run_id)
            elif entry.uncertain and entry.ending is not None:
                doubtful[owner] = entry
            else:
                self._lost(owner, entry)
        for owner, entry in doubtful.items():
            await self._resolve(owner, entry)

    async def _resolve(self, owner: RunJournal, entry: Entry) -> None:
        """An ending sent twice was not accepted: either the first copy ended the run, or somebody else has it."""
        try:
            status = await ended_by_us(self._link, self._worker_id, owner.run_id, owner.fence)
        except Exception as error:
            self._again({owner: entry}, error)
            return
        if self._abandoned:
            return
        if status is None:
            self._lost(owner, entry)
        else:
            self._leave(owner, entry)
            owner.acknowledged(entry, OwnedFlags(cancel_mode=None, suspended=False, wake_seq=0), status)

    def _lost(self, owner: RunJournal, entry: Entry) -> None:
        self._leave(owner, entry)
        entries = [entry]
        newer = self._pending.pop(owner, None)
        if newer is not None:
            self._account_gone(newer)
            entries.append(newer)
        owner.not_owned(entries)

    # -- failures

    async def _failed(self, batch: Batch, error: Exception) -> None:
        if self._abandoned:
            return
        if isinstance(error, asyncpg.LockNotAvailableError):
            free = await self._set_aside(batch, error)
            if len(free) < len(batch):
                if free:
                    await self._send(free)
                return
        bad, slow = refusals.of_the_data(error), isinstance(error, refusals.TOO_SLOW)
        if (bad or slow) and len(batch) > 1:
            self._count("split", len(batch))
            for half in halves(batch):
                if not self._abandoned:
                    await self._send(half)
        elif bad:
            for owner, entry in batch.items():
                self._leave(owner, entry)
                message = f"Postgres refuses {describe(entry)}: {str(error)[:MESSAGE_LIMIT]}"
                newer = self._pending.pop(owner, None)
                if newer is not None:
                    self._account_gone(newer)
                    entry.absorb(newer)
                log.error("the data of a run cannot be stored", run_id=owner.run_id, error=message)
                owner.bad_data(entry, message)
        else:
            self._again(batch, error)

    async def _set_aside(self, batch: Batch, error: Exception) -> Batch:
        """Let those wait whose rows somebody else locks, each for itself; the others."""
        try:
            held = await self._link.call(store.locked, [owner.run_id for owner in batch])
        except Exception:
            return batch
        for owner, entry in batch.items():
            entry.locked = owner.run_id in held
            if entry.locked:
                self._again({owner: entry}, error)
        return {owner: entry for owner, entry in batch.items() if not entry.locked}

    def _again(self, batch: Batch, error: Exception) -> None:
        if self._abandoned:
            return
        self._failures += 1
        reason = refusals.reason(error)
        # With the connection gone nothing else can be sent either; a locked run holds up only itself, and others
        # get more of the lane's time than it does.
        alone = reason == "timeout" and len(batch) == 1
        if alone:
            pause = refusals.pause_of_one(next(iter(batch.values())).failures + 1)
        else:
            pause = refusals.pause_of_all(self._failures)
        self._count(reason, len(batch))
        self._journal.metrics.count(names.STORE_ERRORS, "journal", error_class(error))
        if self._failures & (self._failures - 1) == 0:
            # At the first failure, and then at each power of two: an outage fills no log.
            report = log.warning if is_transient(error) else log.error
            report(
                "the journal could not write and tries again",
                reason=reason,
                error=error,
                runs=len(batch),
                failures=self._failures,
                pause_seconds=round(pause, 3),
            )
        again_at = time.monotonic() + pause
        if not alone:
            self._not_before = again_at
        again: Batch = {}
        for owner, entry in batch.items():
            self._flight.pop(owner, None)
            newer = self._pending.pop(owner, None)
            if newer is not None:
                rows, size = entry.rows + newer.rows, entry.bytes + newer.bytes
                entry.absorb(newer)
                self._journal.account(entry.rows - rows, entry.bytes - size)
            entry.failures += 1
            entry.uncertain = True
            entry.due = again_at
            again[owner] = entry
        self._pending = {**again, **self._pending}

    def _count(self, reason: str, runs: int) -> None:
        self._journal.metrics.count(names.JOURNAL_RETRIES, reason, by=runs)
