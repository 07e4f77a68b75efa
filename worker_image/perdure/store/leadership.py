"""Leadership of a name, for processes of which one should act at a time. Used by the operator.

By an advisory lock, which a session gives back however it ends, so that a successor leads within a second. Behind a
pooler, which lends sessions for a transaction, by a row with an expiry: a successor leads at once after a clean end,
within `HELD_SECONDS` after a crash. Neither is a fence: a process that was cut off may believe for a few seconds that
it still leads, so what a leader does must bear being done twice.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import asyncpg

from perdure.store.pool import connect, connection_errors
from perdure.store.pooler import pooled
from perdure.store.statements import sql

APPLICATION_NAME = "perdure-leader"

HELD_SECONDS = 10.0
"""How long a row counts without being renewed: five renewals, and a third of the default lease of the workers."""

RELEASE_SECONDS = 1.0
"""Longest time for giving the row back: after it the row expires by itself."""


class Leadership:
    """One session that tries for the leadership of a name. Open with `async with`; errors of the line are asyncpg's."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self._token = secrets.token_hex(8) if pooled(url) else ""
        self._connection: asyncpg.Connection[Any] | None = None

    async def __aenter__(self) -> Self:
        self._connection = await connect(self._url, application_name=APPLICATION_NAME)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        try:
            if self._token:
                with suppress(asyncpg.PostgresError, *connection_errors):
                    async with asyncio.timeout(RELEASE_SECONDS):
                        await connection.execute(sql("leader_release"), self._name, self._token)
        finally:
            # Not a polite close, which could wait for a server that no longer answers.
            connection.terminate()

    async def acquire(self) -> bool:
        """Whether this session leads now; returns at once when another one does."""
        assert self._connection is not None
        if self._token:
            return await self._renew(self._connection)
        return bool(await self._connection.fetchval(sql("leader_try"), self._name))

    async def held(self) -> bool:
        """Whether it still leads. Behind a pooler this renews the row: ask more often than every `HELD_SECONDS`."""
        assert self._connection is not None
        if self._token:
            return await self._renew(self._connection)
        return bool(await self._connection.fetchval(sql("leader_held"), self._name))

    async def _renew(self, connection: asyncpg.Connection[Any]) -> bool:
        found = await connection.fetchval(sql("leader_claim"), self._name, self._token, HELD_SECONDS)
        return found is not None
