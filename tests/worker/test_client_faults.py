"""A client whose database hangs, goes away, refuses, or is not there."""

import asyncio
import time
from collections.abc import AsyncIterator

import asyncpg
import perdure
import pytest
from perdure.client import database as client_database
from perdure.client.client import CONNECTIONS
from perdure.errors import (
    ClientClosed,
    ConfigurationError,
    InvalidArgument,
    NonExistentWorkflow,
    SchemaOutOfRange,
    StoreUnavailable,
    WaitTimeout,
)
from perdure.model.states import CancelMode, RunStatus
from perdure.store import clients as store
from perdure.store import runs
from perdure.worker.link import Connection

from tests.support.pgwait import eventually, holding, until_waiting
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy
from tests.support.workerproc import connect_again, working
from tests.worker.clientflows import Receipt, buy, nothing

SOON = 20.0
NOBODY_LISTENS = "postgresql://postgres@127.0.0.1:1/nothing"


@pytest.fixture
async def proxy(pg_server: PostgresServer) -> AsyncIterator[Proxy]:
    async with Proxy(pg_server.port) as proxy:
        yield proxy


async def limited(handle: perdure.Handle[None], limit: float = 0.3) -> WaitTimeout:
    """The error of a wait that has such a limit and keeps it."""
    began = time.monotonic()
    with pytest.raises(WaitTimeout) as error:
        await handle.wait_with_timeout(limit)
    assert time.monotonic() - began < limit + 2.0
    return error.value


async def until_marked(conn: Connection) -> None:
    async def marked() -> bool:
        return bool(await conn.fetchval("SELECT bool_and(awaited) FROM perdure.workflows"))

    await eventually(marked, "the runs are marked")


async def warm(client: perdure.Client) -> None:
    """All its connections are open and know the statement: a further start needs one answer only."""
    await asyncio.gather(*(client.start(nothing) for _ in range(CONNECTIONS)))


# -- the limit of a wait


async def test_a_limit_holds_while_no_answer_comes(db: str, conn: Connection, proxy: Proxy) -> None:
    async with perdure.Client(proxy.through(db), "ns") as client:
        handle = await client.start(nothing)
        waiting = asyncio.ensure_future(handle.wait())
        await until_marked(conn)
        proxy.hold_answers()
        await limited(handle)
        await limited(handle)
        proxy.release()
        await runs.cancel(conn, handle.id, CancelMode.IMMEDIATE, "by the test")
        assert await asyncio.wait_for(waiting, SOON) is RunStatus.CANCELLED


async def test_a_limit_holds_while_the_first_connection_hangs(db: str, proxy: Proxy) -> None:
    proxy.hold_questions()
    async with perdure.Client(proxy.through(db), "ns") as client:
        await limited(client.handle("anything", nothing))
        proxy.cut()


async def test_a_limit_holds_while_the_table_is_locked(db: str, conn: Connection) -> None:
    async with perdure.Client(db, "ns") as client:
        handle = await client.start(nothing)
        async with holding(db, ("LOCK TABLE perdure.workflows",)):
            waiting = asyncio.ensure_future(handle.wait())
            await until_waiting(conn)
            await limited(handle)
        await runs.cancel(conn, handle.id, CancelMode.IMMEDIATE, "by the test")
        assert await asyncio.wait_for(waiting, SOON) is RunStatus.CANCELLED


async def test_a_wait_that_comes_too_late_says_what_is_wrong_with_the_database(db: str, proxy: Proxy) -> None:
    async with perdure.Client(proxy.through(db), "ns") as client:
        handle = await client.start(nothing)
        with pytest.raises(WaitTimeout):
            await handle.wait(0.5)
        proxy.refuse()
        proxy.cut()

        async def told() -> bool:
            return "the database does not answer" in (await limited(handle, 0.2)).message

        await eventually(told, "the error says it")


# -- outages


