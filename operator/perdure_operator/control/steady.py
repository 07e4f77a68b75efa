"""One database session that is kept, and knows since when it has stood without a break.

Only who has been in contact with the same database for a whole lease may say that others have lost theirs: after
an outage, a failover or a pause of this process everybody's lease has run out and nobody is dead.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from perdure.store.pool import connect
from perdure.store.pooler import pooled
from perdure.telemetry import names
from perdure.telemetry.prometheus import Metrics

from perdure_operator.control.database import APPLICATION_NAME, is_away, no_answer


class SteadySession:
    """Opened when first used and again after it broke. For one task at a time."""

    def __init__(self, url: str, metrics: Metrics) -> None:
        self._url = url
        self._metrics = metrics
        self._connection: asyncpg.Connection[Any] | None = None
        self._since = 0.0
        self._used_at = 0.0

    @property
    def pooled(self) -> bool:
        """Whether the session is shared with others, by a pooler."""
        return pooled(self._url)

    def unbroken_for(self, longest_gap: float) -> float:
        """Seconds of contact without an error, a new session, or a gap longer than this between two uses."""
        now = time.monotonic()
        if self._connection is None or self._connection.is_closed() or now - self._used_at > longest_gap:
            self._since = now
        return now - self._since

    @asynccontextmanager
    async def connection(self, operation: str) -> AsyncIterator[asyncpg.Connection[Any]]:
        """The session. Raises StoreUnavailable, after which the next use opens another one."""
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await connect(self._url, application_name=APPLICATION_NAME)
                self._since = time.monotonic()
            yield self._connection
            self._used_at = time.monotonic()
        except BaseException as error:
            self.close()
            if not isinstance(error, Exception) or not is_away(error):
                raise
            self._metrics.count(names.STORE_ERRORS, operation, "connection")
            raise no_answer(operation, error) from error

    def close(self) -> None:
        """Throw the session away without a word to the server."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
