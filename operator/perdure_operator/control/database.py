"""The operator's connections to Postgres, and one meaning for all the ways in which it may not answer.

Used by everything in `control`. A block under `connection` holds database calls only: whatever error of the line or
of the server happens in it becomes `StoreUnavailable`, which callers answer by coming back, never by concluding
anything (invariant 8).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from perdure.errors import PoolerInTheWay, StoreUnavailable
from perdure.store.pool import create_pool, is_transient
from perdure.store.pooler import explain, pooled
from perdure.telemetry import names
from perdure.telemetry.prometheus import Metrics

from perdure_operator.outage import Outage

APPLICATION_NAME = "perdure-operator"

CONNECTIONS = 8
"""Connections at most: intake is a short statement, so eight keep Postgres busy; the leader's and the listener's
are extra."""

ACQUIRE_SECONDS = 5.0
"""Longest wait for a free connection; longer means that statements hang, which is as good as no answer."""


NO_ADMISSION = ("28", "3D")
"""Classes of SQLSTATE of a server that lets us not in: a password on its way, a database still to be made."""


def is_away(error: BaseException) -> bool:
    """Whether the database cannot be used for now, for reasons that are none of the statement."""
    state = getattr(error, "sqlstate", None) or ""
    return is_transient(error) or state[:2] in NO_ADMISSION


def no_answer(operation: str, error: Exception) -> StoreUnavailable:
    """What to raise when the line or the server failed."""
    return StoreUnavailable(f"Postgres does not answer ({operation}): {str(error) or type(error).__name__}")


def _let_a_cancel_through(error: BaseException) -> None:
    """A statement that is cancelled is asked to stop when its connection is given back; if that gets no answer, the
    driver raises its own error in place of the cancel. Taken for an outage, the service would go on for ever."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error


class Database:
    """A pool that opens connections when they are needed: it can be made while Postgres is away."""

    def __init__(self, url: str, metrics: Metrics) -> None:
        self._url = url
        self._metrics = metrics
        self._pool: asyncpg.Pool[Any] | None = None
        self._outage = Outage("Postgres")

    @asynccontextmanager
    async def connection(self, operation: str) -> AsyncIterator[asyncpg.Connection[Any]]:
        """A connection for a few statements. Raises StoreUnavailable; `operation` is for the metric."""
        try:
            pool = await self._ready_pool()
            async with pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
                yield connection
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            _let_a_cancel_through(error)
            if (advice := explain(error)) is not None:
                raise PoolerInTheWay(advice) from error
            if not is_away(error):
                raise
            self._outage.failed(error)
            state = getattr(error, "sqlstate", None)
            self._metrics.count(names.STORE_ERRORS, operation, state[:2] if state else "connection")
            raise no_answer(operation, error) from error
        self._outage.answered()

    @property
    def pooled(self) -> bool:
        """Whether sessions are shared with others, by a pooler."""
        return pooled(self._url)

    @property
    def silent_for(self) -> float:
        """Seconds since Postgres failed to answer and has not answered since; 0 when all is well."""
        return self._outage.seconds

    async def close(self) -> None:
        """Close all connections, also those in use."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    async def _ready_pool(self) -> asyncpg.Pool[Any]:
        if self._pool is None:
            pool = await create_pool(self._url, application_name=APPLICATION_NAME, min_size=0, max_size=CONNECTIONS)
            if self._pool is None:
                self._pool = pool
            else:  # another task was quicker
                pool.terminate()
        return self._pool
