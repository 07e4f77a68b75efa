"""What an error of a journal statement means for what it carried: pure. Used by `lane`."""

from __future__ import annotations

import asyncpg

from perdure.errors import PerdureError
from perdure.store.journal import is_not_fresh
from perdure.store.pool import is_bad_row, is_transient
from perdure.worker.service import backoff

RETRY_FIRST = 0.05
"""Seconds before the first repetition: a connection that was cut can be had again at once."""

RETRY_LONGEST = 2.0
"""Longest pause: a database that is back is found within it."""

LOCKED_FIRST, LOCKED_LONGEST = 0.5, 15.0
"""Seconds before it is looked at again whether a run is still locked."""

LOCK_SECONDS = 1.0
"""Longest wait of the journal for a row: all other statements of the engine hold one for milliseconds, and meanwhile
the connection serves no other run."""

TOO_SLOW = (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError)


def of_the_data(error: Exception) -> bool:
    """Whether something that was sent cannot be stored, however often it is tried."""
    return is_bad_row(error) and not is_not_fresh(error)


def of_one(error: Exception) -> bool:
    """Whether something that is sent cannot even be made into a statement, for a reason that nobody has thought of: all
    others are written without it."""
    return not isinstance(error, asyncpg.PostgresError | PerdureError) and not is_transient(error)


def reason(error: Exception) -> str:
    """Why it has to be sent again: the label of a metric."""
    if isinstance(error, TOO_SLOW):
        return "timeout"
    if isinstance(error, asyncpg.DeadlockDetectedError | asyncpg.SerializationError) or is_not_fresh(error):
        return "contention"
    return "connection" if is_transient(error) else "other"


def pause_of_all(failures: int) -> float:
    """Seconds before the connection is tried again that has failed so many times in a row."""
    return backoff(failures, first=RETRY_FIRST, longest=RETRY_LONGEST)


def pause_of_one(failures: int) -> float:
    """Seconds before a run is tried again that was too slow so many times in a row."""
    return backoff(failures, first=LOCKED_FIRST, longest=LOCKED_LONGEST)
