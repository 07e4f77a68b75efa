"""One connection of the journal: sends one statement at a time, deals with every way in which it can fail.

Used by `journal` only; what it sends stands in its `Outbox`. A failed statement's entries go back in front of what was
added since and are sent again with the same sequence numbers, which is harmless (rule R3); how long and in what company
depends on the error:

| error | what happens |
|---|---|
| a value cannot be stored (classes 22, 23, 54, or the client cannot encode it) | halves, until the culprit is alone |
| a lock took too long | those whose rows are locked wait, and are looked at before they are sent again |
| the statement took too long, or cannot be made | halves |
| no connection, no answer, server stops, deadlock | all again after a pause, outcome of the first unknown |
| anything else (a schema that does not fit, a bug) | the same, and said as an error each time |
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import asyncpg

from perdure.model.rows import OwnedFlags
from perdure.store import calls as call_store
from perdure.store import journal as store
from perdure.store.pool import is_transient
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.worker import refusals
from perdure.worker.ambiguous import ended_by_us
from perdure.worker.batch import Entry, describe, halves, row_count
from perdure.worker.link import Link, error_class
from perdure.worker.outbox import Batch, Outbox
from perdure.worker.service import Service

if TYPE_CHECKING:
    from perdure.worker.journal import Journal, RunJournal

log = get_logger(__name__)

MAX_CALLS = 300
"""Calls carried out between two statements of the journal: others wait behind them, a few milliseconds at most."""

LEASE_CHECK = 0.05
"""Seconds between looks at a lease that does not hold now (rule R13: results are not sent without it)."""

MESSAGE_LIMIT = 1000
"""Characters of Postgres' message that go into the run's error."""


class Lane(Service):
    """See the module. `number` only tells the lanes apart in the logs."""

    name = "journal"

    def __init__(self, journal: Journal, worker_id: str, link: Link, number: int) -> None:
        super().__init__()
        self._journal = journal
        self._worker_id = worker_id
        self._link = link
        self._number = number
        self.outbox = Outbox(journal.account)
        self._failures = 0
        self._seconds = journal.metrics.observer(names.JOURNAL_FLUSH_SECONDS)
        self._rows = journal.metrics.observer(names.JOURNAL_FLUSH_ROWS)

    # -- the loop

    async def run(self) -> None:
        """Send what is due, for ever."""
        while True:
            batch = self.outbox.take()
            if not batch:
                await self.outbox.until_due()
                continue
            try:
                await self._send(batch)
            except Exception as error:
                log.exception("the journal failed and tries again", lane=self._number)
                self._again(dict(self.outbox.flight), error)
            # A body that was just answered has its next write in one turn of the loop: all of them go together.
            await asyncio.sleep(0)

    # -- one statement

    async def _send(self, batch: Batch) -> None:
        """First what the runs have recorded, then their calls (rule R14)."""
        while not self._journal.lease.holds():  # noqa: ASYNC110 - another thread renews it
            await asyncio.sleep(LEASE_CHECK)
        doubtful: Batch = {}
        writes: Batch = {}
        for owner, entry in batch.items():
            if entry.locked:
                doubtful[owner] = entry
            elif entry.writes:
                writes[owner] = entry
        if doubtful:
            free = await self._set_aside(doubtful, asyncpg.LockNotAvailableError("the row of the run is still locked"))
            writes |= {owner: entry for owner, entry in free.items() if entry.writes}
        if writes:
            await self._write(writes)
        calls = {owner: entry for owner, entry in self.outbox.flight.items() if owner in batch and entry.calls}
        if calls:
            await self._call(calls)

    async def _call(self, batch: Batch) -> None:
        """As many as take little time; the others are the next."""
        chosen = self.outbox.hold_back(batch, MAX_CALLS)
        asked = [owner.asked(entry) for owner, entry in chosen.items()]
        try:
            answers = await self._link.call(call_store.execute, self._worker_id, asked)
        except Exception as error:
            # They are a statement for each kind: those before the one that failed are committed.
            for entry in chosen.values():
                entry.uncertain = True
            await self._failed(chosen, error)
            return
        self._failures = 0
        for owner, entry in chosen.items():
            if self.outbox.abandoned:
                return
            if owner.run_id in answers:
                self.outbox.leave(owner, entry)
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
            self._seconds(time.monotonic() - started)
            self._rows(row_count(batch.values()))
            await self._answered(batch, acks)

    async def _answered(self, batch: Batch, acks: Mapping[str, store.Ack]) -> None:
        doubtful: Batch = {}
        for owner, entry in batch.items():
            ack = acks.get(owner.run_id)
            if self.outbox.abandoned:
                return
            if ack is not None and ack.owned and ack.flags is not None:
                self.outbox.leave(owner, entry)
                owner.acknowledged(entry, ack.flags, ack.ended)
                if entry.calls and entry.ending is None:
                    self.outbox.stay(owner, entry)
                if ack.awaited:
                    self._journal.ended(owner.run_id)
                if ack.waited and self._journal.wakes is not None:
                    self._journal.wakes.waited(owner.run_id)
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
        if self.outbox.abandoned:
            return
        if status is None:
            self._lost(owner, entry)
        else:
            self.outbox.leave(owner, entry)
            owner.acknowledged(entry, OwnedFlags(cancel_mode=None, suspended=False, wake_seq=0), status)

    def _lost(self, owner: RunJournal, entry: Entry) -> None:
        newer = self.outbox.leave_with_newer(owner, entry)
        owner.not_owned([entry] if newer is None else [entry, newer])

    # -- failures

    async def _failed(self, batch: Batch, error: Exception) -> None:
        if self.outbox.abandoned:
            return
        if isinstance(error, asyncpg.LockNotAvailableError):
            free = await self._set_aside(batch, error)
            if len(free) < len(batch):
                if free:
                    await self._send(free)
                return
        bad, slow = refusals.of_the_data(error), isinstance(error, refusals.TOO_SLOW) or refusals.of_one(error)
        if (bad or slow) and len(batch) > 1:
            self._count("split", len(batch))
            for half in halves(batch):
                if not self.outbox.abandoned:
                    await self._send(half)
        elif bad:
            for owner, entry in batch.items():
                message = f"Postgres refuses {describe(entry)}: {str(error)[:MESSAGE_LIMIT]}"
                newer = self.outbox.leave_with_newer(owner, entry)
                if newer is not None:
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
        if self.outbox.abandoned:
            return
        self._failures += 1
        reason = refusals.reason(error)
        # With the connection gone nothing else can be sent either; a locked run holds up only itself, and others
        # get more of the lane's time than it does.
        alone = (reason == "timeout" or refusals.of_one(error)) and len(batch) == 1
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
            self.outbox.not_before = again_at
        self.outbox.put_back(batch, again_at)

    def _count(self, reason: str, runs: int) -> None:
        self._journal.metrics.count(names.JOURNAL_RETRIES, reason, by=runs)
