"""A worker removes old runs of its pool by itself."""

from perdure.model.states import RunStatus
from perdure.store import runs
from perdure.telemetry import names
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import enqueue, finished, working

OLD = "UPDATE perdure.workflows SET finished_at = finished_at - interval '2 hours'"


async def ended_long_ago(db: str, conn: Connection) -> None:
    for number in range(3):
        await enqueue(conn, "t.notes", ["a", "b"], run_id=f"r{number}")
    async with working(db, retention_seconds=0.0):
        for number in range(3):
            assert await finished(conn, f"r{number}") is RunStatus.SUCCEEDED
    await conn.execute(OLD)
    await enqueue(conn, "t.notes", ["a"], run_id="young")


async def test_old_runs_go_and_young_ones_stay(db: str, conn: Connection) -> None:
    await ended_long_ago(db, conn)
    async with working(db, retention_seconds=3600.0) as worker:

        async def gone() -> bool:
            return worker.metrics.value(names.RUNS_REMOVED) == 3

        await eventually(gone, "old runs are removed")
        assert await finished(conn, "young") is RunStatus.SUCCEEDED
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflow_steps WHERE workflow_id <> 'young'") == 0
    assert await runs.get_status(conn, "young") is RunStatus.SUCCEEDED


async def test_with_zero_everything_is_kept(db: str, conn: Connection) -> None:
    await ended_long_ago(db, conn)
    async with working(db, retention_seconds=0.0) as worker:
        assert await finished(conn, "young") is RunStatus.SUCCEEDED
        sessions = await conn.fetch("SELECT application_name FROM pg_stat_activity")
    assert worker.metrics.value(names.RUNS_REMOVED) == 0
    assert "perdure-retention" not in {each["application_name"] for each in sessions}
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 4


async def test_the_connection_is_given_up_when_there_is_nothing_to_do(db: str, conn: Connection) -> None:
    async with working(db, retention_seconds=3600.0):

        async def closed() -> bool:
            return not await conn.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perdure-retention'"
            )

        await eventually(closed, "the connection is closed")
