"""Leadership by a session's advisory lock, for processes of which one should act at a time. Used by the operator.

A session that ends, however it ends, gives the lock back. It is no fence: a process that was cut off may believe
for a few seconds that it still leads, so what a leader does must bear being done twice.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import asyncpg

from perdure.store.pool import connect
from perdure.store.statements import sql

APPLICATION_NAME = "perdure-leader"


class Leadership:
    """One session that tries for the lock of a name. Open with `async with`; errors of the line are asyncpg's."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self._connection: asyncpg.Connection[Any] | None = None

    async def __aenter__(self) -> Self:
        self._connection = await connect(self._url, application_name=APPLICATION_NAME)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            # Not a polite close, which could wait for a server that no longer answers.
            self._connection.terminate()
            self._connection = None

    async def acquire(self) -> bool:
        """Whether this session holds the lock now; returns at once when another one has it."""
        assert self._connection is not None
        return bool(await self._connection.fetchval(sql("leader_try"), self._name))

    async def held(self) -> bool:
        """Whether the session is there and holds the lock (behind a transaction pooler it would not)."""
        assert self._connection is not None
        return bool(await self._connection.fetchval(sql("leader_held"), self._name))
