"""Idempotency keys inside runs: the worker's connections, its death, and transactions."""

import signal

import pytest
from perdure.model.states import RunStatus
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import WorkerProcess, effects, enqueue, finished, open_gate, until_effect, working
from tests.worker import idemflows
from tests.worker.test_transaction import result

assert idemflows


async def test_runs_of_one_namespace_share_a_key(db: str, conn: Connection) -> None:
    for number in range(6):
        await enqueue(conn, "idem.call", "remembered", ["k"], run_id=f"r{number}")
    async with working(db, slots=6):
        for number in range(6):
            assert await finished(conn, f"r{number}") is RunStatus.SUCCEEDED
            assert await result(conn, f"r{number}") == "7"
    assert await conn.fetchval("SELECT count(*) FROM public.effects") == 1
    assert await conn.fetchval("SELECT scope FROM perdure.idempotency_keys") == "ns"


async def test_a_step_waits_for_another_run_that_is_at_it(db: str, conn: Connection) -> None:
    for number in range(3):
        await enqueue(conn, "idem.call", "guarded", ["k", "g"], run_id=f"r{number}")
    async with working(db):

        async def begun() -> bool:
            return bool(await conn.fetchval("SELECT count(*) FROM public.effects") == 1)

        await eventually(begun, "one of them has begun")
        await open_gate(conn, "g")
        for number in range(3):
            assert await finished(conn, f"r{number}") is RunStatus.SUCCEEDED
    results = [await result(conn, f"r{number}") for number in range(3)]
    assert sorted(results) == ['"ran"', '"was done"', '"was done"']
    assert await conn.fetchval("SELECT count(*) FROM public.effects") == 2


async def test_a_holder_that_is_killed_frees_the_key_with_its_lease(db: str, conn: Connection) -> None:
    await enqueue(conn, "idem.call", "guarded", ["k", "g"], run_id="r1")
    with WorkerProcess(db, modules="tests.worker.idemflows", pod_uid="pod-1", lease_seconds=60.0) as worker:
        await until_effect(conn, "r1", "k", "begun")
        worker.send(signal.SIGKILL)
        await worker.ended()
    async with working(db, pod_uid="pod-1", lease_seconds=60.0):
        await until_effect(conn, "r1", "k", "begun", 2)
        await open_gate(conn, "g")
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await result(conn) == '"ran"'


async def test_what_was_marked_before_a_kill_is_not_done_again(db: str, conn: Connection) -> None:
    await enqueue(conn, "idem.call", "marked", ["k", "g"], run_id="r1")
    with WorkerProcess(db, modules="tests.worker.idemflows", pod_uid="pod-1", lease_seconds=60.0) as worker:
        await until_effect(conn, "r1", "k", "begun")
        worker.send(signal.SIGKILL)
        await worker.ended()
    async with working(db, pod_uid="pod-1", lease_seconds=60.0):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await result(conn) == '"was done"'
    assert await effects(conn, "r1") == [("k", "begun")]


async def test_in_a_transaction_keys_are_committed_with_it(db: str, conn: Connection) -> None:
    """Also with a single connection, and what a caught failure left is undone."""
    await conn.execute("CREATE TABLE public.counters AS SELECT 0 AS value")
    await enqueue(conn, "idem.call", "in_transaction", ["k"], run_id="r1")
    async with working(db, transaction_connections=1):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await result(conn) == "[1,2,3]"
    assert await conn.fetchval("SELECT value FROM public.counters") == 3
    assert await conn.fetchval("SELECT count(*) FROM perdure.idempotency_keys WHERE state = 20") == 3


async def test_the_body_of_a_workflow_is_no_place_for_keys(db: str, conn: Connection) -> None:
    """In a replay it would find what it did itself."""
    await enqueue(conn, "idem.in_body", run_id="r1")
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert "use idempotency keys in a step" in await result(conn)


async def test_workers_remove_expired_keys(db: str, conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.worker.sweeper.KEYS_EVERY", 0.0)
    await conn.execute(
        "INSERT INTO perdure.idempotency_keys (scope, key, state, token, expires_at)"
        " SELECT 's', n::text, 20, 't', now() FROM generate_series(1, 1200) n"
    )

    async def gone() -> bool:
        return not await conn.fetchval("SELECT count(*) FROM perdure.idempotency_keys")

    async with working(db):
        await eventually(gone, "expired keys are removed")
