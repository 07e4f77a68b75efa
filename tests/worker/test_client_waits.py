"""A client waits for the first of several runs, or for all: one question a tick, and no worker is needed for it."""

import asyncio
from collections.abc import AsyncIterator

import perdure
import pytest
from perdure.errors import ClientClosed, InvalidArgument, NonExistentWorkflow, WaitTimeout, WorkflowCancelled
from perdure.model.states import CancelMode
from perdure.store import runs
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import working
from tests.worker.clientflows import Declined, Receipt, buy, endless, nothing
from tests.worker.test_client import questions


@pytest.fixture
async def client(db: str) -> AsyncIterator[perdure.Client]:
    async with perdure.Client(db, "ns") as client:
        yield client


async def started(client: perdure.Client, *ids: str) -> list[perdure.Handle[None]]:
    return [await client.start(nothing.options(id=each)) for each in ids]


async def cancel(conn: Connection, *ids: str) -> None:
    for each in ids:
        await runs.cancel(conn, each, CancelMode.IMMEDIATE, "by the test")


async def test_select_gives_the_id_of_the_first_run_that_ends_however_it_does(
    client: perdure.Client, conn: Connection
) -> None:
    await started(client, "a", "b", "c")
    waiting = asyncio.create_task(client.select_workflow("a", "b", client.handle("c"), timeout=20))
    await cancel(conn, "c")
    assert await waiting == "c"
    await cancel(conn, "b")
    assert await client.select_workflow("a", "b", "c") == "b", "of those that have ended, the first as given"


async def test_join_by_ids_waits_for_all_and_says_nothing_of_them(client: perdure.Client, conn: Connection) -> None:
    await started(client, "a", "b")
    waiting = asyncio.create_task(client.join_workflows("a", "b", timeout=20))
    await cancel(conn, "a")
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done
    await cancel(conn, "b")
    assert await waiting is None  # type: ignore[func-returns-value]


async def test_join_of_handles_gives_their_results_and_raises_the_first_failure_in_order(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    good = await client.start(buy, "1", 5)
    empty = await client.start(nothing)
    bad = await client.start(buy, "2", 5000)
    stuck = await client.start(endless.options(id="stuck"))
    async with working(db):
        assert await client.join_workflows(good, empty, timeout=20) == (Receipt("1", 5), None)
        with pytest.raises(Declined):
            await client.join_workflows(good, bad, timeout=20)
        await cancel(conn, "stuck")
        with pytest.raises(WorkflowCancelled):
            await client.join_workflows(stuck, bad, timeout=20)


async def test_however_many_runs_are_waited_for_a_tick_is_one_question(
    client: perdure.Client, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [handle.id for handle in await client.start_many(nothing.prepare() for _ in range(200))]
    asked = questions(monkeypatch)
    waits = [
        asyncio.create_task(client.select_workflow(*ids, timeout=20)),
        asyncio.create_task(client.join_workflows(*ids[:50], timeout=20)),
    ]

    async def all_asked() -> bool:
        return bool(asked)

    await eventually(all_asked, "the waits have asked")
    assert sorted(asked[0]) == sorted(ids)
    await cancel(conn, *ids[:50])
    assert await waits[0] in ids[:50]
    await waits[1]


async def test_what_is_not_there_or_cannot_be_waited_for_is_said(client: perdure.Client) -> None:
    await started(client, "a")
    for wait in (client.select_workflow, client.join_workflows):
        with pytest.raises(NonExistentWorkflow, match="there is no run b"):
            await wait("a", "b")
        with pytest.raises(InvalidArgument, match="no run"):
            await wait()
        with pytest.raises(InvalidArgument, match="given twice"):
            await wait("a", client.handle("b") if wait == client.select_workflow else "b", "a")
        with pytest.raises(InvalidArgument, match="not as 7"):
            await wait(7)  # type: ignore[call-overload]
        with pytest.raises(InvalidArgument, match="timeout"):
            await wait("a", timeout=0)
    with pytest.raises(InvalidArgument, match="not both"):
        await client.join_workflows("a", client.handle("b"))  # type: ignore[call-overload]


async def test_a_limit_ends_the_wait_and_no_run_and_nothing_is_left_of_it(client: perdure.Client) -> None:
    await started(client, "a", "b")
    with pytest.raises(WaitTimeout, match=r"none of 2 runs has ended within 0\.1 s"):
        await client.select_workflow("a", "b", timeout=0.1)
    with pytest.raises(WaitTimeout, match="2 of 2 runs have not ended"):
        await client.join_workflows("a", "b", timeout=0.1)
    assert client._watcher._waiters == {}


async def test_a_client_that_is_closed_ends_its_waits(db: str) -> None:
    client = perdure.Client(db, "ns")
    await started(client, "a", "b")
    waiting = asyncio.create_task(client.select_workflow("a", "b"))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(ClientClosed):
        await waiting


async def test_workflow_id_is_another_name_of_id(client: perdure.Client) -> None:
    assert client.handle("a").workflow_id == "a"


async def test_run_takes_no_queue(client: perdure.Client, conn: Connection) -> None:
    with pytest.raises(InvalidArgument, match="queue"):
        await client.run(nothing.options(queue="q"))
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 0
