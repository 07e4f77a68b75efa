"""What runs want written by one connection of the journal: entries that are pending, and those that are under way.

Filled by `RunJournal`, emptied by `Lane`, both on the worker's loop. Promises: of one run at most one entry is under
way, and what is added meanwhile is pending behind it (rule R14); an entry that is put back stands before what was added
since and takes it in; whoever waits for an entry hears of it, also when everything is dropped; what is counted as
pending with the journal is counted out again exactly once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from perdure.model.outcome import Ending
from perdure.model.rows import OwnedFlags, StepWrite
from perdure.worker.batch import Asked, Entry, Settled, hold_back, next_due, take

if TYPE_CHECKING:
    from perdure.worker.journal import RunJournal

Batch = dict["RunJournal", Entry]


class Outbox:
    """See the module. `account` hears by how many rows and bytes what is pending or under way has grown.

    `flight` is what is under way. `not_before` is the instant of the monotonic clock before which nothing is due.
    """

    def __init__(self, account: Callable[[int, int], None]) -> None:
        self.flight: Batch = {}
        self.abandoned = False
        self.not_before = 0.0
        self._account = account
        self._pending: Batch = {}
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
        self._account(rows, size)
        self._queued(owner, entry, due)

    def add_ending(self, owner: RunJournal, ending: Ending, *, waiter: asyncio.Future[Settled] | None) -> None:
        """Queue the ending; `waiter` hears what became of it."""
        entry = self._pending.get(owner)
        if entry is None:
            entry = self._pending[owner] = Entry(0.0)
        self._account(entry.end(ending, waiter), 0)
        self._queued(owner, entry, 0.0)

    def add_call(self, owner: RunJournal, asked: Asked) -> None:
        """Queue a call, to be carried out when all that the run has queued before is durable."""
        entry = self._pending.get(owner)
        if entry is None:
            entry = self._pending[owner] = Entry(0.0)
        self._account(1, entry.ask(asked))
        self._queued(owner, entry, 0.0)

    def flush(self, owner: RunJournal, waiter: asyncio.Future[OwnedFlags]) -> bool:
        """Hurry what the run has queued; `waiter` hears when all of it is durable. False: nothing was queued."""
        entry = self._pending.get(owner)
        if entry is not None:
            entry.starts.append(waiter)
            self._queued(owner, entry, 0.0)
            return True
        entry = self.flight.get(owner)
        if entry is not None:
            entry.starts.append(waiter)
        return entry is not None

    def abandon(self) -> None:
        """Drop everything; nothing is due from now on."""
        self.abandoned = True
        for owner, entry in [*self.flight.items(), *self._pending.items()]:
            self._gone(entry)
            owner.not_owned([entry], tell=False)
        self.flight.clear()
        self._pending.clear()

    # -- what the lane makes of it

    async def until_due(self) -> None:
        """Return when something may be due that was not when `take` gave nothing."""
        self._wake = asyncio.get_running_loop().create_future()
        due = next_due(self._pending)
        if due is not None:
            self._kick_at(max(due, self.not_before))
        try:
            await self._wake
        finally:
            self._wake = None

    def take(self) -> Batch:
        """What is due and fits into a statement: from now on it is under way."""
        now = time.monotonic()
        self.flight = {} if now < self.not_before else take(self._pending, now)
        return dict(self.flight)

    def hold_back(self, batch: Batch, calls: int) -> Batch:
        """Those of the batch whose calls are carried out now, at most so many; the others are pending again."""
        chosen = hold_back(batch, self._pending, calls)
        for owner in batch.keys() - chosen.keys():
            del self.flight[owner]
        return chosen

    def leave(self, owner: RunJournal, entry: Entry) -> None:
        """The entry was answered."""
        self.flight.pop(owner, None)
        self._gone(entry)

    def stay(self, owner: RunJournal, entry: Entry) -> None:
        """What the run recorded is durable, its calls are still to be carried out."""
        rest = self.flight[owner] = entry.rest()
        self._account(rest.rows, rest.bytes)

    def leave_with_newer(self, owner: RunJournal, entry: Entry) -> Entry | None:
        """The entry will not be written, nor what the run has queued since, which is given."""
        self.leave(owner, entry)
        newer = self._pending.pop(owner, None)
        if newer is not None:
            self._gone(newer)
        return newer

    def put_back(self, batch: Batch, due: float) -> None:
        """These have failed and are to be sent again, before all others, at this instant."""
        again: Batch = {}
        for owner, entry in batch.items():
            self.flight.pop(owner, None)
            newer = self._pending.pop(owner, None)
            if newer is not None:
                rows, size = entry.rows + newer.rows, entry.bytes + newer.bytes
                entry.absorb(newer)
                self._account(entry.rows - rows, entry.bytes - size)
            entry.failures += 1
            entry.uncertain = True
            entry.due = due
            again[owner] = entry
        self._pending = {**again, **self._pending}

    # --

    def _queued(self, owner: RunJournal, entry: Entry, due: float) -> None:
        if self.abandoned:
            self._pending.pop(owner, None)
            self._gone(entry)
            owner.not_owned([entry], tell=False)
            return
        if due < entry.due and not entry.failures:
            entry.due = due
        if self._wake is not None and not self._wake.done():
            self._kick_at(max(entry.due, self.not_before))

    def _gone(self, entry: Entry) -> None:
        self._account(-entry.rows, -entry.bytes)

    def _kick_at(self, due: float) -> None:
        """End the wait of the lane at this instant; only called while it waits."""
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
