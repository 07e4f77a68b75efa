"""The sweeps on a real database: who is marked dead, by whom, and what happens to what they held."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from perdure.model.rows import WorkerRow
from perdure.model.states import RunStatus, WorkerState
from perdure.store import runs, workers
from perdure.telemetry import names
from perdure.telemetry.prometheus import Metrics
from perdure.worker import sweeper as sweeper_module
from perdure.worker.lease import lease_clock
from perdure.worker.link import Connection, Link
from perdure.worker.sweeper import Sweeper
from perdure.worker.worker import new_metrics

from tests.support.cuts import Cutter
from tests.support.pgwait import eventually, holding
from tests.support.workerproc import enqueue

LEASE = 0.6
NAME = "sweeper-under-test"


class Counted(Sweeper):
    """A sweeper of which the test can await whole rounds."""

    rounds = 0

    async def _round(self) -> None:
        await super()._round()
        self.rounds += 1

    async def swept(self) -> None:
        """Once a round is over that began after now."""
        wanted = self.rounds + 2

        async def enough() -> bool:
            return self.rounds >= wanted

        await eventually(enough, "a whole round of sweeps")


class Clock:
    """The sweeper's clock, which the test can put forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        monkeypatch.setattr(sweeper_module, "lease_clock", lambda: lease_clock() + self.ahead)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    # Rounds follow each other at once, as no test is to wait for them.
    monkeypatch.setattr(sweeper_module, "LONGEST_INTERVAL", 0.02)
    return Clock(monkeypatch)


@asynccontextmanager
async def sweeping(db: str, lease: float = LEASE) -> AsyncIterator[tuple[Counted, Metrics, list[tuple[str, str]]]]:
    metrics = new_metrics()
    ready: list[tuple[str, str]] = []
    link = Link(db, application_name=NAME, statement_timeout=5.0)
    sweeper = Counted(link, lease, metrics, lambda namespace, pool: ready.append((namespace, pool)))
    sweeper.start()
    try:
        yield sweeper, metrics, ready
    finally:
        await sweeper.stop()
        await link.close()


async def dead_worker(conn: Connection, worker_id: str, *held: str) -> None:
    """A worker whose lease ran out long ago, with runs."""
    await workers.register(conn, WorkerRow(worker_id, "ns", "default", "p", "", "1", ("default",), (), 4), 0.01)
    await conn.execute(
        "UPDATE perdure.workers SET lease_until = now() - interval '1 hour', "
        "beat_at = now() - interval '61 minutes' WHERE id = $1",
        worker_id,
    )
    for run_id in held:
        await enqueue(conn, "t.x", run_id=run_id)
        await conn.execute(
            "UPDATE perdure.workflows SET status = 30, worker_id = $2, fence = 1 WHERE id = $1", run_id, worker_id
        )


async def state(conn: Connection, worker_id: str) -> int:
    found: int = await conn.fetchval("SELECT state FROM perdure.workers WHERE id = $1", worker_id)
    return found


async def becomes(conn: Connection, run_id: str, status: RunStatus) -> None:
    async def as_wanted() -> bool:
        return await runs.get_status(conn, run_id) is status

    await eventually(as_wanted, f"{run_id} becomes {status.name}")


async def test_an_expired_worker_is_marked_and_its_runs_are_moved_and_told(db: str, conn: Connection) -> None:
    # Longer than a minute's lease from the start of Postgres would be waited for; this one's lease was a minute.
    await dead_worker(conn, "w1", "r1", "r2")
    await conn.execute("UPDATE perdure.workers SET beat_at = lease_until - interval '10 milliseconds'")
    async with sweeping(db) as (_, metrics, ready):
        await becomes(conn, "r1", RunStatus.ENQUEUED)
        await becomes(conn, "r2", RunStatus.ENQUEUED)
        assert await state(conn, "w1") == WorkerState.DEAD
        assert ("ns", "default") in ready
        assert metrics.value(names.LEASE_EXPIRIES) == 1
        assert metrics.value(names.RECOVERIES, "requeued") == 2


