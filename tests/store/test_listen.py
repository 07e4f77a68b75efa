import asyncio
from collections.abc import AsyncIterator

import pytest
from perdure.store import listen
from perdure.store.listen import Listener, notify_cancelled, notify_ready

from tests.store.builders import Connection
from tests.support.pgwait import eventually
from tests.support.postgres import PostgresServer


class Heard:
    """A running listener and what it has said."""

    def __init__(self, url: str) -> None:
        self.ready: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.gaps: asyncio.Queue[None] = asyncio.Queue()
        self.losses: asyncio.Queue[BaseException] = asyncio.Queue()
        self.cancelled: asyncio.Queue[list[str]] = asyncio.Queue()
        self.listener = Listener(
            url,
            lambda namespace, pool: self.ready.put_nowait((namespace, pool)),
            lambda: self.gaps.put_nowait(None),
            application_name="listener",
            on_lost=self.losses.put_nowait,
            on_cancelled=self.cancelled.put_nowait,
        )


@pytest.fixture
async def heard(pg_url: str) -> AsyncIterator[Heard]:
    heard = Heard(pg_url)
    task = asyncio.create_task(heard.listener.run())
    yield heard
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


async def test_notifications_arrive_with_namespace_and_pool(heard: Heard, conn: Connection) -> None:
    await heard.gaps.get()

    await notify_ready(conn, "ns", "default")
    await notify_ready(conn, "other", "gpu")

    assert [await heard.ready.get(), await heard.ready.get()] == [("ns", "default"), ("other", "gpu")]


async def test_cancelled_runs_are_told_many_at_once_and_are_no_pool(heard: Heard, conn: Connection) -> None:
    await heard.gaps.get()

    await notify_cancelled(conn, ["a/b", "c"])
    await notify_ready(conn, "ns", "default")

    assert await heard.cancelled.get() == ["a/b", "c"]
    assert await heard.ready.get() == ("ns", "default")
    assert heard.ready.empty()


async def test_a_lost_session_is_opened_again_and_the_gap_is_told(heard: Heard, conn: Connection) -> None:
    await heard.gaps.get()

    await conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'listener'")

    await heard.gaps.get()
    await notify_ready(conn, "ns", "default")
    assert await heard.ready.get() == ("ns", "default")


async def test_it_waits_for_a_server_that_is_away(
    monkeypatch: pytest.MonkeyPatch, pg_server: PostgresServer, heard: Heard
) -> None:
    monkeypatch.setattr(listen, "BACKOFF_SECONDS", (0.01, 0.05))
    await heard.gaps.get()

    pg_server.stop()
    assert isinstance(await heard.losses.get(), Exception)
    pg_server.start()

    await heard.gaps.get()


async def test_an_idle_session_is_asked_whether_it_is_there(
    monkeypatch: pytest.MonkeyPatch, conn: Connection, pg_url: str
) -> None:
    monkeypatch.setattr(listen, "PING_SECONDS", 0.01)
    heard = Heard(pg_url)
    task = asyncio.create_task(heard.listener.run())
    await heard.gaps.get()

    async def asked() -> bool:
        query = "SELECT query FROM pg_stat_activity WHERE application_name = 'listener'"
        return "still there" in str(await conn.fetchval(query))

    await eventually(asked, "a ping")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
