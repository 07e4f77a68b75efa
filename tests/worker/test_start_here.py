"""A client beside a worker: runs begin in the process that starts them, and nothing else changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import perdure
import pytest
from perdure.model.states import CancelMode, RunStatus
from perdure.store import clients as store
from perdure.store.pool import connect
from perdure.worker.link import Connection
from perdure.worker.worker import Worker

from tests.support.pgwait import eventually
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy
from tests.support.workerproc import WorkerProcess, working
from tests.worker.clientflows import Declined, Receipt, buy, endless, large, naps, nothing

SOON = 20.0


@asynccontextmanager
async def beside(db: str, url: str | None = None, **settings: Any) -> AsyncIterator[tuple[Worker, perdure.Client]]:
    """A worker that rarely polls, and a client of its process that is told nothing by the database."""
    async with (
        working(db, **{"poll_seconds": 5.0, "lease_seconds": 10.0, **settings}) as worker,
        perdure.Client(url or db, "ns", listen=False, worker=worker.resident) as client,
    ):
        yield worker, client


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The ids of every question that waits put to the database."""
    asked: list[list[str]] = []
    real = store.watch

    async def counted(connection: Any, ids: Any, arm: Any, *, most_bytes: int) -> Any:
        asked.append(list(ids))
        return await real(connection, ids, arm, most_bytes=most_bytes)

    monkeypatch.setattr(store, "watch", counted)
    return asked


async def test_a_run_begins_and_ends_without_a_question_to_the_database(db: str, questions: list[list[str]]) -> None:
    async with beside(db) as (_, client):
        assert await asyncio.wait_for(client.run(buy, "1", 5), SOON) == Receipt("1", 5)
        with pytest.raises(Declined) as declined:
            await asyncio.wait_for(client.run(buy, "2", 5000), SOON)
    assert declined.value.cents == 5000
    assert questions == []


async def test_what_it_leaves_in_the_database_is_what_every_run_leaves(db: str, conn: Connection) -> None:
    async with beside(db) as (worker, client):
        handle = await client.start(buy.options(id="mine"), "1", 5)
        assert await handle.wait(SOON) is RunStatus.SUCCEEDED
        run = await conn.fetchrow("SELECT * FROM perdure.workflows WHERE id = 'mine'")
        assert (run["fence"], run["ended_fence"], run["ended_by"]) == (2, 1, worker.id)
        steps = "SELECT count(*) FROM perdure.workflow_steps WHERE workflow_id = 'mine' AND status = 30"
        assert await conn.fetchval(steps) == 1
    async with perdure.Client(db, "ns") as other:
        assert await other.handle("mine", buy).output() == Receipt("1", 5)
        assert await other.start(buy.options(id="mine"), "1", 5) == handle


async def test_runs_without_a_free_slot_wait_in_the_queue_and_take_turns(db: str, conn: Connection) -> None:
    async with beside(db, slots=1) as (_, client):
        first = await client.start(endless.options(id="first"))
        second = await client.start(nothing.options(id="second"))
        assert await second.status() is RunStatus.ENQUEUED
        await first.cancel(mode=CancelMode.IMMEDIATE)
        assert await second.wait(SOON) is RunStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"pool": "other"}, RunStatus.ENQUEUED),
        ({"queue": "other"}, RunStatus.ENQUEUED),
        ({"delay": 60.0}, RunStatus.DELAYED),
    ],
    ids=["pool", "queue", "delay"],
)
async def test_what_this_worker_would_not_take_next_is_not_started_here(
    db: str, options: dict[str, Any], status: RunStatus
) -> None:
    async with beside(db) as (_, client):
        handle = await client.start(nothing.options(**options))
        assert await handle.status() is status


