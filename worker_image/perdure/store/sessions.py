"""A few sessions that many callers share, one operation at a time in each: opened when first used, closed when idle.

Used by the client. What the driver's pool does beside that for each use (a proxy, a timer, a task to clean the session)
takes longer than the operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import asyncpg

from perdure.errors import PerdureError
from perdure.store.pool import connect, connection_errors, is_transient

P = ParamSpec("P")
T = TypeVar("T")

Connection: TypeAlias = "asyncpg.Connection[Any]"

IDLE_SECONDS = 300.0
"""Seconds between looks for sessions that nobody has used since the last one: they are closed."""


class Sessions:
    """At most `size` sessions of one database. For one event loop."""

    def __init__(self, url: str, *, application_name: str, size: int) -> None:
        self._url = url
        self._application_name = application_name
        self._size = size
        self._room = asyncio.Semaphore(size)
        self._free: list[Connection] = []
        """The last is the next: so few are used where few are enough, and their plans are at hand."""
        self._used: set[Connection] = set()
        self._unused: set[Connection] = set()
        """Of the free ones: those that were free at the last look."""
        self._look: asyncio.TimerHandle | None = None
        self._closed = False

    async def run(
        self,
        operation: Callable[Concatenate[Connection, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run the operation in a session; waits while all are in use. Raises what connecting and the operation raise;
        after an error that leaves the session in doubt it is thrown away."""
        async with self._room:
            connection = self._taken() or await self._opened()
            self._used.add(connection)
            try:
                if self._closed:
                    raise asyncpg.InterfaceError("the sessions are closed")
                return await operation(connection, *args, **kwargs)
            except BaseException as error:
                # A cancelled statement may go on at the server: the next one must not wait behind it. A refusal, the
                # server's or ours, leaves the session as it was.
                if not isinstance(error, asyncpg.PostgresError | PerdureError) or is_transient(error):
                    connection.terminate()
                raise
            finally:
                self._used.discard(connection)
                if not connection.is_closed():
                    self._free.append(connection)

    async def close(self, seconds: float) -> None:
        """Close all: those in use when they are free, or after so many seconds. Nothing is run any more."""
        if self._look is not None:
            self._look.cancel()
        try:
            async with asyncio.timeout(seconds):
                for _ in range(self._size):
                    await self._room.acquire()
                while self._free:
                    await self._free.pop().close()
        except (*connection_errors, asyncpg.PostgresError):
            self._closed = True
            for connection in (*self._free, *self._used):
                connection.terminate()

    def _taken(self) -> Connection | None:
        while self._free:
            connection = self._free.pop()
            self._unused.discard(connection)
            if not connection.is_closed():
                return connection
        return None

    async def _opened(self) -> Connection:
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._close_idle)
        return await connect(self._url, application_name=self._application_name)

    def _close_idle(self) -> None:
        for connection in self._unused:
            self._free.remove(connection)
            connection.terminate()
        self._unused = set(self._free)
        again = self._free or self._used
        self._look = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._close_idle) if again else None
