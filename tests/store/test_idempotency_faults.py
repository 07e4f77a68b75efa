"""Idempotency keys and a database that does not answer; what removes them."""

import asyncio
from typing import Any

import asyncpg
import pytest
from perdure import idempotency
from perdure.errors import StoreUnavailable
from perdure.idempotency import commit_on_success, once, remember
from perdure.store import idempotency as store
from perdure.store.idempotency import Key
from perdure.store.statements import sql

from tests.faults.proxy import Armed, FaultProxy
from tests.store.builders import Connection
from tests.support.idempotency import Body, let_expire
from tests.support.pgwait import eventually, holding, until_waiting
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy


async def test_outside_a_run_the_environment_names_the_database(
    pg_url: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_DATABASE_URL", pg_url)
    assert await once("k", Body())
    assert not await once("k", Body())
    assert await remember("r", Body(3)) == 3


async def test_answers_that_never_come_change_nothing(pg_url: str, conn: Connection, pg_server: PostgresServer) -> None:
    """The claim and the finish are both committed without an answer; both are sent again."""

    async def commit_without_answer(proxy: Proxy, begin: asyncio.Event, *lock: Any, ends: str, state: int) -> None:
        """Let go of the lock that the statement waits for, when its answer will not come any more."""

        async def committed() -> bool:
            return bool(await conn.fetchval("SELECT state FROM perdure.idempotency_keys") == state)

        async with holding(pg_url, lock) as holder:
            begin.set()
            await until_waiting(conn)
            proxy.hold_answers()
            await holder.execute(ends)
            await eventually(committed, f"the key says {state}")
            proxy.cut()

    called, gate = asyncio.Event(), asyncio.Event()
    body = Body("v", gate=gate)
    taken = (sql("idempotency_claim"), "default", "k", "rival", 30.0)
    locked = ("SELECT 1 FROM perdure.idempotency_keys FOR UPDATE",)
    async with Proxy(pg_server.port) as proxy, asyncpg.create_pool(proxy.through(pg_url), min_size=0) as pool:

        async def remembering() -> Any:
            await called.wait()
            return await remember("k", body, pool=pool)

        running = asyncio.ensure_future(remembering())
        await commit_without_answer(proxy, called, *taken, ends="ROLLBACK", state=10)
        await body.begun.wait()
        await commit_without_answer(proxy, gate, *locked, ends="COMMIT", state=20)
        assert await running == "v"
        assert await remember("k", body, pool=pool) == "v"
    assert body.calls == 1


@pytest.mark.parametrize("statement", ["idempotency_claim", "idempotency_finish"])
async def test_a_connection_that_never_answers_is_given_up(
    pg_url: str, conn: Connection, pg_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """It hangs and nobody cuts it, as behind a pooler that has lost its server; what was sent was executed."""
    monkeypatch.setattr(idempotency, "ANSWER", 0.3)
    body = Body("v")
    async with FaultProxy(pg_server.port) as proxy, asyncpg.create_pool(proxy.through(pg_url), min_size=0) as pool:
        hangs = Armed("blackhole", statement)
        proxy.arm(hangs)
        assert await asyncio.wait_for(remember("k", body, pool=pool), 20) == "v"
        assert hangs.hit.is_set()
    assert body.calls == 1


async def test_a_database_that_does_not_answer_is_an_error_after_a_lease(
    pg_url: str, pg_server: PostgresServer
) -> None:
    async with Proxy(pg_server.port) as proxy:
        pool = asyncpg.create_pool(proxy.through(pg_url), min_size=0, max_size=1)
        async with pool:
            proxy.refuse()
            body = Body()
            with pytest.raises(StoreUnavailable):
                await commit_on_success("k", body, lease=0.2, pool=pool)
    assert body.calls == 0


async def test_expired_keys_are_removed_in_batches(conn: Connection) -> None:
    for number in range(5):
        assert await store.mark(conn, Key("s", f"done{number}", "t"), 60.0)
    assert await store.claim(conn, Key("s", "held", "t"), 60.0)
    assert await store.sweep(conn, 10) == 0
    await let_expire(conn)
    assert [await store.sweep(conn, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert await conn.fetchval("SELECT key FROM perdure.idempotency_keys") == "held"
    await let_expire(conn, 3700.0)
    assert await store.sweep(conn, 10) == 1