async def test_partitions_take_turns_and_none_goes_past_them(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with beside(db) as (_, client):
        monkeypatch.setattr(store, "start_here", None)
        assert await asyncio.wait_for(client.run(nothing.options(partition_key="tenant")), SOON) is None


async def test_a_workflow_that_this_worker_does_not_have_waits_for_one_that_does(db: str) -> None:
    async with beside(db) as (_, client):
        handle = await client.start_by_name("c.unknown")
        assert await handle.status() is RunStatus.ENQUEUED


async def test_a_worker_that_has_stopped_starts_nothing(db: str) -> None:
    async with beside(db) as (worker, client):
        await worker.stop()
        handle = await client.start(nothing)
        assert await handle.status() is RunStatus.ENQUEUED


async def test_a_start_whose_answer_is_lost_is_made_once_and_runs(
    db: str, conn: Connection, pg_server: PostgresServer
) -> None:
    """The worker is not told of the run that it holds: it gives it to the queue, where it is found."""
    async with Proxy(pg_server.port) as proxy, beside(db, proxy.through(db)) as (_, client):
        await client.run(nothing)
        proxy.hold_answers()
        starting = asyncio.ensure_future(client.start(buy.options(id="mine"), "1", 5))

        async def there() -> bool:
            return await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE id = 'mine'") == 1

        await eventually(there, "the run is created")
        proxy.cut()
        handle = await starting
        assert await handle.result(SOON) == Receipt("1", 5)
        assert await conn.fetchval("SELECT fence FROM perdure.workflows WHERE id = 'mine'") == 4


async def test_the_same_id_started_many_times_at_once_is_one_run(db: str, conn: Connection) -> None:
    async with beside(db, slots=8) as (_, client):
        mine = buy.options(id="mine")
        handles = await asyncio.gather(*(client.start(mine, "1", 5) for _ in range(20)))
        assert {each.id for each in handles} == {"mine"}
        assert await handles[0].result(SOON) == Receipt("1", 5)
        assert await conn.fetchval("SELECT fence FROM perdure.workflows WHERE id = 'mine'") == 2


async def test_a_run_of_a_process_that_is_killed_goes_on_in_another(db: str, conn: Connection) -> None:
    worker_id = "gone-1"
    async with beside(db) as (_, client):
        connection = await connect(db, application_name="test")
        await connection.execute(
            "INSERT INTO perdure.workers (id, namespace, pool, pod, pod_uid, version, queues, manifest, slots, state,"
            " lease_until) SELECT $1, namespace, pool, pod, 'gone', version, queues, manifest, slots, 10,"
            " clock_timestamp() + interval '1 minute' FROM perdure.workers LIMIT 1",
            worker_id,
        )
        start = store.RunStart("mine", "c.buy", '["1",5]', "default", "default", 100)
        assert await store.start_here(connection, worker_id, "", "ns", start) is not None
        await connection.execute("UPDATE perdure.workers SET lease_until = now() WHERE id = $1", worker_id)
        await connection.close()
        with WorkerProcess(db, modules="tests.worker.clientflows") as process:
            await process.works()
            assert await client.handle("mine", buy).result(SOON) == Receipt("1", 5)


async def test_a_run_that_leaves_the_worker_is_asked_for_then(db: str, questions: list[list[str]]) -> None:
    async with beside(db) as (_, client):
        await asyncio.wait_for(client.run(naps.options(id="mine"), 1.2), SOON)
    assert questions[0] == ["mine"]


async def test_a_large_result_comes_whole(db: str, questions: list[list[str]]) -> None:
    async with beside(db) as (_, client):
        assert len(await asyncio.wait_for(client.run(large, 500_000), SOON)) == 500_000
    assert questions == []


async def test_a_client_that_was_closed_hears_nothing_more(db: str) -> None:
    async with working(db) as worker:
        client = perdure.Client(db, "ns", worker=worker.resident)
        await client.close()
        await client.close()
        async with perdure.Client(db, "ns", worker=worker.resident) as other:
            assert await asyncio.wait_for(other.run(buy, "1", 5), SOON) == Receipt("1", 5)
