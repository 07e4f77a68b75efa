"""Streams on real workers: between runs, out of steps, to clients; nothing lost, nothing twice, nobody left waiting."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing

import perdure
import pytest
from perdure.client import waits as waits_module
from perdure.errors import ClientClosed, InvalidArgument, NonExistentWorkflow, StreamTimeout
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs, streams
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import WorkerProcess, effects, enqueue, finished, open_gate, until_effect, working
from tests.worker import streamflows
from tests.worker.test_children import output, waits

SOON = 20.0
FLOWS = "tests.worker.streamflows"
LONG: dict[str, float] = {"poll_seconds": 60.0, "lease_seconds": 300.0}
"""The worker neither polls nor sweeps while the test lasts: what wakes is told at once."""


@pytest.fixture
async def client(db: str) -> AsyncIterator[perdure.Client]:
    async with perdure.Client(db, "ns") as client:
        yield client


async def written(conn: Connection, run_id: str = "w") -> list[str]:
    rows = await conn.fetch(
        'SELECT "offset", value FROM perdure.stream_values WHERE workflow_id = $1 ORDER BY "offset"', run_id
    )
    assert [row["offset"] for row in rows] == list(range(len(rows)))
    return [row["value"] for row in rows]


# -- between runs


async def test_a_run_reads_what_another_writes_without_a_slot_and_without_a_sweep(db: str, conn: Connection) -> None:
    await enqueue(conn, "s.writes", 0, 10, True, "g", run_id="w")
    await enqueue(conn, "s.reads", "w", 5, 5, run_id="r")
    async with working(db, slots=2, **LONG):
        await until_effect(conn, "w", "g", "begun")
        await waits(conn, "r")
        await open_gate(conn, "g")
        assert await finished(conn, "r") is RunStatus.SUCCEEDED
    assert await output(conn, "r") == [5, 6, 7, 8, 9]


async def test_many_readers_of_one_stream_get_all_of_it(db: str, conn: Connection) -> None:
    await enqueue(conn, "s.writes", 0, 20, True, "g", run_id="w")
    for n in range(10):
        await enqueue(conn, "s.reads", "w", 20, run_id=f"r{n}")
    async with working(db, slots=4):
        for n in range(10):
            await waits(conn, f"r{n}")
        await open_gate(conn, "g")
        for n in range(10):
            assert await finished(conn, f"r{n}") is RunStatus.SUCCEEDED
            assert await output(conn, f"r{n}") == list(range(20))
    assert await conn.fetchval("SELECT count(*) FROM perdure.stream_waits") == 0


async def test_a_stream_that_is_closed_ends_its_readers(db: str, conn: Connection) -> None:
    await enqueue(conn, "s.writes", 0, 3, True, "g", run_id="w")
    await enqueue(conn, "s.reads_on", "w", run_id="r")
    async with working(db, slots=2, **LONG):
        await until_effect(conn, "w", "g", "begun")
        await waits(conn, "r")
        await open_gate(conn, "g")
        assert await finished(conn, "r") is RunStatus.SUCCEEDED
    assert await output(conn, "r") == [0, 1, 2, "stream s of run w was closed before offset 3"]


async def test_a_run_that_ends_with_its_stream_open_ends_its_readers(db: str, conn: Connection) -> None:
    await enqueue(conn, "s.writes", 0, 2, False, "g", run_id="w")
    await enqueue(conn, "s.reads_on", "w", run_id="r")
    async with working(db, slots=2):
        await until_effect(conn, "w", "g", "begun")
        await waits(conn, "r")
        await open_gate(conn, "g")
        assert await finished(conn, "r") is RunStatus.SUCCEEDED
    assert (await output(conn, "r"))[2] == "run w has ended without a value at offset 2 of stream s"


async def test_a_run_that_is_cancelled_ends_the_readers_of_its_streams(db: str, conn: Connection) -> None:
    await enqueue(conn, "s.stays", run_id="w")
    await enqueue(conn, "s.reads_on", "w", run_id="r")
    async with working(db, slots=2):
        await waits(conn, "w")
        await waits(conn, "r")
        assert await runs.cancel(conn, "w", CancelMode.GRACEFUL, "enough") is RunStatus.CANCELLED
        assert await finished(conn, "r") is RunStatus.SUCCEEDED
    assert "has ended" in (await output(conn, "r"))[0]


async def test_a_read_with_a_limit_of_time_ends_at_it(db: str, conn: Connection) -> None:
    await enqueue(conn, "s.stays", run_id="w")
    await enqueue(conn, "s.reads_on", "w", 0.3, run_id="r")
    async with working(db, slots=2):
        assert await finished(conn, "r") is RunStatus.SUCCEEDED
    assert await output(conn, "r") == ["stream s of run w had no value at offset 0 within 0.3 s"]


async def test_killed_while_it_writes_a_run_writes_nothing_twice(db: str, conn: Connection) -> None:
    await enqueue(conn, "s.writes", 0, 150, run_id="w")
    await enqueue(conn, "s.reads", "w", 150, run_id="r")
    with WorkerProcess(db, modules=FLOWS) as worker:
        await worker.works()

        async def progress() -> bool:
            return len(await written(conn)) >= 40

        await eventually(progress, "values are written", 60.0)
        worker.send(signal.SIGKILL)
    async with working(db):
        assert await finished(conn, "w", 60.0) is RunStatus.SUCCEEDED
        assert await finished(conn, "r", 60.0) is RunStatus.SUCCEEDED
    assert await written(conn) == [str(n) for n in range(150)]
    assert await output(conn, "r") == list(range(150))


# -- out of steps


async def test_a_step_writes_as_part_of_itself_and_once_more_when_it_is_tried_again(db: str, conn: Connection) -> None:
    await enqueue(conn, "s.streams_tokens", ["a", "b"], False, run_id="w")
    await enqueue(conn, "s.streams_tokens", ["a", "b"], True, run_id="again")
    async with working(db):
        assert await finished(conn, "w") is RunStatus.SUCCEEDED
        assert await finished(conn, "again") is RunStatus.SUCCEEDED
    assert await written(conn) == ['"a"', '"b"']
    assert await written(conn, "again") == ['"a"', '"b"'] * 2
    names = await conn.fetch("SELECT DISTINCT name FROM perdure.workflow_steps")
    assert [each["name"] for each in names] == ["s.tokens"]


async def test_a_thousand_values_of_one_step_arrive_while_it_runs(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    handle = await client.start(streamflows.streams_tokens, [str(n) for n in range(1000)])
    async with working(db):
        found = [value async for value in client.read_stream(handle.id, "s", type=str)]
        assert await handle.result(SOON) == 1000
    assert found == [str(n) for n in range(1000)]


async def test_a_step_may_read_a_stream(db: str, conn: Connection) -> None:
    await enqueue(conn, "s.writes", 7, 2, True, "g", run_id="w")
    await enqueue(conn, "s.step_reads", "w", run_id="r")
    async with working(db):
        await until_effect(conn, "w", "g", "begun")
        await open_gate(conn, "g")
        assert await finished(conn, "r") is RunStatus.SUCCEEDED
    assert await output(conn, "r") == [7, 8]


async def test_a_sync_step_with_a_loop_of_its_own_writes_to_a_stream(db: str, conn: Connection) -> None:
    await enqueue(conn, "s.writes_in_a_thread", run_id="w")
    async with working(db):
        assert await finished(conn, "w") is RunStatus.SUCCEEDED
    assert await written(conn) == ["0", "1", "2"]
    assert await output(conn, "w") == "refused where nothing can await it"


async def test_a_transaction_writes_to_no_stream_as_readers_would_keep_what_it_rolls_back(
    db: str, conn: Connection
) -> None:
    await enqueue(conn, "s.writes_in_a_transaction", run_id="w")
    async with working(db):
        assert await finished(conn, "w") is RunStatus.SUCCEEDED
    assert "write from the workflow" in await output(conn, "w")
    assert await written(conn) == []


async def test_a_step_may_not_write_more_than_one_claim_can_count(
    db: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.engine.calls.streams.MOST_WRITES", 20)
    await enqueue(conn, "s.streams_tokens", [str(n) for n in range(100)], run_id="w")
    async with working(db):
        assert await finished(conn, "w") is RunStatus.FAILED
    found = await runs.result(conn, "w")
    assert found is not None
    assert "write from the body of the workflow" in (found.error or "")
    assert 10 < len(await written(conn)) < 20


async def test_a_body_that_is_left_behind_writes_nothing_once_the_run_has_another_owner(
    db: str, conn: Connection
) -> None:
    await enqueue(conn, "s.left_behind_run", run_id="w")
    async with working(db):
        await until_effect(conn, "w", "g", "begun")
        await conn.execute(
            "UPDATE perdure.workflows SET worker_id = NULL, status = 10, fence = fence + 5, suspended = true"
        )
        before = len(await written(conn))
        await until_effect(conn, "w", "g", "OwnershipLost")
        assert len(await written(conn)) == before
        assert (await effects(conn, "w")).count(("g", "begun")) == 1
        await conn.execute("UPDATE perdure.workflows SET cancel_mode = 'Immediate', status = 70, finished_at = now()")


# -- to clients


async def test_a_client_reads_values_as_they_come_until_the_stream_is_closed(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    handle = await client.start(streamflows.writes, 0, 4, before="g")
    async with working(db), aclosing(client.read_stream(handle.id, "s")) as values:
        assert [await anext(values) for _ in range(3)] == [0, 1, 2]
        await open_gate(conn, "g")
        assert [value async for value in values] == [3]
    assert [value async for value in client.read_stream(handle.id, "s", 2)] == [2, 3]
    assert [value async for value in client.read_stream(handle.id, "s", 9)] == []


async def test_a_client_stops_reading_when_the_run_has_ended_with_the_stream_open(
    client: perdure.Client, db: str
) -> None:
    handle = await client.start(streamflows.writes, 0, 3, close=False)
    async with working(db):
        assert [value async for value in client.read_stream(handle.id, "s")] == [0, 1, 2]
        assert [value async for value in client.read_stream(handle.id, "no such key")] == []


async def test_a_notification_brings_a_value_before_the_next_look(
    client: perdure.Client, db: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.client.ticker.FIRST_SECONDS", 60.0)
    monkeypatch.setattr(waits_module, "FIRST_SECONDS", 60.0)
    handle = await client.start(streamflows.writes, 0, 2, before="g")
    async with working(db), aclosing(client.read_stream(handle.id, "s")) as values:
        await until_effect(conn, handle.id, "g", "begun")
        assert await anext(values) == 0
        reading = asyncio.ensure_future(anext(values))
        await eventually(lambda: listened(conn), "the client listens")
        await open_gate(conn, "g")
        assert await asyncio.wait_for(reading, SOON) == 1


async def listened(conn: Connection) -> bool:
    text = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%perdure_streams%' AND pid <> pg_backend_pid()"
    return bool(await conn.fetchval(text))


async def test_many_readers_of_a_client_share_a_question(
    client: perdure.Client, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    pages = streams.pages

    async def counted(connection: Connection, readers: list[streams.Reader]) -> list[streams.Page]:
        asked.append(len(readers))
        return await pages(connection, readers)

    handle = await client.start(streamflows.stays)
    monkeypatch.setattr(streams, "pages", counted)

    async def read() -> None:
        with pytest.raises(StreamTimeout):
            await anext(client.read_stream(handle.id, "s", timeout=0.5))

    await asyncio.gather(*(read() for _ in range(100)))
    assert asked[0] == 100
    assert len(asked) < 10


async def test_many_who_wait_for_events_share_a_question(
    client: perdure.Client, db: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    read = waits_module.events.read

    async def counted(connection: Connection, wanted: list[object]) -> list[str | None]:
        asked.append(len(wanted))
        return await read(connection, wanted)  # type: ignore[arg-type]

    monkeypatch.setattr(waits_module.events, "read", counted)
    handles = [await client.start(streamflows.sets, "g") for _ in range(3)]
    async with working(db):
        for handle in handles:
            await until_effect(conn, handle.id, "g", "begun")
        waiting = [asyncio.ensure_future(client.get_event(each.id, "state")) for each in handles for _ in range(20)]
        none = asyncio.ensure_future(client.get_event("nobody", "state", 0.3))
        assert await none is None
        await open_gate(conn, "g")
        assert await asyncio.gather(*waiting) == [{"of": "g"}] * 60
    assert asked[0] == 61


async def test_an_event_has_the_type_that_was_asked_for(client: perdure.Client, db: str, conn: Connection) -> None:
    handle = await client.start(streamflows.sets, "g")
    async with working(db):
        await open_gate(conn, "g")
        assert await client.get_event(handle.id, "state", SOON, type=dict[str, str]) == {"of": "g"}
        with pytest.raises(perdure.DecodingFailed, match="event state of run"):
            await client.get_event(handle.id, "state", type=int)


async def test_what_a_client_cannot_read_is_told(client: perdure.Client, db: str) -> None:
    for run_id, key, offset in (("", "s", 0), ("r", "", 0), ("r", "s", -1), ("r", "s" * 256, 0)):
        with pytest.raises(InvalidArgument):
            client.read_stream(run_id, key, offset)
    with pytest.raises(NonExistentWorkflow, match="no run nobody"):
        await anext(client.read_stream("nobody", "s"))
    handle = await client.start(streamflows.stays)
    with pytest.raises(StreamTimeout, match=r"no value at offset 0 within 0\.1 s"):
        await anext(client.read_stream(handle.id, "s", timeout=0.1))
    with pytest.raises(StreamTimeout):
        await anext(client.read_stream(handle.id, "s", timeout=0))


async def test_a_client_that_is_closed_ends_its_readers(db: str) -> None:
    async with perdure.Client(db, "ns") as client:
        handle = await client.start(streamflows.stays)
        reading = asyncio.ensure_future(anext(client.read_stream(handle.id, "s")))
        expecting = asyncio.ensure_future(client.get_event(handle.id, "state"))
        await asyncio.sleep(0)
    for each in (reading, expecting):
        with pytest.raises(ClientClosed):
            await each
