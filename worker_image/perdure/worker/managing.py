"""What runs here do with other runs, and what they do beside their steps to undo these: on a connection of its own, so
that a run that somebody holds makes nobody else wait; and who has to be told of it. Used by the journals of runs.

It is no write of the journal's: the statement locks rows of others, too (rule R15). It comes after all that the run has
recorded (the engine flushes first, rule R14), and is told to the run's journal as what a transaction has committed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import asyncpg

from perdure.errors import OwnershipLost, StoreUnavailable
from perdure.model.management import Cancel, Delete, Rewind, Verb
from perdure.model.rows import OwnedFlags, StepWrite
from perdure.store import management as store
from perdure.store import undo
from perdure.store.listen import notify_cancelled
from perdure.store.management import CallerLost, Done
from perdure.store.pool import is_transient
from perdure.store.transaction import Claim
from perdure.worker.link import Link
from perdure.worker.wakes import Wakes

if TYPE_CHECKING:
    from perdure.worker.journal import RunJournal


T = TypeVar("T")


class Managing:
    """See the module. One for a registration."""

    def __init__(self, link: Link, worker_id: str, wakes: Wakes) -> None:
        self._link = link
        self._worker_id = worker_id
        self._wakes = wakes

    async def carry_out(self, caller: RunJournal, run_id: str, verb: Verb, write: StepWrite | None) -> Done:
        """See `StepLog.manage`."""
        claim = self._claim(caller)
        try:
            done = await self._link.call(store.manage_for, claim, run_id, verb, write)
        except CallerLost as lost:
            caller.not_owned([])
            if write is None:
                raise lost.why from None
            raise OwnershipLost(lost.why.message) from lost.why
        except Exception as error:
            if write is None and isinstance(verb, Rewind) and _unknown(error):
                # Made again it would rewind what has begun anew; with a step, the step says whether it was done.
                raise StoreUnavailable(f"whether run {run_id} was rewound is not known: {error!r}") from error
            raise
        if write is not None and done.output is not None:
            write.output = done.output
            caller.committed_elsewhere(write, done.flags)
        self._tell(done)
        if isinstance(verb, Cancel | Delete) and done.managed is not None and not done.managed.status.finished:
            with suppress(Exception):  # the next beat brings it
                await self._link.call(notify_cancelled, [done.managed.id])
        return done

    async def promise(self, caller: RunJournal, index: int, name: str, text: str) -> OwnedFlags:
        """See `StepLog.promise`."""
        return _mine(caller, await self._link.call(undo.promise, self._claim(caller), index, name, text))

    async def undo(self, caller: RunJournal, seq: int) -> undo.Plan:
        """See `StepLog.undo`."""
        return _mine(caller, await self._link.call(undo.begin, self._claim(caller), seq))

    def _claim(self, caller: RunJournal) -> Claim:
        if not caller.admitted():
            raise OwnershipLost
        return Claim(caller.run_id, self._worker_id, caller.fence)

    def _tell(self, done: Done) -> None:
        managed = done.managed
        if managed is None:
            return
        if managed.ready:
            self._wakes.ready(managed.namespace, managed.pool)
        if managed.ended:
            self._wakes.waited(managed.id)
            if managed.parent_id is not None:
                self._wakes.ended(managed.id, managed.parent_id)


def _mine(caller: RunJournal, answer: T | None) -> T:
    """The answer of a statement; None stands for another owner."""
    if answer is None:
        caller.not_owned([])
        raise OwnershipLost
    return answer


def _unknown(error: Exception) -> bool:
    """Whether it may have been done: there was no answer. An error of the server's is one."""
    return is_transient(error) and not isinstance(error, asyncpg.PostgresError)
