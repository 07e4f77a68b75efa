"""`perdure.transaction` and processes, connections and answers that go away: each counter is raised exactly once."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from perdure.model.states import RunStatus
from perdure.store import transaction
from perdure.worker.link import Connection

from tests.support.pgwait import eventually, holding, until_waiting
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy
from tests.support.workerproc import (
    WorkerProcess,
    connect_again,
    effects,
    enqueue,
    finished,
    open_gate,
    until_effect,
    working,
)
from tests.worker import sqlflows
from tests.worker.test_transaction import result, value

HOLD_RUN = "SELECT 1 FROM perdure.workflows WHERE id = 'r1' FOR UPDATE"
HOLD_COMMITS = "SELECT pg_advisory_xact_lock(7)"
END_COMMIT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'advisory' AND query ~ 'COMMIT'"
END_BODY = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
TAKE = "UPDATE perdure.workflows SET status = 10, worker_id = NULL, fence = fence + 1 WHERE id = 'r1'"
MODULES = "tests.worker.sqlflows"


@pytest.fixture(autouse=True)
async def tables(conn: Connection) -> None:
    await conn.execute(sqlflows.TABLES)


def successor(db: str, **changes: Any) -> WorkerProcess:
    """The next container of the same pod: its registration is proof of the last one's death."""
    return WorkerProcess(db, modules=MODULES, pod_uid="pod-1", lease_seconds=60.0, **changes)


async def kill(worker: WorkerProcess) -> None:
    worker.send(signal.SIGKILL)
    await worker.ended()


@dataclass(frozen=True, slots=True)
class Gated:
    """The run r1, whose one transaction raises a counter, and then waits at a gate before it is committed."""

    conn: Connection
    db: str

    async def open(self) -> None:
        await open_gate(self.conn, "g")

    async def written(self, times: int = 1) -> None:
        """Once its body has raised the counter so many times, none of them committed."""
        await until_effect(self.conn, "r1", "g", "written", times)

    @asynccontextmanager
    async def committing(self) -> AsyncIterator[None]:
        """The gate is open, and whatever has written a counter waits in its COMMIT until the end of the block."""
        await self.conn.execute(sqlflows.SLOW_COMMIT)
        async with holding(self.db, (HOLD_COMMITS,)):
            await self.open()
            yield

    async def committed(self) -> None:
        """Once the counter is raised for all to see."""

        async def seen() -> bool:
            return await value(self.conn) == 1

        await eventually(seen, "the COMMIT succeeds")

    async def succeeds(self) -> None:
        assert await finished(self.conn, "r1") is RunStatus.SUCCEEDED

    async def raised_once(self, bodies: int | None = None) -> None:
        """The counter was; the body has run so many times, where that is known."""
        assert await value(self.conn) == 1
        if bodies is not None:
            assert (await effects(self.conn, "r1")).count(("g", "written")) == bodies

    async def without_failures(self) -> None:
        """None of what happened was counted as a failure of the step."""
        assert await self.conn.fetchval("SELECT sum(attempts) FROM perdure.workflow_steps") == 0


@pytest.fixture
async def gated(conn: Connection, db: str) -> Gated:
    await enqueue(conn, "sql.gated", "g", run_id="r1")
    return Gated(conn, db)


@pytest.fixture
async def proxy(pg_server: PostgresServer) -> AsyncIterator[Proxy]:
    async with Proxy(pg_server.port) as made:
        yield made


# -- the process dies


async def test_killed_after_its_sql_the_body_runs_again(db: str, gated: Gated) -> None:
    with successor(db) as worker:
        await gated.written()
        await kill(worker)
    with successor(db):
        await gated.written(2)
        await gated.open()
        await gated.succeeds()
    await gated.raised_once()


async def test_killed_while_the_step_s_row_is_written(db: str, conn: Connection, gated: Gated) -> None:
    with successor(db) as worker:
        await gated.written()
        async with holding(db, (HOLD_RUN,)):
            await gated.open()
            await until_waiting(conn)
            await kill(worker)
    with successor(db):
        await gated.succeeds()
    await gated.raised_once(2)


async def test_killed_in_its_commit_which_succeeds(db: str, conn: Connection, gated: Gated) -> None:
    """Nobody tells the server that its client is gone: it goes on when it gets the lock. The successor believes it."""
    async with gated.committing():
        with successor(db) as worker:
            await until_waiting(conn)
            await kill(worker)
    await gated.committed()
    with successor(db):
        await gated.succeeds()
    await gated.raised_once(1)


async def test_killed_in_its_commit_which_is_rolled_back(db: str, conn: Connection, gated: Gated) -> None:
    async with gated.committing():
        with successor(db) as worker:
            await until_waiting(conn)
            await kill(worker)
        await conn.execute(END_COMMIT)
    with successor(db):
        await gated.succeeds()
    await gated.raised_once(2)


async def test_killed_in_its_commit_which_its_successor_cuts_off(db: str, conn: Connection, gated: Gated) -> None:
    """It holds the run's row, so that the run cannot be moved before its session is ended."""
    async with gated.committing():
        with successor(db) as worker:
            await until_waiting(conn)
            await kill(worker)
        with successor(db) as second:
            await second.says("moved runs of workers that are gone")
            await gated.written(2)
    with successor(db):
        await gated.succeeds()
    await gated.raised_once()