async def test_a_call_whose_connection_breaks_says_what_broke(db: str, conn: Connection, proxy: Proxy) -> None:
    async with perdure.Client(proxy.through(db), "ns") as client:
        await warm(client)
        async with holding(db, ("LOCK TABLE perdure.workflows",)):
            asking = asyncio.ensure_future(client._database.call(store.existing, ["any"]))
            await until_waiting(conn)
            proxy.cut()
            with pytest.raises(StoreUnavailable) as error:
                await asking
        assert "released" not in error.value.message


async def test_a_wait_goes_on_over_a_restart_of_the_database(db: str, pg_server: PostgresServer) -> None:
    async with perdure.Client(db, "ns") as client:
        handle = await client.start(nothing)
        waiting = asyncio.ensure_future(handle.wait(poll=0.1))
        conn = await connect_again(db)
        await until_marked(conn)
        await asyncio.to_thread(pg_server.restart)
        conn = await connect_again(db)
        await runs.cancel(conn, handle.id, CancelMode.IMMEDIATE, "by the test")
        assert await asyncio.wait_for(waiting, 2 * SOON) is RunStatus.CANCELLED
        await conn.close()


async def test_a_client_without_its_listener_polls_and_hears_again_later(db: str, conn: Connection) -> None:
    """The end comes while it is deaf: it asks when it has connected again."""
    async with perdure.Client(db, "ns") as client:
        handle = await client.start(buy, "1", 5)
        waiting = asyncio.ensure_future(handle.result(poll=60))
        await until_marked(conn)

        async def listens() -> int | None:
            pid: int | None = await conn.fetchval(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'perdure-client-listener'"
                " AND datname = current_database() AND query LIKE 'LISTEN%'"
            )
            return pid

        await conn.execute("SELECT pg_terminate_backend($1)", await eventually(listens, "the client listens"))
        async with working(db):
            assert await asyncio.wait_for(waiting, SOON) == Receipt("1", 5)


async def test_a_start_whose_answer_is_lost_is_made_again_and_the_run_exists_once(
    db: str, conn: Connection, proxy: Proxy
) -> None:
    async with perdure.Client(proxy.through(db), "ns") as client:
        await warm(client)
        proxy.hold_answers()
        starting = asyncio.ensure_future(client.start(buy.options(id="mine"), "1", 5))

        async def there() -> bool:
            return await runs.get_status(conn, "mine") is not None

        await eventually(there, "the run is created")
        assert not starting.done()
        proxy.cut()
        handle = await asyncio.wait_for(starting, SOON)
    assert handle.id == "mine"
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == CONNECTIONS + 1


async def test_a_run_that_is_started_and_awaited_in_one_survives_the_loss_of_the_answer(
    db: str, conn: Connection, proxy: Proxy
) -> None:
    async with perdure.Client(proxy.through(db), "ns") as client:
        await warm(client)
        proxy.hold_answers()
        running = asyncio.ensure_future(client.run(buy.options(id="mine"), "1", 5))

        async def there() -> bool:
            return await runs.get_status(conn, "mine") is not None

        await eventually(there, "the run is created")
        proxy.cut()
        async with working(db):
            assert await asyncio.wait_for(running, SOON) == Receipt("1", 5)


# -- a database that is not there, or not right


@pytest.mark.parametrize("url", ["mysql://root@localhost/db", "sqlite:///x.db", "localhost:5432", ""])
def test_a_url_that_is_not_of_postgres_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="postgresql://"):
        perdure.Client(url)


def test_without_a_url_the_environment_says_where_the_database_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERDURE_DATABASE_URL", raising=False)
    with pytest.raises(ConfigurationError, match="PERDURE_DATABASE_URL"):
        perdure.Client()
    monkeypatch.setenv("PERDURE_DATABASE_URL", "redis://localhost")
    with pytest.raises(ConfigurationError, match="postgresql://"):
        perdure.Client()
    monkeypatch.setenv("PERDURE_DATABASE_URL", NOBODY_LISTENS)
    perdure.Client()


@pytest.mark.parametrize(("namespace", "pool"), [("", "p"), ("n" * 64, "p"), ("n", "a\x00")])
def test_a_namespace_or_pool_that_cannot_be_is_refused(namespace: str, pool: str) -> None:
    with pytest.raises(InvalidArgument):
        perdure.Client(NOBODY_LISTENS, namespace, pool)


