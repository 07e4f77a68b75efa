"""What Postgres, its schema and the way to it bring about; the base of what it reports about a call."""

from __future__ import annotations

from perdure.errors.base import PerdureError
from perdure.errors.setup import ConfigurationError


class SystemDatabaseError(PerdureError):
    """Base of what Postgres reports about a call: a conflict of runs or steps, a run that is gone, no answer.

    Never raised itself: catch it for all of them at once.
    """

    code = "PRD-600"


class StoreUnavailable(SystemDatabaseError):
    """Postgres cannot be reached or refuses for now. Nothing is known about what was asked.

    `run_ids` are those of runs that were to be started: each may exist or not, and starting it again with the same id
    and input is safe.
    """

    code = "PRD-601"
    retryable = True

    def __init__(self, message: str, run_ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.run_ids = run_ids


class SchemaOutOfRange(PerdureError):
    """The database's schema is older or newer than this program can use."""

    code = "PRD-602"
    retryable = True


class MigrationFailed(PerdureError):
    """A migration could not be applied, or an applied one no longer equals its file."""

    code = "PRD-603"


class WorkerLost(PerdureError):
    """This worker's lease ran out and another process marked it dead; it must register anew."""

    code = "PRD-604"


class PoolerInTheWay(ConfigurationError):
    """A connection pooler in transaction mode stands before Postgres, and no setting says so."""

    code = "PRD-610"
