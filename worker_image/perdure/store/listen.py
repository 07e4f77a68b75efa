"""Notifications that runs became ready: they only hurry what polling finds anyway.

The listener has a session of its own, used by the claimer. A NOTIFY is sent coalesced and in a transaction of its
own, because it takes a lock of the whole server while it commits.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import asyncpg

from perdure.store.pool import connect, connection_errors
from perdure.store.statements import sql

CHANNEL = "perdure_ready"

PING_SECONDS = 20.0
"""An idle session behind a dead line is noticed within this and one statement's timeout."""

BACKOFF_SECONDS = (0.2, 10.0)
"""First and longest pause between attempts to connect; polling goes on meanwhile."""


async def notify_ready(connection: asyncpg.Connection[Any], namespace: str, pool: str) -> None:
    """Tell the workers of a pool to claim now. Call it outside of any transaction."""
    await connection.execute(sql("notify_ready"), f"{namespace}/{pool}")


class Listener:
    """Calls `on_ready(namespace, pool)` for each notification, and `on_gap()` whenever some may have been missed:
    after every (re)connection. `on_lost(error)` says that it will connect again. All are called in the event loop
    and must not block."""

    def __init__(
        self,
        url: str,
        on_ready: Callable[[str, str], None],
        on_gap: Callable[[], None],
        *,
        application_name: str,
        on_lost: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self._url = url
        self._on_ready = on_ready
        self._on_gap = on_gap
        self._application_name = application_name
        self._on_lost = on_lost

    async def run(self) -> None:
        """Listen until cancelled, connecting again as often as needed."""
        pause, longest = BACKOFF_SECONDS
        while True:
            try:
                connection = await connect(self._url, application_name=self._application_name)
                try:
                    await self._listen(connection)
                    pause = BACKOFF_SECONDS[0]
                    await self._until_lost(connection)
                finally:
                    connection.terminate()
            except (asyncpg.PostgresError, *connection_errors) as error:
                # Not even a refused password ends it: runs are found by polling, and passwords are rotated.
                self._on_lost(error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, keeps no secret
            pause = min(longest, pause * 2)

    async def _listen(self, connection: asyncpg.Connection[Any]) -> None:
        await connection.add_listener(CHANNEL, self._received)
        self._on_gap()

    async def _until_lost(self, connection: asyncpg.Connection[Any]) -> None:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        while not lost.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_SECONDS):
                    await lost.wait()
            if not lost.is_set():
                await connection.execute(sql("ping"))

    def _received(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        namespace, _, pool = str(payload).partition("/")
        self._on_ready(namespace, pool)
