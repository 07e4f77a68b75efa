"""Options of starts, through a client and a worker on a real database."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import perdure
import pytest
from perdure.engine.registry import Registry
from perdure.errors import (
    ConflictingWorkflow,
    InsideStep,
    InsideWorkflow,
    InvalidArgument,
    QueueDeduplicated,
    WorkflowIdInUse,
)
from perdure.model.start import NO_TIMEOUT, StartOptions
from perdure.model.states import RunStatus
from perdure.store import clients as store
from perdure.worker.link import Connection

from tests.support.workerproc import working
from tests.worker.clientflows import buy, nothing

SOON = 20.0

rejecting = buy.options(id="mine", reuse="reject")


@pytest.fixture
async def client(db: str) -> AsyncIterator[perdure.Client]:
    async with perdure.Client(db, "ns") as client:
        yield client


async def rows(conn: Connection) -> int:
    return int(await conn.fetchval("SELECT count(*) FROM perdure.workflows"))


def lose_the_answer(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """The first answer of this operation is lost after it was carried out; how often it was asked for."""
    real = getattr(store, name)
    asked: list[int] = []

    async def lost(*args: Any, **kwargs: Any) -> Any:
        asked.append(1)
        answer = await real(*args, **kwargs)
        if len(asked) == 1:
            raise asyncpg.ConnectionDoesNotExistError("cut by the test")
        return answer

    monkeypatch.setattr(store, name, lost)
    return asked


# -- an id in use


async def test_a_start_that_rejects_an_id_in_use_is_refused_whatever_became_of_the_run(
    client: perdure.Client, conn: Connection
) -> None:
    handle = await client.start(rejecting, "1", 5)
    with pytest.raises(WorkflowIdInUse) as refused:
        await client.start(rejecting, "1", 5)
    assert refused.value.run_id == "mine"
    await handle.cancel()
    with pytest.raises(WorkflowIdInUse):
        await client.start(rejecting, "1", 5)
    with pytest.raises(WorkflowIdInUse):
        await client.run(nothing.options(id="mine", reuse="reject"))
    assert isinstance(refused.value, perdure.SystemDatabaseError)
    assert await rows(conn) == 1


async def test_a_rejecting_start_whose_answer_was_lost_finds_its_own_run(
    client: perdure.Client, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = lose_the_answer(monkeypatch, "start")
    assert (await client.start(rejecting, "1", 5)).id == "mine"
    assert (len(asked), await rows(conn)) == (2, 1)
    with pytest.raises(WorkflowIdInUse):
        await client.start(rejecting, "1", 5)


async def test_a_prepared_start_that_is_made_again_finds_its_own_run(client: perdure.Client, conn: Connection) -> None:
    """As after `StoreUnavailable`: nobody knows then whether it was made."""
    start, other = rejecting.prepare("1", 5), rejecting.prepare("1", 5)
    assert await client.start_many([start]) == await client.start_many([start])
    with pytest.raises(WorkflowIdInUse):
        await client.start_many([other])
    assert await rows(conn) == 1


async def test_of_one_list_two_rejecting_starts_of_an_id_are_refused(client: perdure.Client, conn: Connection) -> None:
    with pytest.raises(WorkflowIdInUse):
        await client.start_many([rejecting.prepare("1", 5), rejecting.prepare("1", 5)])
    assert await rows(conn) == 0


async def test_rejecting_without_an_id_is_refused_before_anything_is_written(
    client: perdure.Client, conn: Connection
) -> None:
    with pytest.raises(InvalidArgument, match="needs an id"):
        await client.start(buy.options(reuse="reject"), "1", 5)
    with pytest.raises(InvalidArgument, match="needs an id"):
        await client.start_by_name("c.buy", ["1", 5], StartOptions(reuse="reject"))
    assert await rows(conn) == 0


async def test_what_has_failed_is_run_again_and_its_finished_steps_are_not(client: perdure.Client, db: str) -> None:
    registry = Registry()
    done: list[str] = []
    broken = [True]

    @perdure.step(name="pay", registry=registry)
    async def pay() -> None:
        done.append("pay")

    @perdure.step(name="ship", registry=registry)
    async def ship() -> str:
        done.append("ship")
        if broken:
            raise ValueError("no van")
        return "sent"

    @perdure.workflow(name="order", registry=registry)
    async def order() -> str:
        await pay()
        return await ship()

    again = order.options(id="mine", reuse="rerun-failed")
    async with working(db, registry):
        with pytest.raises(ValueError, match="no van"):
            await asyncio.wait_for((await client.start(again)).result(), SOON)
        with pytest.raises(ValueError, match="no van"):
            await client.run(order.options(id="mine"))
        broken.clear()
        assert await asyncio.wait_for(client.run(again), SOON) == "sent"
        assert await asyncio.wait_for(client.run(again), SOON) == "sent"
    assert done == ["pay", "ship", "ship"]


async def test_a_run_is_run_again_once_although_the_answer_was_lost(
    client: perdure.Client, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = buy.options(id="mine", reuse="rerun-failed")
    await client.start(again, "1", 5)
    await conn.execute("UPDATE perdure.workflows SET status = 60, finished_at = now()")
    asked = lose_the_answer(monkeypatch, "rerun")
    handle = await client.start(again, "1", 5)
    assert await handle.status() is RunStatus.ENQUEUED
    assert (len(asked), await conn.fetchval("SELECT fence FROM perdure.workflows")) == (2, 1)


# -- duplicates


async def test_a_duplicate_is_refused_until_the_run_has_ended(client: perdure.Client, conn: Connection) -> None:
    once = buy.options(deduplication_id="order-1")
    first = await client.start(once, "1", 5)
    with pytest.raises(QueueDeduplicated) as refused:
        await client.start(once, "1", 6)
    assert refused.value.run_id == first.id
    assert (await client.start(once.options(queue="other"), "1", 5)).id != first.id
    await first.cancel()
    assert (await client.start(once, "1", 5)).id != first.id
    assert await rows(conn) == 3


async def test_a_start_with_a_deduplication_id_whose_answer_was_lost_finds_its_own_run(
    client: perdure.Client, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_the_answer(monkeypatch, "start")
    handle = await client.start(buy.options(deduplication_id="d"), "1", 5)
    assert await conn.fetchval("SELECT id FROM perdure.workflows") == handle.id


async def test_the_run_that_holds_the_deduplication_id_is_given_if_asked_for(client: perdure.Client, db: str) -> None:
    same = buy.options(deduplication_id="order-1", on_duplicate="return-existing")
    first = await client.start(same, "1", 5)
    assert await client.start(same, "2", 7) == first
    assert await client.start_many([same.prepare("3", 8), same.prepare("4", 9)]) == [first, first]
    with pytest.raises(ConflictingWorkflow, match=r"is of c\.buy, not c\.nothing"):
        await client.start(nothing.options(deduplication_id="order-1", on_duplicate="return-existing"))
    running = asyncio.ensure_future(client.run(same, "5", 10))
    async with working(db):
        assert (await asyncio.wait_for(running, SOON)).order == "1"


# -- what a workflow says itself


async def test_a_workflow_has_a_timeout_and_a_number_of_attempts_of_its_own(
    client: perdure.Client, conn: Connection
) -> None:
    @perdure.workflow(name="quick", timeout=60, max_run_attempts=7, registry=Registry())
    async def quick() -> None: ...

    for number, each in enumerate([quick, quick.options(timeout=5), quick.options(timeout=NO_TIMEOUT)]):
        await client.start(each.options(id=f"r{number}"))
    found = await conn.fetch(
        "SELECT extract(epoch FROM timeout)::float8 AS timeout, max_run_attempts FROM perdure.workflows ORDER BY id"
    )
    assert [(row["timeout"], row["max_run_attempts"]) for row in found] == [(60, 7), (5, 7), (None, 7)]


async def test_attributes_are_recorded_with_the_run(client: perdure.Client, conn: Connection) -> None:
    await client.start(nothing.options(attributes={"tenant": "acme", "tags": ["a"]}))
    text = await conn.fetchval('SELECT attributes FROM perdure.workflows WHERE attributes @> \'{"tenant": "acme"}\'')
    assert json.loads(text) == {"tenant": "acme", "tags": ["a"]}


async def test_run_takes_no_queue(client: perdure.Client, conn: Connection) -> None:
    with pytest.raises(InvalidArgument, match="takes no queue"):
        await client.run(nothing.options(queue="q"))
    assert await rows(conn) == 0


# -- in a transaction of the caller


async def test_a_start_in_the_callers_transaction_is_there_when_it_commits(
    client: perdure.Client, conn: Connection, db: str
) -> None:
    await conn.execute("CREATE TABLE orders (id text)")
    async with conn.transaction():
        await conn.execute("INSERT INTO orders VALUES ('1')")
        handle = await client.start_in(conn, buy.options(id="mine"), "1", 5)
        with pytest.raises(perdure.NonExistentWorkflow):
            await handle.status()
    async with working(db):
        assert (await handle.result(SOON)).order == "1"


async def test_a_start_in_the_callers_transaction_never_was_when_it_is_rolled_back(
    client: perdure.Client, conn: Connection
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with conn.transaction():
            await client.start_in(conn, buy, "1", 5)
            raise ZeroDivisionError
    assert await rows(conn) == 0


async def test_in_the_callers_transaction_ids_and_duplicates_are_seen_to_as_elsewhere(
    client: perdure.Client, conn: Connection
) -> None:
    await client.start(buy.options(id="mine", deduplication_id="d"), "1", 5)
    async with conn.transaction():
        assert (await client.start_in(conn, buy.options(id="mine"), "1", 5)).id == "mine"
        with pytest.raises(ConflictingWorkflow):
            await client.start_in(conn, buy.options(id="mine"), "2", 5)
        with pytest.raises(QueueDeduplicated):
            await client.start_in(conn, buy.options(deduplication_id="d"), "1", 5)
        assert await conn.fetchval("SELECT 1") == 1, "a refusal is no error of the transaction"


# -- in a body and in a step


async def test_clients_start_nothing_in_bodies_and_steps_and_ask_nothing_in_bodies(
    client: perdure.Client, conn: Connection, db: str
) -> None:
    registry = Registry()
    other = await client.start(nothing)
    starts = [
        lambda: client.start(nothing),
        lambda: client.run(nothing),
        lambda: client.start_many([nothing.prepare()]),
        lambda: client.start_by_name("c.nothing"),
        lambda: client.start_in(conn, nothing),
    ]
    asks = [other.status, other.result, lambda: client.send(other.id, 1), lambda: client.get_event(other.id, "e")]

    async def refused(calls: list[Any], error: type[Exception]) -> int:
        count = 0
        for call in calls:
            try:
                await call()
            except error:
                count += 1
        return count

    @perdure.step(name="in_step", registry=registry)
    async def in_step() -> list[Any]:
        return [await refused(starts, InsideStep), str(await other.status())]

    @perdure.workflow(name="flow", registry=registry)
    async def flow() -> list[Any]:
        return [await refused(starts, InsideWorkflow), await refused(asks, InsideWorkflow), *await in_step()]

    async with working(db, registry):
        found = await asyncio.wait_for(client.run(flow), SOON)
    assert found == [5, 4, 5, str(RunStatus.ENQUEUED)]
    assert await rows(conn) == 2


async def test_children_through_a_real_journal_obey_their_options(
    client: perdure.Client, conn: Connection, db: str
) -> None:
    registry = Registry()

    @perdure.workflow(name="child", registry=registry)
    async def child(n: int) -> int:
        if n < 0:
            raise ValueError(n)
        return n

    @perdure.workflow(name="parent", registry=registry)
    async def parent() -> list[Any]:
        found: list[Any] = []
        try:
            await child.options(id="taken", reuse="reject").start(1)
        except WorkflowIdInUse as error:
            found.append(error.run_id)
        try:
            await child.options(deduplication_id="d", queue="held").start(1)
        except QueueDeduplicated as error:
            found.append(error.run_id)
        same = child.options(deduplication_id="d", queue="held", on_duplicate="return-existing")
        found.append((await same.start(1)).id)
        again = await child.options(id="failed", reuse="rerun-failed").start(-1)
        try:
            await again.result()
        except ValueError:
            found.append("failed again")
        return found

    await client.start(child.options(id="taken"), 1)
    await client.start(child.options(id="holder", deduplication_id="d", queue="held"), 1)
    await client.start(child.options(id="failed"), -1)
    await conn.execute("UPDATE perdure.workflows SET status = 60, finished_at = now() WHERE id = 'failed'")
    async with working(db, registry):
        found = await asyncio.wait_for(client.run(parent), SOON)
    assert found == ["taken", "holder", "holder", "failed again"]
    fences = {row["id"]: row["fence"] for row in await conn.fetch("SELECT id, fence FROM perdure.workflows")}
    assert fences["failed"] == 3, "made claimable, claimed, ended"


async def test_many_children_that_are_started_together_are_few_statements(
    client: perdure.Client, conn: Connection, db: str
) -> None:
    registry = Registry()

    @perdure.workflow(name="child", registry=registry)
    async def child(n: int) -> int:
        return n

    @perdure.workflow(name="parent", registry=registry)
    async def parent() -> list[int]:
        handles = await perdure.gather(*(child.start(n) for n in range(300)))
        return [await handle.result() for handle in handles]

    async with working(db, registry, slots=20):
        assert await asyncio.wait_for(client.run(parent), SOON) == list(range(300))
    assert await rows(conn) == 301
    starts = "SELECT count(DISTINCT xmin::text) FROM perdure.workflow_steps WHERE name = 'perdure.start'"
    assert await conn.fetchval(starts) <= 6, "a hundred in one statement"