async def test_any_number_of_crashes_raises_the_counter_once_a_step(db: str, conn: Connection) -> None:
    """Killed again and again, wherever it stands."""
    chance = random.Random(5)
    await enqueue(conn, "sql.add", 90, run_id="r1", max_recoveries=100)
    for _ in range(4):
        with successor(db) as worker:
            await worker.works()
            target = await value(conn) + chance.randrange(1, 12)

            async def there(target: int = target) -> bool:
                return await value(conn) >= target

            await eventually(there, f"the counter says {target}")
            await kill(worker)
    with successor(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await value(conn) == 90
    assert await result(conn) == str(list(range(1, 91))).replace(" ", "")


# -- the connection goes away


async def test_an_answer_to_commit_that_never_came_is_found_out(
    db: str, conn: Connection, gated: Gated, proxy: Proxy
) -> None:
    async with working(proxy.through(db)) as worker:
        async with gated.committing():
            await until_waiting(conn)
            proxy.hold_answers()
        await gated.committed()
        proxy.cut()
        await gated.succeeds()
        assert worker.id is not None
    await gated.raised_once(1)
    assert await result(conn) == '["before",1,"after"]'


async def test_a_commit_that_is_still_under_way_is_waited_for(
    db: str, conn: Connection, gated: Gated, proxy: Proxy
) -> None:
    async with working(proxy.through(db)):
        async with gated.committing():
            await until_waiting(conn)
            proxy.cut()
            await until_waiting(conn, 2)
        await gated.succeeds()
    await gated.raised_once(1)


async def test_a_commit_that_is_rolled_back_without_an_answer_is_made_again(
    db: str, conn: Connection, gated: Gated, proxy: Proxy
) -> None:
    async with working(proxy.through(db)):
        async with gated.committing():
            await until_waiting(conn)
            proxy.cut()
            await until_waiting(conn, 2)
            await conn.execute(END_COMMIT)
        await gated.succeeds()
    await gated.raised_once(2)


async def test_a_commit_that_the_server_cuts_off_is_made_again(db: str, conn: Connection, gated: Gated) -> None:
    async with working(db):
        async with gated.committing():
            await until_waiting(conn)
            await conn.execute(END_COMMIT)
        await gated.succeeds()
    await gated.raised_once()


async def test_an_answer_to_the_step_s_row_that_never_came_undoes_all_of_it(
    db: str, conn: Connection, gated: Gated, proxy: Proxy
) -> None:
    async with working(proxy.through(db)):
        await gated.written()
        async with holding(db, (HOLD_RUN,)):
            await gated.open()
            await until_waiting(conn)
            proxy.hold_answers()
        proxy.cut()
        await gated.succeeds()
    await gated.raised_once(2)


async def test_a_session_that_ends_under_the_body_is_no_failure(db: str, conn: Connection, gated: Gated) -> None:
    async with working(db):
        await gated.written()
        await conn.execute(END_BODY)
        await gated.open()
        await gated.succeeds()
    await gated.raised_once()
    await gated.without_failures()


async def test_a_run_that_somebody_locks_for_long_is_no_failure(
    db: str, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction gives way rather than keep the user's rows and wait."""
    monkeypatch.setattr(transaction, "LOCK_FRACTION", 0.01)
    async with working(db):
        await gated.written()
        async with holding(db, (HOLD_RUN,)):
            await gated.open()
            await gated.written(2)
        await gated.succeeds()
    await gated.raised_once()
    await gated.without_failures()


async def test_a_restarted_server_is_no_failure(db: str, gated: Gated, pg_server: PostgresServer) -> None:
    async with working(db, lease_seconds=10.0):
        await gated.written()
        await asyncio.to_thread(pg_server.restart)
        back = Gated(await connect_again(db), db)
        await back.open()
        await back.succeeds()
        await back.raised_once()
        await back.without_failures()
        await back.conn.close()


async def test_a_run_that_was_taken_while_its_commit_was_unknown_is_lost(
    db: str, conn: Connection, gated: Gated, proxy: Proxy
) -> None:
    """Rolled back, and owned by nobody here: the body must not run again in this claim."""
    async with working(proxy.through(db)):
        async with gated.committing():
            await until_waiting(conn)
            proxy.cut()
            await until_waiting(conn, 2)
            async with holding(db) as taker:
                taking = asyncio.ensure_future(taker.execute(TAKE))
                await until_waiting(conn, 3)
                await conn.execute(END_COMMIT)
                await taking
        await gated.succeeds()
    await gated.raised_once()


async def test_a_dead_worker_s_transaction_is_ended_with_its_sessions(db: str, gated: Gated) -> None:
    """It holds the user's rows: whoever marks the worker dead cuts it, or the next body would wait for a dead one."""
    with WorkerProcess(db, modules=MODULES, lease_seconds=1.0) as worker:
        await gated.written()
        worker.send(signal.SIGSTOP)
        async with working(db, lease_seconds=1.0):
            await gated.written(2)
            await gated.open()
            await gated.succeeds()
    await gated.raised_once()
