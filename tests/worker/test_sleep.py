"""Sleeping runs: no slot, no memory, no end that a death could move."""

import signal

from perdure.model.states import RunStatus, StepStatus
from perdure.store import runs, sweeps
from perdure.telemetry import names
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import WorkerProcess, effects, enqueue, finished, open_gate, until_effect, working


async def asleep(conn: Connection, count: int = 1) -> None:
    async def there() -> bool:
        return bool(await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE status = 40") == count)

    await eventually(there, f"{count} runs sleep", 60.0)


async def test_a_long_sleep_takes_no_slot_and_ends_in_time(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.naps", 1.5, run_id="r1")
    async with working(db, slots=1) as worker:
        await asleep(conn)
        row = await conn.fetchrow("SELECT waiting_for, worker_id FROM perdure.workflows")
        assert row is not None
        assert '"kind": "Sleep"' in row["waiting_for"]
        assert row["worker_id"] is None
        await enqueue(conn, "t.notes", ["beside"], run_id="r2")
        assert await finished(conn, "r2") is RunStatus.SUCCEEDED
        assert await runs.get_status(conn, "r1") is RunStatus.WAITING
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
        assert worker.metrics.value(names.RUNS_GIVEN_BACK, "parked") == 1
    assert await effects(conn, "r1") == [("before", "done"), ("after", "done")]
    slept = await conn.fetchval(
        "SELECT extract(epoch FROM finished_at - started_at) FROM perdure.workflow_steps WHERE name = 'perdure.sleep'"
    )
    assert slept >= 1.5


async def test_killed_in_a_sleep_that_is_kept_in_memory_the_end_stays_where_it_was(db: str, conn: Connection) -> None:
    """A gate beside it keeps the run from parking."""
    await enqueue(conn, "t.naps_beside", 3600.0, "g", run_id="r1")
    with WorkerProcess(db) as first:
        await first.works()
        await until_effect(conn, "r1", "at", "begun")

        async def recorded() -> bool:
            return bool(await conn.fetchval("SELECT count(*) FROM perdure.workflow_steps WHERE status = 15"))

        await eventually(recorded, "the sleep is recorded")
        end = await conn.fetchval("SELECT wake_at FROM perdure.workflow_steps WHERE status = 15")
        first.send(signal.SIGKILL)
    async with working(db):
        await until_effect(conn, "r1", "at", "begun", 2)
        await open_gate(conn, "g")
        await asleep(conn)
    assert await conn.fetchval("SELECT wake_at FROM perdure.workflow_steps WHERE status = 15") == end
    apart = await conn.fetchval("SELECT abs(extract(epoch FROM wake_at - $1)) FROM perdure.workflows", end)
    assert apart < 60


async def test_a_sleeping_run_needs_no_worker_and_is_woken_by_any(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.naps", 3600.0, run_id="r1")
    with WorkerProcess(db) as first:
        await first.works()
        await asleep(conn)
        first.send(signal.SIGKILL)
    await conn.execute("UPDATE perdure.workflows SET wake_at = now()")
    await conn.execute("UPDATE perdure.workflow_steps SET wake_at = now() WHERE status = 15")
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await conn.fetchval("SELECT recoveries FROM perdure.workflows") == 0


async def test_two_thousand_sleepers_wake_while_fresh_runs_pass(db: str, conn: Connection) -> None:
    count = 2000
    await conn.execute(
        """
        WITH made AS (
            INSERT INTO perdure.workflows (id, namespace, workflow, requires, pool, queue, priority, status,
                                           waiting_since)
            SELECT 's' || n, 'ns', 't.dozes', '{workflow:t.dozes}', 'default', 'default', 100, 10, now()
              FROM generate_series(1, $1) n
            RETURNING id)
        INSERT INTO perdure.workflow_payloads (workflow_id, input) SELECT id, '[3600.0]' FROM made
        """,
        count,
    )
    async with working(db, slots=50) as worker:
        await asleep(conn, count)

        async def free() -> bool:
            return worker.metrics.value(names.SLOTS_BUSY) == 0

        await eventually(free, "no slot is taken")
        async with conn.transaction():
            await conn.execute("UPDATE perdure.workflow_steps SET wake_at = now() WHERE status = 15")
            await conn.execute("UPDATE perdure.workflows SET wake_at = now() WHERE status = 40")
            await enqueue(conn, "t.notes", ["fresh"], run_id="fresh")
        assert await finished(conn, "fresh") is RunStatus.SUCCEEDED

        async def over() -> bool:
            return not await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE status <> 50")

        await eventually(over, "all have woken", 90.0)
    later = await conn.fetchval(
        "SELECT count(*) FROM perdure.workflows WHERE finished_at >"
        " (SELECT finished_at FROM perdure.workflows WHERE id = 'fresh')"
    )
    assert later >= count - sweeps.READY_ROOM - 50
    statuses = await conn.fetch("SELECT DISTINCT status FROM perdure.workflow_steps")
    assert [row["status"] for row in statuses] == [StepStatus.SUCCEEDED]


async def test_a_drain_gives_back_a_run_that_sleeps_in_memory(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.dozes", 0.9, run_id="r1")
    async with working(db):

        async def begun() -> bool:
            return bool(await conn.fetchval("SELECT count(*) FROM perdure.workflow_steps"))

        await eventually(begun, "it sleeps")
    assert await runs.get_status(conn, "r1") in {RunStatus.ENQUEUED, RunStatus.SUCCEEDED}
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED


async def test_a_run_that_is_woken_too_early_parks_again_and_is_counted(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.naps", 3600.0, run_id="r1")
    async with working(db) as worker:
        await asleep(conn)
        assert worker.metrics.value(names.RUNS_GIVEN_BACK, "parked") == 1
        await conn.execute("UPDATE perdure.workflows SET wake_at = now()")

        async def again() -> bool:
            return worker.metrics.value(names.RUNS_GIVEN_BACK, "parked_again") == 1

        await eventually(again, "it parks again")
        left = await conn.fetchval("SELECT extract(epoch FROM wake_at - now()) FROM perdure.workflows")
    assert 3500 < left <= 3600
