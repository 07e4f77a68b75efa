"""Idempotency keys on a real database: who may, who waits, what a holder that is gone leaves behind."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from perdure import idempotency
from perdure.errors import DecodingFailed, KeyInProgress, KeyLost, PayloadTooLarge
from perdure.idempotency import commit_on_success, once, remember
from perdure.store import idempotency as store
from perdure.store.idempotency import Key
from pydantic import BaseModel

from tests.store.builders import Connection
from tests.support.idempotency import Body, let_expire
from tests.support.pgwait import eventually, holding, until_waiting


@pytest.fixture
async def pool(pg_url: str, conn: Connection) -> AsyncIterator["asyncpg.Pool[Any]"]:
    async with asyncpg.create_pool(pg_url, min_size=0, max_size=10) as made:
        yield made


# -- once


async def test_once_runs_once(pool: Any) -> None:
    body = Body("done")
    assert await once("k", body, pool=pool) == idempotency.Outcome(True, "done")
    second = await once("k", body, pool=pool)
    assert not second
    assert second.value is None
    assert body.calls == 1


async def test_once_does_not_run_again_what_failed(pool: Any) -> None:
    body = Body(failures=1)
    with pytest.raises(ConnectionError):
        await once("k", body, pool=pool)
    assert not await once("k", body, pool=pool)


async def test_once_is_marked_before_the_body_begins(pool: Any, conn: Connection) -> None:
    async def body() -> int:
        return int(await conn.fetchval("SELECT state FROM perdure.idempotency_keys WHERE key = 'k'"))

    assert (await once("k", body, pool=pool)).value == 20


@pytest.mark.parametrize("ttl", [60, timedelta(minutes=1)])
async def test_once_is_free_again_after_its_time_to_live(pool: Any, conn: Connection, ttl: Any) -> None:
    body = Body()
    assert await once("k", body, ttl=ttl, pool=pool)
    assert not await once("k", body, ttl=ttl, pool=pool)
    await let_expire(conn)
    assert await once("k", body, ttl=ttl, pool=pool)


async def test_without_a_time_to_live_a_key_is_kept_for_ever(pool: Any, conn: Connection) -> None:
    await once("k", Body(), pool=pool)
    assert await conn.fetchval("SELECT expires_at FROM perdure.idempotency_keys") is None


async def test_of_twenty_at_once_one_runs(pool: Any) -> None:
    body = Body()
    outcomes = await asyncio.gather(*(once("k", body, pool=pool) for _ in range(20)))
    assert sum(map(bool, outcomes)) == 1
    assert body.calls == 1


async def test_two_that_mark_at_once_wait_for_each_other(pool: Any, conn: Connection, pg_url: str) -> None:
    body = Body()
    async with holding(pg_url) as first:
        assert await store.mark(first, Key("default", "k", "other"), None)
        second = asyncio.ensure_future(once("k", body, pool=pool))
        await until_waiting(conn)
    assert not await second
    assert body.calls == 0


async def test_keys_of_other_scopes_are_other_keys(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await once("k", Body(), scope="a", pool=pool)
    assert await once("k", Body(), scope="b", pool=pool)
    assert await once("k", Body(), pool=pool)
    monkeypatch.setenv("PERDURE_NAMESPACE", "a")
    assert not await once("k", Body(), pool=pool)


# -- commit_on_success


async def test_commit_on_success_runs_until_it_has_succeeded(pool: Any) -> None:
    body = Body("done", failures=2)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await commit_on_success("k", body, pool=pool)
    assert await commit_on_success("k", body, pool=pool) == idempotency.Outcome(True, "done")
    assert await commit_on_success("k", body, pool=pool) == idempotency.Outcome(False)
    assert body.calls == 3


async def test_of_twenty_at_once_one_runs_and_the_others_wait_for_it(pool: Any) -> None:
    gate = asyncio.Event()
    body = Body(gate=gate)
    tasks = [asyncio.ensure_future(commit_on_success("k", body, pool=pool)) for _ in range(20)]
    await body.begun.wait()
    assert not any(task.done() for task in tasks)
    gate.set()
    assert sum(map(bool, await asyncio.gather(*tasks))) == 1
    assert body.calls == 1


async def test_of_twenty_at_once_each_failure_gives_the_next_its_turn(pool: Any) -> None:
    body = Body(failures=3)
    outcomes = await asyncio.gather(
        *(commit_on_success("k", body, pool=pool) for _ in range(20)), return_exceptions=True
    )
    assert sum(isinstance(outcome, ConnectionError) for outcome in outcomes) == 3
    assert body.calls == 4


async def test_who_does_not_wait_is_told_that_somebody_is_at_it(pool: Any) -> None:
    gate = asyncio.Event()
    body = Body(gate=gate)
    holder = asyncio.ensure_future(commit_on_success("k", body, pool=pool))
    await body.begun.wait()
    for wait in (0, 0.05):
        with pytest.raises(KeyInProgress, match="key k"):
            await commit_on_success("k", body, wait=wait, pool=pool)
    gate.set()
    assert await holder


async def test_a_cancelled_body_frees_the_key(pool: Any) -> None:
    body = Body(gate=asyncio.Event())
    holder = asyncio.ensure_future(commit_on_success("k", body, pool=pool))
    await body.begun.wait()
    holder.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holder
    assert await commit_on_success("k", Body(), wait=0, pool=pool)


async def test_a_holder_that_died_has_the_key_until_its_lease_is_out(pool: Any, conn: Connection) -> None:
    assert await store.claim(conn, Key("default", "k", "dead"), 30.0)
    body = Body()
    with pytest.raises(KeyInProgress):
        await commit_on_success("k", body, wait=0, pool=pool)
    waiting = asyncio.ensure_future(commit_on_success("k", body, pool=pool))
    await let_expire(conn)
    assert await waiting
    assert body.calls == 1


async def test_the_lease_is_renewed_while_the_body_runs(pool: Any, conn: Connection) -> None:
    async def end() -> Any:
        return await conn.fetchval("SELECT expires_at FROM perdure.idempotency_keys")

    async def body() -> None:
        first = await end()

        async def later() -> bool:
            return bool(await end() > first)

        await eventually(later, "the lease is renewed")

    assert await commit_on_success("k", body, lease=0.3, pool=pool)


async def test_a_late_holder_keeps_the_key_that_nobody_took(pool: Any, conn: Connection) -> None:
    async def body() -> str:
        await let_expire(conn)
        await store.sweep(conn, 10)
        return "late"

    assert (await commit_on_success("k", body, pool=pool)).value == "late"
    assert not await commit_on_success("k", Body(), pool=pool)


async def test_a_holder_that_was_replaced_is_told_and_changes_nothing(pool: Any, conn: Connection) -> None:
    successor = Key("default", "k", "successor")

    async def body() -> None:
        await let_expire(conn)
        assert await store.claim(conn, successor, 30.0)

    with pytest.raises(KeyLost, match="key k"):
        await commit_on_success("k", body, pool=pool)
    assert await conn.fetchval("SELECT token FROM perdure.idempotency_keys WHERE state = 10") == "successor"
    assert await store.finish(conn, successor, None, None)


async def test_another_token_changes_nothing(conn: Connection) -> None:
    mine, other = Key("s", "k", "mine"), Key("s", "k", "other")
    assert await store.claim(conn, mine, 30.0)
    before = await conn.fetch("SELECT * FROM perdure.idempotency_keys")
    assert not await store.mark(conn, other, None)
    assert not await store.claim(conn, other, 30.0)
    assert not await store.renew(conn, other, 30.0)
    assert not await store.finish(conn, other, "1", None)
    await store.release(conn, other)
    assert await conn.fetch("SELECT * FROM perdure.idempotency_keys") == before


async def test_statements_sent_twice_answer_the_same(conn: Connection) -> None:
    """As after an answer that was lost."""
    mine = Key("s", "k", "mine")
    assert [await store.claim(conn, mine, 30.0) for _ in range(2)] == [True, True]
    assert [await store.finish(conn, mine, "1", None) for _ in range(2)] == [True, True]
    assert not await store.claim(conn, mine, 30.0), "it is done: a late copy of the claim takes nothing back"
    assert [await store.mark(conn, Key("s", "m", "mine"), None) for _ in range(2)] == [True, True]


# -- remember


class Order(BaseModel):
    id: int


async def test_remember_gives_later_callers_the_value(pool: Any) -> None:
    calls = 0

    async def fetch() -> Order:
        nonlocal calls
        calls += 1
        return Order(id=7)

    assert [await remember("k", fetch, pool=pool) for _ in range(3)] == [Order(id=7)] * 3
    assert calls == 1


async def test_remember_of_twenty_at_once_runs_one(pool: Any) -> None:
    body = Body({"a": [1]})
    assert await asyncio.gather(*(remember("k", body, pool=pool) for _ in range(20))) == [{"a": [1]}] * 20
    assert body.calls == 1


async def test_remember_remembers_none(pool: Any) -> None:
    body = Body(None)
    assert [await remember("k", body, pool=pool) for _ in range(2)] == [None, None]
    assert body.calls == 1


async def test_remember_forgets_after_its_time_to_live(pool: Any, conn: Connection) -> None:
    body = Body("v")
    for _ in range(2):
        assert await remember("k", body, ttl=60, pool=pool) == "v"
        await let_expire(conn)
    assert body.calls == 2


async def test_a_value_that_cannot_be_stored_is_not_remembered(pool: Any) -> None:
    with pytest.raises(PayloadTooLarge, match="the value of key k"):
        await remember("k", Body("x" * 2_000_000), pool=pool)
    assert await remember("k", Body("small"), wait=0, pool=pool) == "small"


async def test_a_value_of_another_type_is_said_to_be_one(pool: Any) -> None:
    await remember("k", Body("text"), pool=pool)
    with pytest.raises(DecodingFailed, match="the value of key k is not Order"):
        await remember("k", Body(), result=Order, pool=pool)


# -- keys


@pytest.mark.parametrize("key", ["\0", "x" * 10_000, "\ud800", "a\nb", "sha256:abc", "\u20ac" * 100])
async def test_keys_that_postgres_would_not_take_are_hashed(pool: Any, conn: Connection, key: str) -> None:
    assert await once(key, Body(), pool=pool)
    assert not await once(key, Body(), pool=pool)
    assert await once(key + "x", Body(), pool=pool)
    stored = await conn.fetchval("SELECT key FROM perdure.idempotency_keys ORDER BY created_at LIMIT 1")
    assert stored.startswith("sha256:")
    assert await once(stored, Body(), pool=pool), "what looks like the hash of a key is not that key"


async def test_ordinary_keys_are_readable(pool: Any, conn: Connection) -> None:
    await once("charge/r\u00e9sum\u00e9 1", Body(), pool=pool)
    assert await conn.fetchval("SELECT key FROM perdure.idempotency_keys") == "charge/r\u00e9sum\u00e9 1"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"key": ""}, ValueError),
        ({"key": 7}, TypeError),
        ({"ttl": -1}, ValueError),
        ({"ttl": float("inf")}, ValueError),
        ({"lease": 0}, ValueError),
        ({"wait": -1}, ValueError),
        ({"scope": ""}, ValueError),
    ],
)
async def test_arguments_that_make_no_sense_are_refused(
    pool: Any, arguments: dict[str, Any], error: type[Exception]
) -> None:
    body = Body()
    with pytest.raises(error):
        await commit_on_success(**{"key": "k", "body": body, "pool": pool, **arguments})
    assert body.calls == 0
