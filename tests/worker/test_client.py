"""A client and a worker that share nothing but a database."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import perdure
import pytest
from perdure.errors import ConflictingWorkflow, NonExistentWorkflow, WaitTimeout, WorkflowCancelled, WorkflowNotFinished
from perdure.model.start import StartOptions
from perdure.model.states import CancelMode, RunStatus
from perdure.store import clients as store
from perdure.store import runs
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import WorkerProcess, working
from tests.worker.clientflows import Declined, Receipt, buy, endless, large, nothing

SOON = 20.0
"""A wait that polls once a minute and ends within this was told of the end."""

MINUTE = 60.0


@pytest.fixture
async def client(db: str) -> AsyncIterator[perdure.Client]:
    async with perdure.Client(db, "ns") as client:
        yield client


def questions(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The ids of every question that waits put to the database from now on."""
    asked: list[list[str]] = []
    real = store.watch

    async def counted(connection: Any, ids: Any, arm: Any, *, most_bytes: int) -> Any:
        asked.append(list(ids))
        return await real(connection, ids, arm, most_bytes=most_bytes)

    monkeypatch.setattr(store, "watch", counted)
    return asked


async def until_marked(conn: Connection, count: int) -> None:
    async def enough() -> bool:
        return bool(await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE awaited") == count)

    await eventually(enough, f"{count} runs are marked")


async def cancel(conn: Connection, run_id: str) -> None:
    await runs.cancel(conn, run_id, CancelMode.IMMEDIATE, "by the test")


async def test_a_worker_process_runs_what_a_client_starts_and_the_client_gets_what_came_of_it(db: str) -> None:
    with WorkerProcess(db, modules="tests.worker.clientflows", poll_seconds=MINUTE, lease_seconds=300.0) as process:
        async with perdure.Client(db, namespace="ns") as client:
            await process.works()
            first = await client.start(buy, "1", cents=500)
            bad = await client.start(buy, "2", 5000)
            stuck = await client.start(endless.options(id="stuck"))

            assert await first.result(SOON) == Receipt("1", 500)
            assert await first.status() is RunStatus.SUCCEEDED
            assert await first.output() == Receipt("1", 500)
            assert await first.output_raw() == '{"order":"1","cents":500}'
            assert await client.handle(first.id).output() == {"order": "1", "cents": 500}

            with pytest.raises(Declined) as declined:
                await bad.result(SOON)
            assert declined.value.cents == 5000
            assert await bad.wait() is RunStatus.FAILED
            assert await bad.output_raw() is None

            assert await asyncio.wait_for(client.run(nothing), SOON) is None  # type: ignore[func-returns-value]
            assert await asyncio.wait_for(client.run(buy, "3", 3), SOON) == Receipt("3", 3)

            with pytest.raises(WorkflowNotFinished):
                await stuck.output()
            assert await stuck.cancel("not wanted", mode=CancelMode.IMMEDIATE) in {
                RunStatus.RUNNING,
                RunStatus.CANCELLED,
            }
            assert await client.handle("stuck", endless).wait(SOON) is RunStatus.CANCELLED
            with pytest.raises(WorkflowCancelled, match="not wanted"):
                await stuck.result()
            assert await stuck.cancel() is RunStatus.CANCELLED


async def test_a_start_with_an_id_is_made_once(client: perdure.Client, conn: Connection) -> None:
    mine = buy.options(id="mine")
    first = await client.start(mine, "1", 5)
    assert await client.start(mine, order="1", cents=5) == first
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 1

    with pytest.raises(ConflictingWorkflow, match="another input"):
        await client.start(mine, "1", 6)
    with pytest.raises(ConflictingWorkflow, match=r"of workflow c\.buy, not c\.nothing"):
        await client.start(nothing.options(id="mine"))
    await cancel(conn, "mine")
    assert await (await client.start(mine, "1", 5)).wait() is RunStatus.CANCELLED


async def test_an_id_of_another_namespace_is_taken(client: perdure.Client, db: str) -> None:
    await client.start(nothing.options(id="mine"))
    async with perdure.Client(db, namespace="other") as other:
        with pytest.raises(ConflictingWorkflow, match="namespace ns, not other"):
            await other.start(nothing.options(id="mine"))


async def test_options_of_a_start_are_those_of_its_run(client: perdure.Client, conn: Connection) -> None:
    options = {"queue": "q", "pool": "p", "priority": 7, "partition_key": "k"}
    handle = await client.start(nothing.options(timeout=60, delay=30, **options))  # type: ignore[arg-type]
    row = await conn.fetchrow(
        "SELECT queue, pool, priority, partition_key, extract(epoch FROM timeout)::integer AS timeout,"
        " extract(epoch FROM wake_at - created_at)::integer AS delay FROM perdure.workflows WHERE id = $1",
        handle.id,
    )
    assert row is not None
    assert dict(row) == {**options, "timeout": 60, "delay": 30}
    assert await handle.status() is RunStatus.DELAYED


async def test_a_workflow_can_be_started_by_its_name(client: perdure.Client, db: str) -> None:
    by_position = await client.start_by_name("c.buy", ["1", 5])
    by_name = await client.start_by_name("c.buy", {"cents": 6, "order": "2"}, StartOptions(id="two"))
    assert await client.start_by_name("c.buy", {"order": "2", "cents": 6}, StartOptions(id="two")) == by_name
    async with working(db):
        assert await by_position.result(SOON) == {"order": "1", "cents": 5}
        assert await by_name.result(SOON) == {"order": "2", "cents": 6}
        assert await client.handle("two", buy).output() == Receipt("2", 6)


async def test_many_are_started_in_few_statements_and_in_order(client: perdure.Client, conn: Connection) -> None:
    handles = await client.start_many(
        buy.options(id=f"r{number % 2400}").prepare(str(number % 2400), 1) for number in range(2500)
    )

    assert [handle.id for handle in handles] == [f"r{number % 2400}" for number in range(2500)]
    rows = await conn.fetch("SELECT id FROM perdure.workflows ORDER BY run_at")
    assert [row["id"] for row in rows] == [f"r{number}" for number in range(2400)]
    assert await conn.fetchval("SELECT count(DISTINCT xmin::text) FROM perdure.workflows") == 3


async def test_of_many_an_id_in_use_is_refused_and_the_same_again_starts_what_is_missing(
    client: perdure.Client, conn: Connection
) -> None:
    await client.start(nothing.options(id="r1"))
    starts = [buy.options(id=f"r{number}").prepare(str(number), 1) for number in range(1500)]
    with pytest.raises(ConflictingWorkflow, match="the id r1 belongs to"):
        await client.start_many(starts)
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 1000

    del starts[1]
    assert len(await client.start_many(starts)) == 1499
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 1500


async def test_two_clients_hear_of_the_same_end(client: perdure.Client, db: str, conn: Connection) -> None:
    handle = await client.start(buy, "1", 5)
    async with perdure.Client(db, "ns") as other:
        both = asyncio.gather(
            handle.result(poll=MINUTE), other.handle(handle.id, buy).result(poll=MINUTE), handle.wait(poll=MINUTE)
        )
        await until_marked(conn, 1)
        async with working(db):
            one, two, status = await asyncio.wait_for(both, SOON)
    assert one == two == Receipt("1", 5)
    assert status is RunStatus.SUCCEEDED


async def test_two_hundred_waits_are_one_question_and_their_ends_are_told(
    client: perdure.Client, db: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = await client.start_many(nothing.prepare() for _ in range(200))
    asked = questions(monkeypatch)
    waits = asyncio.gather(*(handle.wait(poll=MINUTE) for handle in handles))
    await until_marked(conn, 200)
    # One as they begin, and one when the listener has come.
    assert [len(ids) for ids in asked] in ([200], [200, 200])

    async with working(db, slots=50):
        assert set(await asyncio.wait_for(waits, SOON)) == {RunStatus.SUCCEEDED}
    # Of those that have ended only, and each once: but the listener may have come only now.
    told = [run_id for ids in asked[1:] if len(ids) < 200 for run_id in ids]
    assert len(told) == len(set(told))


async def test_without_a_listener_waits_of_many_are_one_question_a_tick(
    db: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = questions(monkeypatch)
    async with perdure.Client(db, "ns", listen=False) as client:
        handles = await client.start_many(nothing.prepare() for _ in range(200))
        waits = asyncio.gather(*(handle.wait(poll=0.05) for handle in handles))

        async def five_ticks() -> bool:
            return len(asked) >= 5

        await eventually(five_ticks, "five questions")
        assert {len(ids) for ids in asked} == {200}
        assert await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE awaited") == 0
        async with working(db, slots=50):
            assert set(await asyncio.wait_for(waits, SOON)) == {RunStatus.SUCCEEDED}


async def test_a_cancel_by_the_client_itself_needs_no_poll(client: perdure.Client, conn: Connection) -> None:
    handle = await client.start(nothing)
    waiting = asyncio.ensure_future(handle.wait(poll=MINUTE))
    await until_marked(conn, 1)
    assert await client.handle(handle.id).cancel() is RunStatus.CANCELLED
    assert await asyncio.wait_for(waiting, SOON) is RunStatus.CANCELLED


async def test_an_end_that_nobody_tells_of_is_found_by_polling(client: perdure.Client, conn: Connection) -> None:
    handle = await client.start(nothing)
    waiting = asyncio.ensure_future(handle.wait(poll=0.05))
    await until_marked(conn, 1)
    await cancel(conn, handle.id)
    assert await asyncio.wait_for(waiting, SOON) is RunStatus.CANCELLED


async def test_a_wait_ends_at_its_limit_and_the_run_goes_on(client: perdure.Client, conn: Connection) -> None:
    handle = await client.start(nothing)
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match=f"run {handle.id} has not ended within 0.2 s; it goes on") as timeout:
        await handle.wait_with_timeout(0.2)
    assert time.monotonic() - began < 5.0
    assert timeout.value.retryable
    assert await handle.status() is RunStatus.ENQUEUED
    with pytest.raises(WaitTimeout):
        await handle.result(0.05, poll=0.02)


async def test_a_run_that_is_not_there_is_said_not_to_be(client: perdure.Client) -> None:
    nobody = client.handle("nobody", buy)
    for question in (nobody.wait, nobody.result, nobody.status, nobody.output, nobody.output_raw, nobody.cancel):
        with pytest.raises(NonExistentWorkflow, match="there is no run nobody"):
            await question()


async def test_a_run_that_is_deleted_while_it_is_waited_for_is_gone(client: perdure.Client, conn: Connection) -> None:
    handle = await client.start(nothing)
    waiting = asyncio.ensure_future(handle.result(poll=0.05))
    await until_marked(conn, 1)
    await conn.execute("DELETE FROM perdure.workflows")
    with pytest.raises(NonExistentWorkflow):
        await asyncio.wait_for(waiting, SOON)


async def test_a_large_result_arrives_whole(client: perdure.Client, db: str) -> None:
    async with working(db):
        assert await asyncio.wait_for(client.run(large, 500_000), SOON) == "x" * 500_000


async def test_a_handle_of_another_workflow_gives_no_result(client: perdure.Client, db: str) -> None:
    handle = await client.start(nothing)
    async with working(db):
        await handle.wait(SOON)
    with pytest.raises(ConflictingWorkflow, match=r"of workflow c\.nothing"):
        await client.handle(handle.id, buy).result()
