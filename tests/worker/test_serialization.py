"""Values that a serializer writes, from a client through a worker and back; who cannot read them; portable runs."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import perdure
import pytest
from perdure.engine.registry import Registry
from perdure.errors import ConfigurationError, ConflictingSchedule, ConflictingWorkflow, UnknownSerialization
from perdure.model.states import RunStatus
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import WorkerProcess, finished, working
from tests.worker.serialflows import SEALED, Sealed, pay, portable, register, registry, unseal

SOON = 20.0
CARD = "4000123412341234"


@pytest.fixture
async def client(db: str) -> AsyncIterator[perdure.Client]:
    async with perdure.Client(db, "ns", serializer=SEALED) as client:
        yield client


@pytest.fixture
async def plain(db: str) -> AsyncIterator[perdure.Client]:
    async with perdure.Client(db, "ns") as client:
        yield client


@pytest.fixture
def sealing() -> Registry:
    """The registry of the flows, of which the worker writes with the serializer."""
    registry.serializers = type(registry.serializers)().with_own(SEALED, ())
    return registry


async def everything(conn: Connection) -> str:
    """All that is stored of runs, as text."""
    tables = [
        "workflow_payloads", "workflow_steps", "messages", "events", "events_history", "stream_values",
        "idempotency_keys", "workflows", "schedules",
    ]  # fmt: skip
    rows = [await conn.fetch(f"SELECT t::text AS row FROM perdure.{name} t") for name in tables]
    return "\n".join(row["row"] for found in rows for row in found)


# -- sealed


async def test_nothing_that_a_run_stores_is_readable_without_the_serializer(
    db: str, conn: Connection, client: perdure.Client, sealing: Registry
) -> None:
    async with working(db, sealing):
        handle = await client.start(pay.options(id="p"), CARD, 7)
        assert await client.get_event("p", "paid", SOON) == {"card": CARD, "cents": 7}
        await handle.send({"by": CARD}, "confirm")
        result = await handle.result(SOON)
        values = [value async for value in client.read_stream("p", "log")]
    assert result == {
        "card": CARD,
        "cents": 7,
        "message": {"by": CARD},
        "reverse": CARD[::-1],
        "kept": f"made for key of {CARD}",
    }
    assert values == [CARD, {"open": True}]
    stored = await everything(conn)
    # The key of an idempotency key is its own, and no value.
    assert stored.count(CARD) == stored.count(f"key of {CARD}") == 1
    assert CARD[::-1] not in stored
    assert '{"open":true}' in stored.replace('""', '"')


async def test_a_start_that_is_made_again_finds_its_run_by_what_the_input_says(client: perdure.Client) -> None:
    one = await client.start(pay.options(id="p"), CARD, 7)
    assert await client.start(pay.options(id="p"), CARD, 7) == one
    with pytest.raises(ConflictingWorkflow):
        await client.start(pay.options(id="p"), CARD, 8)
    several = await client.start_many([pay.options(id="p").prepare(CARD, 7)] * 2)
    assert several == [one, one]


async def test_whoever_lacks_the_serializer_is_told_its_name(
    db: str, client: perdure.Client, plain: perdure.Client, sealing: Registry
) -> None:
    async with working(db, sealing):
        handle = await client.start(pay, CARD, 7)
        await handle.send(None, "confirm")
        await handle.result(SOON)
    other = plain.handle(handle.id, pay)
    for ask in (other.result(SOON), other.output(), other.output_raw(), plain.get_event(handle.id, "paid", 0)):
        with pytest.raises(UnknownSerialization, match="sealed") as told:
            await ask
        assert told.value.name == "sealed"
    with pytest.raises(UnknownSerialization):
        _ = [value async for value in plain.read_stream(handle.id, "log")]
    with pytest.raises(UnknownSerialization):
        await plain.start(pay.options(id=handle.id), CARD, 7)
    raw = await client.handle(handle.id).output_raw()
    assert json.loads(raw or "")["card"] == CARD


async def test_a_worker_that_lacks_the_serializer_keeps_the_run_for_one_that_has_it(
    db: str, conn: Connection, client: perdure.Client, sealing: Registry
) -> None:
    handle = await client.start(pay.options(id="p"), CARD, 7)
    without = Registry()
    without.workflows, without.steps = registry.workflows, registry.steps
    async with working(db, without, retry_backoff_seconds=0.1):

        async def told() -> str | None:
            waits = await conn.fetchval("SELECT waiting_for->>'message' FROM perdure.workflows WHERE id = 'p'")
            return waits if waits and "sealed" in waits else None

        assert await eventually(told, "the run says what it waits for", SOON)
    async with working(db, sealing):
        await handle.send(None, "confirm")
        assert (await handle.result(SOON))["cents"] == 7


async def test_a_transaction_commits_its_sealed_outcome_with_its_rows(
    db: str, conn: Connection, client: perdure.Client, sealing: Registry
) -> None:
    async with working(db, sealing):
        handle = await client.start(pay.options(id="p"), CARD, 7)
        await handle.send(None, "confirm")
        await handle.result(SOON)
    row = await conn.fetchrow("SELECT input, output FROM perdure.workflow_steps WHERE name = 'count'")
    assert row is not None
    assert (unseal(row["input"]), unseal(row["output"])) == ([CARD], CARD)
    assert await conn.fetchval("SELECT count(*) FROM public.counted") == 1


async def test_an_instance_writes_and_reads_with_its_serializer(db: str, conn: Connection) -> None:
    app = perdure.Instance(db, "ns", serializer=SEALED, poll_seconds=0.2, lease_seconds=5.0, run_attempts=1)

    @app.workflow(name="greet")
    async def greet(who: str) -> str:
        return f"hello {who}"

    async with app:
        assert await asyncio.wait_for(greet.run("Ada"), SOON) == "hello Ada"
        handle = await app.start_by_name("greet", ["Bob"])
        assert await handle.result(SOON) == "hello Bob"
    stored = await everything(conn)
    assert "Ada" not in stored
    assert "Bob" not in stored


async def test_the_same_schedule_is_the_same_however_often_it_is_written(
    conn: Connection, client: perdure.Client
) -> None:
    def schedule(cents: int = 7) -> perdure.Schedule:
        return perdure.Schedule("s", "0 3 * * *", pay.prepare(CARD, cents))

    await client.schedules.create(schedule())
    await client.schedules.create(schedule())
    with pytest.raises(ConflictingSchedule):
        await client.schedules.create(schedule(8))
    assert unseal(await conn.fetchval("SELECT input FROM perdure.schedules")) == [CARD, 7]
    handle = await client.schedules.trigger("s")
    text = await conn.fetchval("SELECT input FROM perdure.workflow_payloads WHERE workflow_id = $1", handle.id)
    assert unseal(text) == [CARD, 7]


async def test_a_debounced_start_is_sealed(conn: Connection, client: perdure.Client) -> None:
    await client.debounce(pay.prepare(CARD, 1), "k", 60)
    await client.debounce(pay.prepare(CARD, 2), "k", 60)
    assert unseal(await conn.fetchval("SELECT input FROM perdure.workflow_payloads")) == [CARD, 2]


# -- a worker process


FLOWS = "tests.worker.serialflows"


async def test_a_worker_process_writes_with_the_serializer_that_its_setting_names(
    db: str, conn: Connection, client: perdure.Client
) -> None:
    handle = await client.start_by_name("sealed.default", [CARD])
    with WorkerProcess(db, modules=FLOWS, bootstrap=f"{FLOWS}:register", serializer="sealed"):
        assert await handle.result(SOON) == CARD
    assert CARD not in await everything(conn)


async def test_a_worker_process_does_not_start_with_a_serializer_that_nobody_has_registered(db: str) -> None:
    with WorkerProcess(db, modules=FLOWS, serializer="sealed") as worker:
        assert await worker.ended() != 0
        assert "there is no serializer sealed" in worker.text()


async def test_a_codec_that_never_answers_keeps_no_process_from_ending(
    db: str, conn: Connection, plain: perdure.Client
) -> None:
    await plain.start_by_name("sealed.default", [CARD], perdure.StartOptions(id="s"))
    hook = f"{FLOWS}:register_stuck"
    with WorkerProcess(db, modules=FLOWS, bootstrap=hook, codecs="stuck", drain_seconds=1.0) as worker:
        await worker.writes("the codec was asked")
        worker.send(signal.SIGTERM)
        await worker.ended()
    assert await conn.fetchval("SELECT status FROM perdure.workflows WHERE id = 's'") == RunStatus.ENQUEUED


async def test_a_serializer_is_registered_once_for_the_process() -> None:
    register()
    register()
    with pytest.raises(perdure.AlreadyRegistered):
        perdure.register_serializer(Sealed())
    with pytest.raises(ConfigurationError):
        perdure.Client("mysql://x", serializer=SEALED)


# -- portable


async def test_a_portable_workflow_is_started_and_read_by_plain_sql(
    db: str, conn: Connection, client: perdure.Client, sealing: Registry
) -> None:
    by_name = (
        """SELECT perdure.start_workflow('sealed.portable', '{"words": ["a", "b"], "upper": true}', 'sql', 'ns')"""
    )
    await conn.execute(by_name)
    await client.start(portable.options(id="client"), ["a", "b"])
    result = "SELECT p.output::jsonb->>'text' FROM perdure.workflow_payloads p WHERE p.workflow_id = $1"
    async with working(db, sealing):
        for run_id, text in (("sql", "A B"), ("client", "a b")):
            assert await finished(conn, run_id) is RunStatus.SUCCEEDED
            assert await conn.fetchval(result, run_id) == text
    assert await conn.fetchval("SELECT serialization FROM perdure.workflows WHERE id = 'client'") == 1
    assert await client.handle("sql", portable).result(SOON) == {"text": "A B"}


@pytest.mark.parametrize(("choice", "number"), [("portable", 1), ("native", 2), ("default", None), (None, None)])
async def test_a_start_says_how_its_run_is_written(
    conn: Connection, client: perdure.Client, choice: Any, number: int | None
) -> None:
    handle = await client.start(pay.options(serialization=choice), CARD, 7)
    assert await conn.fetchval("SELECT serialization FROM perdure.workflows WHERE id = $1", handle.id) == number
    text = await conn.fetchval("SELECT input FROM perdure.workflow_payloads WHERE workflow_id = $1", handle.id)
    assert text.startswith("!sealed:") is (number is None)


async def test_a_portable_start_by_name_is_refused_what_is_not_portable(client: perdure.Client) -> None:
    options = perdure.StartOptions(serialization="portable")
    with pytest.raises(perdure.EncodingFailed, match="portable"):
        await client.start_by_name("elsewhere", [{1: 2}], options)
    handle = await client.start_by_name("elsewhere", {"n": 1}, options)
    found = await handle.details()
    assert (found.input, found.serialization) == ('{"n":1}', perdure.Serialization.PORTABLE)


async def test_a_message_of_a_client_says_how_it_is_written(conn: Connection, client: perdure.Client) -> None:
    handle = await client.start(pay, CARD, 7)
    await client.send(handle.id, {"n": 1}, serialization="portable")
    await handle.send({"n": 2})
    first, second = await conn.fetch("SELECT value FROM perdure.messages ORDER BY sent_at, id")
    assert first["value"] == '{"n":1}'
    assert unseal(second["value"]) == {"n": 2}
