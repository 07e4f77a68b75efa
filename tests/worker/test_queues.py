"""The limits of queues, from the program that says them to the runs of several workers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import perdure
import pytest
from perdure.model.states import CancelMode, RunStatus
from perdure.store import clients as store
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import WorkerProcess, working
from tests.worker.clientflows import endless, naps, nothing

SOON = 20.0
QUEUES = ("default", "orders")

running: set[str] = set()
most: list[int] = []


@perdure.step(name="q.counts")
async def counts() -> None:
    """How many of these run at once in this process."""
    info = perdure.current()
    running.add(info.run_id)
    most.append(len(running))
    await asyncio.sleep(0.01)
    running.discard(info.run_id)


@perdure.workflow(name="q.counted")
async def counted() -> None:
    await counts()


@perdure.workflow(name="q.pauses")
async def pauses(url: str) -> None:
    async with perdure.Client(url, "ns") as client:
        await client.queues.pause("orders")


@perdure.step(name="q.pauses_in_a_step")
async def pausing(url: str) -> bool:
    async with perdure.Client(url, "ns") as client:
        return (await client.queues.pause("orders")).paused


@perdure.workflow(name="q.pauses_by_a_step")
async def pauses_by_a_step(url: str) -> bool:
    return await pausing(url)


@asynccontextmanager
async def client_of(db: str) -> AsyncIterator[perdure.Client]:
    async with perdure.Client(db, "ns", listen=False) as client:
        yield client


async def test_a_queue_is_created_applied_read_paused_resumed_and_deleted(db: str) -> None:
    rate = perdure.RateLimit(100, timedelta(minutes=1))
    async with client_of(db) as client:
        assert await client.queues.list() == []
        created = await client.queues.create("orders", concurrency=10, worker_concurrency=2, partition_concurrency=1)
        assert created.limits == perdure.QueueLimits(10, 2, 1)
        assert (created.namespace, created.name, created.paused, created.generation) == ("ns", "orders", False, 1)
        assert await client.queues.get("orders") == created

        applied = await client.queues.apply("orders", concurrency=5, rate=rate)
        assert applied.limits == perdure.QueueLimits(5, rate=perdure.RateLimit(100, 60))
        assert (applied.generation, applied.created_at) == (2, created.created_at)
        assert applied.changed_at > created.changed_at
        assert await client.queues.apply("orders", concurrency=5, rate=rate) == applied

        mails = await client.queues.apply("mails", paused=True)
        assert await client.queues.list() == [mails, applied]

        paused = await client.queues.pause("orders")
        assert (paused.paused, paused.limits, paused.generation) == (True, applied.limits, 3)
        assert await client.queues.pause("orders") == paused
        assert (await client.queues.apply("orders", concurrency=6)).paused
        assert not (await client.queues.resume("orders")).paused

        await client.queues.delete("orders")
        assert await client.queues.list() == [mails]


async def test_a_queue_that_has_limits_is_not_created_again(db: str) -> None:
    async with client_of(db) as client:
        first = await client.queues.create("orders", concurrency=1)
        with pytest.raises(perdure.InvalidArgument, match="has limits already"):
            await client.queues.create("orders", concurrency=2)
        assert await client.queues.get("orders") == first


async def test_a_queue_without_limits_is_not_there(db: str) -> None:
    async with client_of(db) as client, perdure.Client(db, "other") as other:
        await other.queues.apply("orders", concurrency=1)
        for verb in (client.queues.get, client.queues.pause, client.queues.resume, client.queues.delete):
            with pytest.raises(perdure.NonExistentQueue, match="orders of namespace ns has no limits"):
                await verb("orders")


async def test_a_queue_that_a_resource_manages_is_changed_there(db: str, conn: Connection) -> None:
    async with client_of(db) as client:
        queue = await client.queues.apply("orders", concurrency=1)
        await conn.execute("UPDATE perdure.queues SET managed_by = 'WorkflowQueue orders'")
        for change in (client.queues.apply, client.queues.pause, client.queues.resume, client.queues.delete):
            with pytest.raises(perdure.InvalidArgument, match="managed by WorkflowQueue orders"):
                await change("orders")
        assert (await client.queues.get("orders")).limits == queue.limits


async def test_two_workers_keep_the_concurrency_of_a_queue_and_use_it_up(db: str) -> None:
    most.clear()
    async with client_of(db) as client:
        await client.queues.apply("orders", concurrency=3)
        async with working(db, queues=QUEUES), working(db, queues=QUEUES):
            handles = await client.start_many(counted.options(queue="orders").prepare() for _ in range(30))
            for handle in handles:
                assert await handle.wait(SOON) is RunStatus.SUCCEEDED
    assert max(most) == 3


async def test_a_place_that_comes_free_is_taken_without_waiting_for_the_next_poll(db: str) -> None:
    async with client_of(db) as client, working(db, queues=QUEUES, poll_seconds=5.0, lease_seconds=10.0):
        await client.queues.apply("orders", concurrency=1)
        async with asyncio.timeout(5.0):
            handles = await client.start_many(nothing.options(queue="orders").prepare() for _ in range(20))
            for handle in handles:
                assert await handle.wait() is RunStatus.SUCCEEDED


async def test_each_worker_keeps_its_own_concurrency(db: str, conn: Connection) -> None:
    async with client_of(db) as client:
        await client.queues.apply("orders", worker_concurrency=1)
        async with working(db, queues=QUEUES) as first, working(db, queues=QUEUES) as second:
            assert first is not second
            await client.start_many(endless.options(queue="orders").prepare() for _ in range(4))
            await client.start(nothing)

            async def owners() -> list[int]:
                found = await conn.fetch(
                    "SELECT count(*) FROM perdure.workflows WHERE status = 30 AND queue = 'orders' GROUP BY worker_id"
                )
                return [row[0] for row in found] if len(found) == 2 else []

            assert await eventually(owners, "each worker has one") == [1, 1]
            await conn.execute("UPDATE perdure.workflows SET cancel_mode = 'Immediate'")


async def test_a_worker_that_is_killed_keeps_no_place(db: str, conn: Connection) -> None:
    async with client_of(db) as client:
        await client.queues.apply("orders", concurrency=1)
        with WorkerProcess(db, modules="tests.worker.clientflows", queues="orders", lease_seconds=1.0) as process:
            await process.works()
            first = await client.start(endless.options(queue="orders"))
            second = await client.start(nothing.options(queue="orders"))

            async def runs() -> bool:
                return await first.status() is RunStatus.RUNNING

            await eventually(runs, "the first runs")
            process.process.kill()
            async with working(db, queues=QUEUES, lease_seconds=1.0):

                async def moved() -> bool:
                    query = "SELECT count(*) FROM perdure.workflows WHERE id = $1 AND recoveries = 1 AND status = 30"
                    return bool(await conn.fetchval(query, first.id))

                await eventually(moved, "the first runs again")
                assert await second.status() is RunStatus.ENQUEUED
                await first.cancel(mode=CancelMode.IMMEDIATE)
                assert await second.wait(SOON) is RunStatus.SUCCEEDED


async def test_a_run_that_waits_gives_its_place_back(db: str) -> None:
    """A concurrency of one is not one run after the other: what is parked does not run."""
    async with client_of(db) as client, working(db, queues=QUEUES):
        await client.queues.apply("orders", concurrency=1)
        sleeper = await client.start(naps.options(queue="orders"), 3600)
        other = await client.start(nothing.options(queue="orders"))
        assert await other.wait(SOON) is RunStatus.SUCCEEDED
        assert await sleeper.status() is RunStatus.WAITING


async def test_runs_begin_no_faster_than_the_rate(db: str, conn: Connection) -> None:
    async with client_of(db) as client:
        await client.queues.apply("orders", rate=perdure.RateLimit(2, 0.5))
        async with working(db, queues=QUEUES), working(db, queues=QUEUES):
            handles = await client.start_many(nothing.options(queue="orders").prepare() for _ in range(7))
            for handle in handles:
                assert await handle.wait(SOON) is RunStatus.SUCCEEDED
    begun = await conn.fetch("SELECT extract(epoch FROM started_at)::float8 FROM perdure.workflows ORDER BY started_at")
    after = [row[0] - begun[0][0] for row in begun]
    # Two at once, then one each quarter of a second; a bucket that filled before the first is full, not fuller.
    assert [n for n, seconds in enumerate(after) if seconds < (n - 1) * 0.25 - 0.02] == []
    assert after[-1] < 4


async def test_a_paused_queue_waits_until_it_is_resumed_and_others_go_on(db: str) -> None:
    async with perdure.Client(db, "ns") as client, working(db, queues=QUEUES):
        await client.queues.apply("orders", paused=True)
        held = await client.start(nothing.options(queue="orders"))
        for _ in range(3):
            assert await (await client.start(nothing)).wait(SOON) is RunStatus.SUCCEEDED
        assert await held.status() is RunStatus.ENQUEUED
        await client.queues.resume("orders")
        assert await held.wait(SOON) is RunStatus.SUCCEEDED


async def test_a_run_begins_beside_no_queue_that_has_limits(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client in the worker's process: decision 0017."""
    asked: list[str] = []
    real = store.start_here

    async def start_here(connection: Any, worker_id: str, version: str, namespace: str, run: store.RunStart) -> Any:
        asked.append(run.queue)
        return await real(connection, worker_id, version, namespace, run)

    monkeypatch.setattr(store, "start_here", start_here)
    async with (
        working(db, queues=QUEUES) as worker,
        perdure.Client(db, "ns", listen=False, worker=worker.resident) as client,
    ):
        await client.queues.apply("orders", concurrency=1)
        first = await client.start(endless.options(queue="orders"))
        second = await client.start(nothing.options(queue="orders"))

        async def runs() -> bool:
            return await first.status() is RunStatus.RUNNING

        await eventually(runs, "the first runs")
        third = await client.start(nothing.options(queue="orders"))
        assert {await second.status(), await third.status()} == {RunStatus.ENQUEUED}
        await first.cancel(mode=CancelMode.IMMEDIATE)
        assert await third.wait(SOON) is RunStatus.SUCCEEDED
        before = len(asked)
        await client.start(nothing.options(queue="orders"))
        assert len(asked) == before, "the worker knows of the limits"
        await client.start(nothing)
        assert asked[-1] == "default"


async def test_limits_are_not_said_in_the_body_of_a_run_but_in_a_step(db: str) -> None:
    async with perdure.Client(db, "ns") as client, working(db):
        await client.queues.apply("orders")
        with pytest.raises(perdure.errors.InsideWorkflow, match=r"Client\.queues\.pause in the body"):
            await client.run(pauses, db)
        assert not (await client.queues.get("orders")).paused
        assert await client.run(pauses_by_a_step, db)
        assert (await client.queues.get("orders")).paused
