"""The database under the faults: the tests' real server, restarted in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg
from perdure.store.pool import connect, connection_errors, is_transient

from tests.faults.sql import text
from tests.support.postgres import TEMPLATE, PostgresServer

T = TypeVar("T")

AGAIN_SECONDS = 0.1


class Database:
    """One database of a server. `ask` outlives restarts."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self._server = server
        self._turn = asyncio.Lock()
        self._restarting = asyncio.Lock()
        self._connection: asyncpg.Connection[Any] | None = None
        self.url = server.url(name)

    async def ask(self, operation: Callable[[Any], Awaitable[T]]) -> T:
        """What `operation` gives on a session; done again until it is done, so it must be harmless twice."""
        async with self._turn:
            while True:
                try:
                    if self._connection is None or self._connection.is_closed():
                        self._connection = await connect(self.url, application_name="faults", statement_timeout=30.0)
                    return await operation(self._connection)
                except (asyncpg.PostgresError, *connection_errors) as error:
                    if not is_transient(error):
                        raise
                    if self._connection is not None:
                        self._connection.terminate()
                        self._connection = None
                    await asyncio.sleep(AGAIN_SECONDS)

    async def rows(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        """What the statement of this name gives."""

        async def fetch(connection: Any) -> list[asyncpg.Record]:
            found: list[asyncpg.Record] = await connection.fetch(text(name), *arguments)
            return found

        return await self.ask(fetch)

    async def finished_steps(self) -> int:
        """How many steps have an outcome."""
        return int((await self.rows("finished"))[0]["finished"])

    async def last_write(self) -> int:
        """Number of the last recorded write of a run."""
        return int((await self.rows("last_write"))[0]["number"])

    async def restart(self, *, clean: bool, away: float) -> None:
        """Stop the server, as if by hand or as if the power had failed, and start it after so many seconds."""
        async with self._restarting:
            await asyncio.to_thread(self._server.stop if clean else self._server.crash)
            await asyncio.sleep(away)
            await asyncio.to_thread(self._server.start)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()


@asynccontextmanager
async def database(server: PostgresServer) -> AsyncIterator[Database]:
    """A database of its own with the tables of the faults."""
    name = await server.create_database(TEMPLATE)
    made = Database(server, name)
    try:
        await made.ask(lambda connection: connection.execute(text("tables")))
        yield made
    finally:
        await made.close()
        server.start()
        await server.drop_database(name)
