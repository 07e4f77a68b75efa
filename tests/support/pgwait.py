"""Waiting without sleeping: for a rival session to hang on a lock, or for anything else to become true.

A race is tested by holding the lock in one session, starting the rival, waiting here until Postgres itself shows
that it waits, and letting go.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg

DEADLINE_SECONDS = 20.0
POLL_SECONDS = 0.005

T = TypeVar("T")


async def eventually(
    condition: Callable[[], Awaitable[T]], what: str = "the condition", seconds: float = DEADLINE_SECONDS
) -> T:
    """Ask again and again until the answer is true; that answer. Fails with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        answer = await condition()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        await asyncio.sleep(POLL_SECONDS)


async def until_waiting(observer: "asyncpg.Connection[Any]", count: int = 1) -> None:
    """Until `count` sessions of the observer's database wait for a lock. Needs a session of its own."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

    async def enough() -> bool:
        return bool(await observer.fetchval(query) >= count)

    await eventually(enough, f"{count} session(s) waiting for a lock")


async def waiting(observer: "asyncpg.Connection[Any]", rival: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start the rival and return its task once it waits for a lock that somebody holds; let go, then await it."""
    task = asyncio.ensure_future(rival)
    try:
        await until_waiting(observer)
    except AssertionError:
        task.cancel()
        raise
    return task


@asynccontextmanager
async def holding(url: str, *statements: tuple[Any, ...]) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """An open transaction in a session of its own in which the statements (text, *arguments) have run.

    It is committed at the end of the block unless the block has ended it itself.
    """
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        for text, *arguments in statements:
            await connection.execute(text, *arguments)
        yield connection
        if connection.is_in_transaction():
            await transaction.commit()
    finally:
        await connection.close()


async def race(url: str, held: tuple[Any, ...], rival: Coroutine[Any, Any, T], *more: tuple[Any, ...]) -> T:
    """Run the held statements in an open transaction, start the rival, wait until it waits, commit; its answer."""
    observer = await asyncpg.connect(url)
    try:
        async with holding(url, held, *more):
            task = await waiting(observer, rival)
        return await task
    finally:
        await observer.close()
