"""A clean stop loses nothing and burns no attempt, however long bodies take and whatever the database does."""

import asyncio
import signal
import time

import pytest
from perdure.model.states import RunStatus, WorkerState
from perdure.store import runs
from perdure.telemetry import names
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.postgres import PostgresServer
from tests.support.workerproc import WorkerProcess, effects, enqueue, finished, open_gate, until_effect, working


async def row(conn: Connection, run_id: str) -> tuple[int, int, int, str | None]:
    found = await conn.fetchrow(
        "SELECT status, recoveries, run_attempts, worker_id FROM perdure.workflows WHERE id = $1", run_id
    )
    assert found is not None
    return tuple(found)


async def state_of_workers(conn: Connection) -> list[int]:
    return [found["state"] for found in await conn.fetch("SELECT state FROM perdure.workers ORDER BY started_at")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_a_signal_lets_the_step_end_and_releases_the_run(
    db: str, conn: Connection, number: signal.Signals
) -> None:
    await enqueue(conn, "t.gated", "g", run_id="r1")
    with WorkerProcess(db) as first:
        await first.works()
        await until_effect(conn, "r1", "at", "begun")
        first.send(number)
        await first.says("draining")
        await open_gate(conn, "g")
        assert await first.ended() == 0
    assert await row(conn, "r1") == (RunStatus.ENQUEUED, 0, 0, None)
    assert await state_of_workers(conn) == [WorkerState.STOPPED]
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await effects(conn, "r1") == [("before", "done"), ("at", "begun"), ("at", "ended"), ("after", "done")]
    assert (await row(conn, "r1"))[1:3] == (0, 0)


async def test_a_drain_claims_nothing_more(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "g", run_id="r1")
    async with working(db) as worker:
        await until_effect(conn, "r1", "at", "begun")
        worker.drain()

        async def draining() -> bool:
            return await state_of_workers(conn) == [WorkerState.DRAINING]

        await eventually(draining, "the worker drains")
        await enqueue(conn, "t.notes", ["a"], run_id="r2")
        await open_gate(conn, "g")
        await worker.wait()
    assert await runs.get_status(conn, "r2") is RunStatus.ENQUEUED
    assert worker.clean


async def test_an_idle_worker_stops_at_once(db: str, conn: Connection) -> None:
    with WorkerProcess(db) as worker:
        await worker.works()
        started = time.monotonic()
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
        assert time.monotonic() - started < 5
    assert await state_of_workers(conn) == [WorkerState.STOPPED]


async def test_a_step_that_outlasts_the_drain_is_released_by_force(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "never", run_id="r1")
    with WorkerProcess(db, drain_seconds=1.0) as worker:
        await worker.works()
        await until_effect(conn, "r1", "at", "begun")
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
        assert worker.said("a run was released while its body still ran")
    assert await row(conn, "r1") == (RunStatus.ENQUEUED, 0, 0, None)


async def test_a_thread_that_nobody_can_stop_does_not_hold_up_the_process(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.sync", "never", run_id="r1")
    with WorkerProcess(db, drain_seconds=1.0) as worker:
        await worker.works()

        async def begun() -> bool:
            return bool(await conn.fetchval("SELECT count(*) FROM perdure.workflow_steps"))

        await eventually(begun, "the step begins")
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
    assert await row(conn, "r1") == (RunStatus.ENQUEUED, 0, 0, None)


async def test_a_body_that_swallows_its_cancellation_does_not_hold_up_the_process(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.deaf", run_id="r1")
    with WorkerProcess(db, drain_seconds=2) as worker:
        await worker.works()
        await until_effect(conn, "r1", "deaf", "begun")
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
        assert worker.said("cut off")
    assert await row(conn, "r1") == (RunStatus.ENQUEUED, 0, 0, None)


async def test_a_second_signal_releases_at_once(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "never", run_id="r1")
    with WorkerProcess(db, drain_seconds=600.0) as worker:
        await worker.works()
        await until_effect(conn, "r1", "at", "begun")
        worker.send(signal.SIGTERM)
        await worker.says("draining")
        worker.send(signal.SIGINT)
        assert await worker.ended() == 0
    assert await row(conn, "r1") == (RunStatus.ENQUEUED, 0, 0, None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_modules_are_imported_ends_the_process(
    db: str, number: signal.Signals, tmp_path: object
) -> None:
    with WorkerProcess(db, modules="tests.worker.slow_import") as worker:
        await worker.says("listening")
        worker.send(number)
        assert await worker.ended() == 0


async def test_a_drain_waits_for_the_journal_and_the_database(
    db: str, conn: Connection, pg_server: PostgresServer
) -> None:
    """The database goes away in the middle of a drain and comes back in time: the finished step is recorded."""
    await enqueue(conn, "t.gated", "g", run_id="r1")
    with WorkerProcess(db, drain_seconds=30.0, lease_seconds=10.0) as worker:
        await worker.works()
        await until_effect(conn, "r1", "at", "begun")
        worker.send(signal.SIGTERM)
        await worker.says("draining")
        await conn.execute("ALTER TABLE perdure.workflow_steps RENAME TO away")
        await open_gate(conn, "g")
        await worker.says("the journal could not write")
        await conn.execute("ALTER TABLE perdure.away RENAME TO workflow_steps")
        assert await worker.ended(40.0) == 0
    assert await row(conn, "r1") == (RunStatus.ENQUEUED, 0, 0, None)
    recorded = await conn.fetch(
        "SELECT status FROM perdure.workflow_steps WHERE workflow_id = 'r1' ORDER BY step_index"
    )
    assert [found["status"] for found in recorded] == [30, 30]


async def test_without_a_database_the_process_still_ends_in_time(
    db: str, conn: Connection, pg_server: PostgresServer
) -> None:
    await enqueue(conn, "t.gated", "never", run_id="r1")
    with WorkerProcess(db, drain_seconds=2.0, lease_seconds=30.0) as worker:
        await worker.works()
        await until_effect(conn, "r1", "at", "begun")
        await asyncio.to_thread(pg_server.stop)
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 1, "it says that it could not give everything back"
        assert worker.said("could not give everything back")
        await asyncio.to_thread(pg_server.start)


async def test_starting_and_stopping_in_any_moment_leaves_nothing_behind(db: str, conn: Connection) -> None:
    """Workers come and go over a queue of runs; every run ends, none is counted as recovered."""
    for number in range(30):
        await enqueue(conn, "t.no_op", 40, run_id=f"r{number}")
    for turn in range(12):
        async with working(db, slots=10) as worker:
            before = worker.metrics.value(names.JOURNAL_FLUSH_ROWS)
            while worker.metrics.value(names.JOURNAL_FLUSH_ROWS) < before + 3 * turn:  # noqa: ASYNC110
                await asyncio.sleep(0)
    async with working(db, slots=10):
        for number in range(30):
            assert await finished(conn, f"r{number}") is RunStatus.SUCCEEDED
    assert await conn.fetchval("SELECT sum(recoveries) FROM perdure.workflows") == 0
    assert set(await state_of_workers(conn)) == {WorkerState.STOPPED}
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflow_steps WHERE status = 30") == 1200
