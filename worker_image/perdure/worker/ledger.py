"""Where the transactions of one claim are run: the engine's `Ledger` over the worker's connections for users' SQL.

Made by `runner` for each run. What is committed here has not gone through the journal, so the journal is told: its
metrics, the reporter and the flags that came back are its business.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from perdure.model.rows import OwnedFlags, StepWrite
from perdure.store.transaction import Claim
from perdure.store.usersql import SqlPool
from perdure.worker.journal import RunJournal
from perdure.worker.link import Connection


class RunLedger:
    """See the module."""

    def __init__(self, pool: SqlPool, worker_id: str, journal: RunJournal) -> None:
        self.claim = Claim(journal.run_id, worker_id, journal.fence)
        self._pool = pool
        self._journal = journal

    @property
    def closed(self) -> bool:
        """Whether the registration is over."""
        return self._pool.closed

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for a block. Raises what connecting raises."""
        return self._pool.acquire()

    def committed(self, write: StepWrite, flags: OwnedFlags) -> None:
        """A step was committed with its body's SQL."""
        self._journal.committed_elsewhere(write, flags)

    def lost(self) -> None:
        """The fence has moved on: the run has another owner."""
        self._journal.not_owned([])