async def test_a_database_that_never_answered_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_database, "RETRY_SECONDS", 0.1)
    async with perdure.Client(NOBODY_LISTENS, "ns") as client:
        with pytest.raises(StoreUnavailable, match="whether run mine exists is not known") as error:
            await client.start(nothing.options(id="mine"))
        assert error.value.run_ids == ("mine",)
        assert error.value.retryable
        handle = client.handle("mine", nothing)
        for question in (handle.wait, handle.result, handle.status, handle.cancel):
            with pytest.raises(StoreUnavailable):
                await question()


async def test_a_database_without_the_schema_says_what_to_do(empty_pg_url: str) -> None:
    async with perdure.Client(empty_pg_url, "ns") as client:
        with pytest.raises(SchemaOutOfRange, match="perdure migrate"):
            await client.start(nothing)
        with pytest.raises(SchemaOutOfRange, match="perdure migrate"):
            await client.handle("x").wait()


# -- closing


async def test_a_closed_client_ends_its_waits_and_leaves_no_session(db: str, conn: Connection) -> None:
    client = perdure.Client(db, "ns")
    handle = await client.start(nothing)
    waiting = asyncio.ensure_future(handle.wait())
    await until_marked(conn)

    await client.close()
    await client.close()

    with pytest.raises(ClientClosed):
        await waiting
    for question in (handle.wait, handle.status, handle.cancel, lambda: client.start(nothing)):
        with pytest.raises(ClientClosed):
            await question()
    assert await runs.get_status(conn, handle.id) is RunStatus.ENQUEUED

    async def gone() -> bool:
        return not await conn.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name LIKE 'perdure-client%' AND datname = current_database()"
        )

    await eventually(gone, "the sessions are closed")


async def test_a_client_whose_database_hangs_closes_all_the_same(db: str, conn: Connection, proxy: Proxy) -> None:
    client = perdure.Client(proxy.through(db), "ns")
    handle = await client.start(nothing)
    waiting = asyncio.ensure_future(handle.wait())
    await until_marked(conn)
    proxy.hold_answers()
    asking = asyncio.ensure_future(handle.status())

    await asyncio.wait_for(client.close(), SOON)

    with pytest.raises(ClientClosed):
        await waiting
    with pytest.raises(ClientClosed):
        await asking


async def test_an_abandoned_wait_disturbs_no_other(db: str, conn: Connection) -> None:
    async with perdure.Client(db, "ns") as client:
        handle = await client.start(nothing)
        first, second = (asyncio.ensure_future(handle.wait(poll=0.05)) for _ in range(2))
        await until_marked(conn)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await runs.cancel(conn, handle.id, CancelMode.IMMEDIATE, "by the test")
        assert await asyncio.wait_for(second, SOON) is RunStatus.CANCELLED


async def test_a_cancelled_start_leaves_nothing_behind_in_the_client(db: str, conn: Connection) -> None:
    """The table is locked: the start hangs, is cancelled, and the client goes on with a fresh connection."""
    async with perdure.Client(db, "ns") as client:
        await client.start(nothing)
        async with holding(db, ("LOCK TABLE perdure.workflows",)):
            hanging = asyncio.ensure_future(client.run(nothing.options(id="never")))
            await until_waiting(conn)
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
        with pytest.raises((NonExistentWorkflow, WaitTimeout)):
            await client.handle("never").wait(0.5)
        await client.start(nothing)


def test_asyncpg_errors_never_show_through() -> None:
    """What the database says is told in this project's errors, which name it."""
    for error in (asyncpg.DeadlockDetectedError("d"), ConnectionResetError("r"), TimeoutError()):
        assert isinstance(client_database.translated(error), StoreUnavailable)
    assert isinstance(client_database.translated(asyncpg.UndefinedTableError("t")), SchemaOutOfRange)
    assert isinstance(client_database.translated(asyncpg.CharacterNotInRepertoireError("c")), InvalidArgument)
