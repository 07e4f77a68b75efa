"""Messages to runs and events of runs, from outside of them."""

import asyncio
import time
from collections.abc import AsyncIterator

import perdure
import pytest
from perdure.errors import EncodingFailed, InvalidArgument, NonExistentWorkflow
from perdure.worker.link import Connection

from tests.support.pgwait import eventually, holding, until_waiting
from tests.support.workerproc import working
from tests.worker.clientflows import nothing, talks

SOON = 20.0


@pytest.fixture
async def client(db: str) -> AsyncIterator[perdure.Client]:
    async with perdure.Client(db, "ns") as client:
        yield client


async def inbox(conn: Connection) -> list[tuple[str, str]]:
    rows = await conn.fetch("SELECT topic, value FROM perdure.messages ORDER BY id")
    return [(row["topic"], row["value"]) for row in rows]


async def test_a_run_takes_what_a_client_sends_and_a_client_sees_what_it_says(client: perdure.Client, db: str) -> None:
    handle = await client.start(talks)
    async with working(db):
        assert await client.get_event(handle.id, "state", timeout=SOON) == "listening"
        await client.send(handle.id, {"item": 1}, "orders")
        await client.send(handle.id, "elsewhere")
        await client.send(handle.id, [2], "orders")
        assert await handle.result(SOON) == [{"item": 1}, [2]]
    assert await client.get_event(handle.id, "state") == {"heard": 2}


async def test_a_receiver_that_gave_its_slot_back_goes_on_without_waiting_for_a_sweep(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    """The worker polls and sweeps once a minute."""
    handle = await client.start(talks)

    async def parked() -> bool:
        return bool(await conn.fetchval("SELECT status = 40 FROM perdure.workflows"))

    async with working(db, poll_seconds=60.0, lease_seconds=300.0):
        for item in (1, 2):
            await eventually(parked, "the run is parked")
            await client.send(handle.id, item, "orders")
        assert await handle.result(SOON) == [1, 2]


async def test_a_message_with_a_key_is_sent_once(client: perdure.Client, conn: Connection) -> None:
    handle = await client.start(nothing)
    for value in (1, 2):
        await client.send(handle.id, value, key="payment")
        await client.send(handle.id, value)
    assert await inbox(conn) == [("", "1"), ("", "1"), ("", "2")]


async def test_a_message_to_nobody_is_refused(client: perdure.Client, conn: Connection) -> None:
    with pytest.raises(NonExistentWorkflow, match="there is no run nobody"):
        await client.send("nobody", 1)
    assert await inbox(conn) == []


async def test_what_cannot_be_sent_is_refused_before_it_is(client: perdure.Client) -> None:
    with pytest.raises(EncodingFailed, match="the message"):
        await client.send("x", float("nan"))
    for to, topic, key in (("", "", None), ("x", "a\x00", None), ("x", "", ""), ("x", "t" * 256, None)):
        with pytest.raises(InvalidArgument):
            await client.send(to, 1, topic, key)
    with pytest.raises(InvalidArgument):
        await client.get_event("x", "")


async def test_an_event_that_is_not_set_in_time_is_none(client: perdure.Client) -> None:
    handle = await client.start(nothing)
    assert await client.get_event(handle.id, "state", timeout=0) is None
    assert await client.get_event("nobody", "state", timeout=0.1) is None


async def test_the_limit_of_an_event_holds_while_the_table_is_locked(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    assert await client.get_event("x", "state", timeout=0) is None
    async with holding(db, ("LOCK TABLE perdure.events",)):
        began = time.monotonic()
        asking = asyncio.ensure_future(client.get_event("x", "state", timeout=0.5))
        await until_waiting(conn)
        assert await asking is None
        assert time.monotonic() - began < 5.0
    assert await client.get_event("x", "state", timeout=0) is None
