"""Notifications that runs became ready, or that awaited ones have ended: they only hurry what polling finds anyway.

A listener has a session of its own: the claimer's, a client's. A NOTIFY is sent coalesced and in a transaction of its
own, because it takes a lock of the whole server while it commits.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import asyncpg

from perdure.store.pool import connect, connection_errors
from perdure.store.statements import sql

CHANNEL = "perdure_ready"
ENDED_CHANNEL = "perdure_ended"

CANCELLED = ":cancelled"
"""Stands where else a namespace stands: runs were cancelled. No namespace is called so."""
STREAMS_CHANNEL = "perdure_streams"

ENDED_BYTES = 7900
"""Bytes of ids in one notification: Postgres takes less than 8000."""

PING_SECONDS = 20.0
"""An idle session behind a dead line is noticed within this and one statement's timeout."""

BACKOFF_SECONDS = (0.2, 10.0)
"""First and longest pause between attempts to connect; polling goes on meanwhile."""


async def notify_ready(connection: asyncpg.Connection[Any], namespace: str, pool: str) -> None:
    """Tell the workers of a pool to claim now. Call it outside of any transaction."""
    await connection.execute(sql("notify_ready"), f"{namespace}/{pool}")


async def notify_cancelled(connection: asyncpg.Connection[Any], run_ids: Iterable[str]) -> None:
    """Tell the workers of these runs to ask what is wanted of them. Call it outside of any transaction."""
    for payload in _payloads(run_ids):
        await connection.execute(sql("notify_ready"), f"{CANCELLED}/{payload}")


async def notify_ended(connection: asyncpg.Connection[Any], run_ids: Iterable[str]) -> None:
    """Tell the clients that these runs have ended. Call it outside of any transaction."""
    for payload in _payloads(run_ids):
        await connection.execute(sql("notify_ended"), payload)


async def notify_streams(connection: asyncpg.Connection[Any], run_ids: Iterable[str]) -> None:
    """Tell the clients that streams of these runs were written to. Call it outside of any transaction."""
    for payload in _payloads(run_ids):
        await connection.execute(sql("notify_streams"), payload)


def _payloads(run_ids: Iterable[str]) -> Iterator[str]:
    """Ids in lines, as many as one notification takes. An id that is too long by itself is left to the polls."""
    lines: list[str] = []
    size = 0
    for run_id in run_ids:
        more = len(run_id.encode()) + 1
        if lines and size + more > ENDED_BYTES:
            yield "\n".join(lines)
            lines, size = [], 0
        if more <= ENDED_BYTES:
            lines.append(run_id)
            size += more
    if lines:
        yield "\n".join(lines)


class _Subscription:
    """Calls `on_payload(text)` for each notification on a channel, and `on_gap()` whenever some may have been missed:
    after every (re)connection. `on_lost(error)` says that it will connect again. All are called in the event loop
    and must not block."""

    def __init__(
        self,
        url: str,
        channel: str,
        on_payload: Callable[[str], None],
        on_gap: Callable[[], None],
        *,
        application_name: str,
        on_lost: Callable[[BaseException], None],
    ) -> None:
        self._url = url
        self._channel = channel
        self._on_payload = on_payload
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
        await connection.add_listener(self._channel, self._received)
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
        self._on_payload(str(payload))


class Listener(_Subscription):
    """Calls `on_ready(namespace, pool)` for each pool that has ready runs, `on_cancelled(ids)` for runs that were
    cancelled and go on, and `on_gap()` after every (re)connection. `on_lost(error)` says that it will connect again.
    All are called in the event loop and must not block."""

    def __init__(
        self,
        url: str,
        on_ready: Callable[[str, str], None],
        on_gap: Callable[[], None],
        *,
        application_name: str,
        on_lost: Callable[[BaseException], None] = lambda _: None,
        on_cancelled: Callable[[list[str]], None] = lambda _: None,
    ) -> None:
        def ready(payload: str) -> None:
            namespace, _, rest = payload.partition("/")
            if namespace == CANCELLED:
                on_cancelled(rest.split("\n"))
            else:
                on_ready(namespace, rest)

        super().__init__(url, CHANNEL, ready, on_gap, application_name=application_name, on_lost=on_lost)


class EndedListener(_Subscription):
    """Calls `on_ended(ids)` for runs that have ended and were awaited, by whomever, and `on_gap()` after every
    (re)connection. `on_lost(error)` says that it will connect again. All are called in the event loop and must not
    block."""

    def __init__(
        self,
        url: str,
        on_ended: Callable[[list[str]], None],
        on_gap: Callable[[], None],
        *,
        application_name: str,
        on_lost: Callable[[BaseException], None],
    ) -> None:
        super().__init__(
            url,
            ENDED_CHANNEL,
            lambda payload: on_ended(payload.split("\n")),
            on_gap,
            application_name=application_name,
            on_lost=on_lost,
        )


class StreamListener(_Subscription):
    """Calls `on_written(ids)` for runs to whose streams something was written, and `on_gap()` after every
    (re)connection. Both are called in the event loop and must not block."""

    def __init__(
        self,
        url: str,
        on_written: Callable[[list[str]], None],
        on_gap: Callable[[], None],
        *,
        application_name: str,
    ) -> None:
        super().__init__(
            url,
            STREAMS_CHANNEL,
            lambda payload: on_written(payload.split("\n")),
            on_gap,
            application_name=application_name,
            on_lost=lambda _: None,
        )
