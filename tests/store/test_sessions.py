"""Sessions that callers share: how many there are, which are used again, when they are closed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from perdure.errors import NonExistentWorkflow
from perdure.model.management import Delete
from perdure.store import management, sessions
from perdure.store.pool import connect
from perdure.store.sessions import Connection, Sessions

from tests.support.pgwait import eventually

NAME = "shared"
OPEN = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1"


async def pid(connection: Connection) -> int:
    return connection.get_server_pid()


def gate() -> tuple[asyncio.Event, Callable[[Connection], Awaitable[Any]]]:
    """An operation that keeps its session until the event is set; what it gives is the session's process."""
    opened = asyncio.Event()

    async def wait(connection: Connection) -> int:
        await opened.wait()
        return connection.get_server_pid()

    return opened, wait


async def sleep(connection: Connection) -> None:
    await connection.execute("SELECT pg_sleep(60)")


async def divide(connection: Connection) -> None:
    await connection.execute("SELECT 1/0")


async def test_callers_one_after_the_other_share_a_session_and_those_beside_each_other_do_not(pg_url: str) -> None:
    shared = Sessions(pg_url, application_name=NAME, size=2)
    first = await shared.run(pid)
    assert await shared.run(pid) == first
    opened, wait = gate()
    waiting = [asyncio.ensure_future(shared.run(wait)) for _ in range(5)]
    await asyncio.sleep(0)
    opened.set()
    assert len({first, *(await asyncio.gather(*waiting))}) == 2
    await shared.close(10.0)


async def test_a_refused_statement_leaves_the_session_and_a_cancelled_one_does_not(pg_url: str) -> None:
    shared = Sessions(pg_url, application_name=NAME, size=1)
    first = await shared.run(pid)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await shared.run(divide)
    assert await shared.run(pid) == first
    cancelled = asyncio.ensure_future(shared.run(sleep))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await shared.run(pid) != first
    await shared.close(10.0)


async def test_a_refusal_of_ours_leaves_the_session(pg_url: str) -> None:
    shared = Sessions(pg_url, application_name=NAME, size=1)
    first = await shared.run(pid)
    with pytest.raises(NonExistentWorkflow):
        await shared.run(management.manage, ["nowhere"], Delete())
    assert await shared.run(pid) == first
    await shared.close(10.0)


async def test_sessions_that_nobody_uses_are_closed(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "IDLE_SECONDS", 0.05)
    other = await connect(pg_url, application_name="other")
    shared = Sessions(pg_url, application_name=NAME, size=3)
    opened, wait = gate()
    waiting = [asyncio.ensure_future(shared.run(wait)) for _ in range(3)]

    async def there(wanted: int) -> bool:
        return bool(await other.fetchval(OPEN, NAME) == wanted)

    await eventually(lambda: there(3), "three sessions are in use, for however long")
    opened.set()
    await asyncio.gather(*waiting)
    await eventually(lambda: there(0), "none is in use")
    assert await shared.run(pid)
    await shared.close(10.0)
    await other.close()


async def test_closing_waits_for_what_is_under_way_and_cuts_what_takes_longer(pg_url: str) -> None:
    shared = Sessions(pg_url, application_name=NAME, size=1)
    opened, wait = gate()
    ends = asyncio.ensure_future(shared.run(wait))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(shared.close(30.0))
    await asyncio.sleep(0)
    opened.set()
    assert await ends
    await closing

    shared = Sessions(pg_url, application_name=NAME, size=1)
    await shared.run(pid)
    hangs, waits = asyncio.ensure_future(shared.run(sleep)), asyncio.ensure_future(shared.run(pid))
    await asyncio.sleep(0)
    await shared.close(0.05)
    for cut in (hangs, waits):
        with pytest.raises((asyncpg.InterfaceError, asyncpg.PostgresConnectionError, OSError)):
            await cut