async def test_nobody_is_marked_before_a_lease_of_contact(db: str, conn: Connection, clock: Clock) -> None:
    await dead_worker(conn, "w1", "r1")
    await conn.execute("UPDATE perdure.workers SET beat_at = lease_until - interval '10 milliseconds'")
    async with sweeping(db, lease=3600.0) as (sweeper, _, _):
        await sweeper.swept()
        # An hour of contact but for a minute: the test itself takes less.
        clock.ahead += 3540.0
        await sweeper.swept()
        assert await state(conn, "w1") == WorkerState.LIVE
        clock.ahead += 60.0
        await becomes(conn, "r1", RunStatus.ENQUEUED)


async def test_broken_contact_begins_anew(db: str, conn: Connection, clock: Clock) -> None:
    """Its session is cut more often than its lease is long: it may mark nobody."""
    await dead_worker(conn, "w1", "r1")
    await conn.execute("UPDATE perdure.workers SET beat_at = lease_until - interval '10 milliseconds'")
    cutter = Cutter(conn, NAME)
    async with sweeping(db, lease=3600.0) as (sweeper, _, _):
        for _ in range(4):
            await cutter.hit()
            await sweeper.swept()
            clock.ahead += 3000.0
            await sweeper.swept()
            assert await state(conn, "w1") == WorkerState.LIVE
        clock.ahead += 600.0
        await becomes(conn, "r1", RunStatus.ENQUEUED)


async def test_a_run_that_somebody_holds_is_moved_when_it_is_let_go(db: str, conn: Connection) -> None:
    await dead_worker(conn, "w1", "free", "held")
    await conn.execute("UPDATE perdure.workers SET state = 40, ended_at = now()")
    async with holding(db, ("SELECT 1 FROM perdure.workflows WHERE id = 'held' FOR UPDATE",)), sweeping(db):
        await becomes(conn, "free", RunStatus.ENQUEUED)
        assert await runs.get_status(conn, "held") is RunStatus.RUNNING
    async with sweeping(db):
        await becomes(conn, "held", RunStatus.ENQUEUED)


async def test_sessions_of_a_dead_worker_are_ended(db: str, conn: Connection) -> None:
    """One of them holds the row of a run: without its end the run would never be moved."""
    await dead_worker(conn, "w1", "r1")
    await conn.execute("UPDATE perdure.workers SET state = 40, ended_at = now()")
    zombie = Link(db, application_name="w1", statement_timeout=60.0)

    async def hold(connection: Connection) -> None:
        await connection.execute("SET idle_in_transaction_session_timeout = 0")
        await connection.execute("BEGIN")
        await connection.execute("SELECT 1 FROM perdure.workflows WHERE id = 'r1' FOR UPDATE")

    await zombie.call(hold)
    async with sweeping(db):
        await becomes(conn, "r1", RunStatus.ENQUEUED)
    zombie.drop()


async def test_time_wakes_and_ends(db: str, conn: Connection) -> None:
    for run_id in ("due", "later", "late"):
        await enqueue(conn, "t.x", run_id=run_id)
    await conn.execute("UPDATE perdure.workflows SET status = 40, wake_at = now() WHERE id = 'due'")
    await conn.execute(
        "UPDATE perdure.workflows SET status = 40, wake_at = now() + interval '1 hour' WHERE id = 'later'"
    )
    await conn.execute("UPDATE perdure.workflows SET deadline_at = now() - interval '1 second' WHERE id = 'late'")
    async with sweeping(db) as (_, _metrics, ready):
        await becomes(conn, "due", RunStatus.ENQUEUED)
        await becomes(conn, "late", RunStatus.CANCELLED)
        assert await runs.get_status(conn, "later") is RunStatus.WAITING
        assert ready == [("ns", "default")]
