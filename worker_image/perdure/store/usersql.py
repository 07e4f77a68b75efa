"""Connections for the SQL of steps' bodies: few, opened when first used, without the limits of the engine's own.

Used by `perdure.transaction` and `perdure.idempotency`; a worker has one pool a registration. How long a statement may
take or wait is the user's to say: in the database's roles, or in the body.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from perdure.errors import TransactionMisused
from perdure.store.pool import CONNECT_SECONDS, KEEPALIVE, TCP_USER_TIMEOUT_MS, connection_errors, driver_options

IDLE_SECONDS = 300.0
"""Seconds after which a connection that nobody uses is closed: a pool of many workers holds few."""

RELEASE_SECONDS = 5.0
"""Longest time for the server to clean a session for the next user; after it the connection is thrown away."""

CLIENT_KEEPALIVE = {
    "TCP_KEEPIDLE": int(KEEPALIVE["tcp_keepalives_idle"]),
    "TCP_KEEPINTVL": int(KEEPALIVE["tcp_keepalives_interval"]),
    "TCP_KEEPCNT": int(KEEPALIVE["tcp_keepalives_count"]),
    "TCP_USER_TIMEOUT": int(TCP_USER_TIMEOUT_MS),
}
"""The same as the server does: one that is gone is noticed within 25 seconds, however long a statement may take."""

_ENDS_TRANSACTION = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
    r"(commit|end|abort|begin|start\s+transaction|prepare\s+transaction|rollback(?!(?:\s+work|\s+transaction)?\s+to))\b",
    re.IGNORECASE | re.DOTALL,
)


class BodyConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that a body must neither commit nor roll back. Refuses what plainly would; the rest is noticed at
    the end, by the mark of the transaction."""

    _guarded = False

    def guard(self, on: bool) -> None:
        """Whether a body has it now."""
        self._guarded = on

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:  # noqa: ASYNC109
        """As asyncpg's. Raises `TransactionMisused` for COMMIT and the like while a body has the connection."""
        if self._guarded and (found := _ENDS_TRANSACTION.match(query)):
            raise TransactionMisused(
                f"the body of a transaction says {found[1].upper()}: the engine begins and commits it, with "
                "the step's outcome; raise an exception to roll it back, use `connection.transaction()` for a savepoint"
            )
        result: str = await super().execute(query, *args, timeout=timeout)
        return result


class SqlPool:
    """At most `size` connections, none before the first use. For one event loop."""

    def __init__(self, url: str, *, application_name: str, size: int) -> None:
        self._url = url
        self._application_name = application_name
        self._size = size
        self._pool: asyncpg.Pool[Any] | None = None
        self._opening = asyncio.Lock()
        self.closed = False

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        """A connection for the block; waits while all are in use. Raises what connecting raises.

        One that is broken, or still in a transaction, at the end of the block is thrown away.
        """
        pool = await self._opened()
        connection = await pool.acquire()
        try:
            yield connection
        finally:
            if not is_gone(connection) and connection.is_in_transaction():
                cut(connection)
            # The session is cleaned for the next user; one that cannot be is closed by the pool itself.
            with suppress(*connection_errors, asyncpg.PostgresError):
                await pool.release(connection, timeout=RELEASE_SECONDS)

    async def close(self) -> None:
        """Cut every connection, also those in use: what they have not committed is rolled back."""
        self.closed = True
        if self._pool is not None:
            self._pool.terminate()

    async def _opened(self) -> asyncpg.Pool[Any]:
        async with self._opening:
            if self.closed:
                raise asyncpg.InterfaceError("the connections for steps' SQL are closed")
            if self._pool is None:
                settings = {
                    "application_name": self._application_name,
                    "tcp_user_timeout": TCP_USER_TIMEOUT_MS,
                    **KEEPALIVE,
                }
                self._pool = await asyncpg.create_pool(
                    min_size=0,
                    max_size=self._size,
                    max_inactive_connection_lifetime=IDLE_SECONDS,
                    timeout=CONNECT_SECONDS,
                    connection_class=BodyConnection,
                    init=_keep_alive,
                    **driver_options(self._url, settings),
                )
            return self._pool


async def _keep_alive(connection: asyncpg.Connection[Any]) -> None:
    """Have this side notice, too, that the other one is gone: without limits of its own a body would wait for ever for
    a server that has vanished without a word. The driver neither does this nor gives its socket away."""
    transport = getattr(connection, "_transport", None)
    given = None if transport is None else transport.get_extra_info("socket")
    if given is None or given.family == socket.AF_UNIX:
        return
    with suppress(OSError), socket.socket(fileno=os.dup(given.fileno())) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in CLIENT_KEEPALIVE.items():
            if hasattr(socket, name):  # not every system has each
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def is_gone(connection: asyncpg.Connection[Any]) -> bool:
    """Whether it is closed. One of a pool that is closed has been taken back and answers nothing."""
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        return True


def cut(connection: asyncpg.Connection[Any]) -> None:
    """Throw it away without a word to the server."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()
