"""What steps do beside themselves, and what stops them, on real workers."""

import asyncio
from typing import Any

import perdure
import pytest
from perdure.engine.registry import Registry
from perdure.errors import MaxStepRetriesExceeded, OwnershipLost
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import runs
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import enqueue, finished, working
from tests.worker.test_children import output

flows = Registry()


class Declined(Exception):
    def __init__(self, cents: int) -> None:
        super().__init__(f"{cents} cents declined")
        self.cents = cents


class Stage:
    """What bodies of a test say and wait for; they run in the loop of the test."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.gate = asyncio.Event()


stage = Stage()


@pytest.fixture(autouse=True)
def new_stage() -> None:
    stage.__init__()  # type: ignore[misc]


async def says(what: Any) -> None:
    async def said() -> bool:
        return what in stage.said

    await eventually(said, f"a body says {what}")


@perdure.workflow(name="in.hears", registry=flows)
async def hears(times: int) -> list[Any]:
    return [await perdure.recv("t") for _ in range(times)]


@perdure.step(name="in.tells", registry=flows, max_attempts=2, interval=0)
async def tells(to: str) -> None:
    stage.said.append(to)
    await perdure.send(to, len(stage.said), "t")
    if len(stage.said) == 1:
        raise OSError("after the message")


@perdure.step(name="in.tells_sync", registry=flows)
def tells_sync(to: str, about: str) -> Any:
    perdure.run_sync(perdure.send, to, "from a thread", "t")
    return perdure.run_sync(perdure.get_event, about, "state", timeout=20)


@perdure.workflow(name="in.teller", registry=flows)
async def teller(to: str) -> None:
    await tells(to)


@perdure.workflow(name="in.sync_teller", registry=flows)
async def sync_teller(to: str, about: str) -> Any:
    return await tells_sync(to, about)


@perdure.workflow(name="in.publishes", registry=flows)
async def publishes() -> None:
    await perdure.set_event("state", "published")


@perdure.step(name="in.late", registry=flows)
async def late(to: str) -> None:
    stage.said.append("begun")
    if stage.said.count("begun") > 1:
        return
    while not stage.gate.is_set():
        try:
            await stage.gate.wait()
        except asyncio.CancelledError:
            continue
    try:
        await perdure.send(to, "too late", "t")
    except BaseException as error:
        stage.said.append(type(error))


@perdure.workflow(name="in.latecomer", registry=flows)
async def latecomer(to: str) -> None:
    await late(to)


@perdure.step(name="in.endless", registry=flows, preemptible=True)
async def endless() -> None:
    stage.said.append("begun")
    await asyncio.Event().wait()


@perdure.workflow(name="in.waits", registry=flows)
async def waits() -> None:
    await endless()


@perdure.transaction(name="in.moves", registry=flows, preemptible=True)
async def moves(connection: Connection) -> None:
    await connection.execute("INSERT INTO public.gates VALUES ('moved')")
    stage.said.append("begun")
    await asyncio.Event().wait()


@perdure.workflow(name="in.mover", registry=flows)
async def mover() -> None:
    await moves()


@perdure.transaction(name="in.moves_and_tells", registry=flows)
async def moves_and_tells(connection: Connection, to: str) -> Any:
    await perdure.get_event(to, "state", timeout=0)
    await perdure.send(to, "moved", "t")


@perdure.workflow(name="in.telling_mover", registry=flows)
async def telling_mover(to: str) -> str:
    try:
        await moves_and_tells(to)
    except perdure.InsideStep as error:
        return error.code
    return "sent"


@perdure.workflow(name="in.canceller", registry=flows)
async def canceller(run_id: str) -> str:
    return (await perdure.cancel(run_id)).name


@perdure.step(name="in.charges", registry=flows, max_attempts=2, interval=0)
async def charges() -> None:
    stage.said.append("tried")
    raise Declined(len(stage.said))


@perdure.workflow(name="in.child", registry=flows)
async def child() -> None:
    await charges()


@perdure.workflow(name="in.parent", registry=flows)
async def parent() -> list[int]:
    handle = await child.start()
    try:
        await handle.result()
    except MaxStepRetriesExceeded as error:
        return [each.cents for each in error.errors if isinstance(each, Declined)]
    return []


async def test_a_step_that_is_tried_again_sends_again_and_wakes_the_receiver(db: str, conn: Connection) -> None:
    await enqueue(conn, "in.hears", 2, run_id="r")
    async with working(db, flows):
        await enqueue(conn, "in.teller", "r", run_id="s")
        assert await finished(conn, "r") is RunStatus.SUCCEEDED
    assert await output(conn, "r") == [1, 2]
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflow_steps WHERE workflow_id = 's'") == 1


async def test_a_sync_step_sends_and_looks_at_events(db: str, conn: Connection) -> None:
    await enqueue(conn, "in.hears", 1, run_id="r")
    await enqueue(conn, "in.sync_teller", "r", "p", run_id="s")
    async with working(db, flows):
        assert await finished(conn, "r") is RunStatus.SUCCEEDED
        await enqueue(conn, "in.publishes", run_id="p")
        assert await finished(conn, "s") is RunStatus.SUCCEEDED
    assert await output(conn, "r") == ["from a thread"]
    assert await output(conn, "s") == "published"


async def test_a_body_whose_run_was_taken_away_sends_nothing(db: str, conn: Connection) -> None:
    await enqueue(conn, "in.hears", 1, run_id="r")
    await enqueue(conn, "in.latecomer", "r", run_id="s")
    async with working(db, flows):
        await says("begun")
        await conn.execute(
            "UPDATE perdure.workflows SET fence = fence + 1, status = 10, worker_id = NULL WHERE id = 's'"
        )
        stage.gate.set()
        await says(OwnershipLost)
        assert await finished(conn, "s") is RunStatus.SUCCEEDED
        assert await conn.fetchval("SELECT count(*) FROM perdure.messages") == 0
        await runs.cancel(conn, "r", CancelMode.GRACEFUL, "enough")


async def test_the_beat_brings_a_graceful_cancel_to_a_preemptible_step(db: str, conn: Connection) -> None:
    await enqueue(conn, "in.waits", run_id="r")
    async with working(db, flows):
        await says("begun")
        assert await runs.cancel(conn, "r", CancelMode.GRACEFUL, "enough") is RunStatus.RUNNING
        assert await finished(conn, "r") is RunStatus.CANCELLED
    assert await conn.fetchval("SELECT status FROM perdure.workflow_steps") == StepStatus.RUNNING


@pytest.mark.parametrize("mode", CancelMode)
async def test_a_cancel_by_a_client_is_heard_long_before_the_next_beat(
    db: str, conn: Connection, mode: CancelMode
) -> None:
    await enqueue(conn, "in.waits", run_id="r")
    async with working(db, flows, lease_seconds=60.0), perdure.Client(db, namespace="ns") as client:
        await says("begun")
        assert await client.cancel("r", mode=mode) is RunStatus.RUNNING
        assert await finished(conn, "r", 5.0) is RunStatus.CANCELLED


async def test_a_cancel_by_another_run_is_heard_long_before_the_next_beat(db: str, conn: Connection) -> None:
    await enqueue(conn, "in.waits", run_id="r")
    async with working(db, flows, lease_seconds=60.0):
        await says("begun")
        await enqueue(conn, "in.canceller", "r", run_id="c")
        assert await finished(conn, "r", 5.0) is RunStatus.CANCELLED
        assert await finished(conn, "c") is RunStatus.SUCCEEDED
    assert await output(conn, "c") == "RUNNING"


async def test_a_preemptible_transaction_is_rolled_back_by_a_graceful_cancel(db: str, conn: Connection) -> None:
    await enqueue(conn, "in.mover", run_id="r")
    async with working(db, flows):
        await says("begun")
        await runs.cancel(conn, "r", CancelMode.GRACEFUL, "enough")
        assert await finished(conn, "r") is RunStatus.CANCELLED
    assert await conn.fetchval("SELECT count(*) FROM public.gates") == 0
    assert await conn.fetchval("SELECT status FROM perdure.workflow_steps") == StepStatus.RUNNING


async def test_in_a_transaction_nothing_is_sent_as_it_could_not_be_taken_back(db: str, conn: Connection) -> None:
    await enqueue(conn, "in.telling_mover", "r", run_id="r")
    async with working(db, flows):
        assert await finished(conn, "r") is RunStatus.SUCCEEDED
    assert await output(conn, "r") == "PRD-312"
    assert await conn.fetchval("SELECT count(*) FROM perdure.messages") == 0


async def test_the_errors_of_all_attempts_reach_parents_and_clients(db: str, conn: Connection) -> None:
    async with working(db, flows), perdure.Client(db, namespace="ns") as client:
        assert await client.run(parent) == [1, 2]
        with pytest.raises(MaxStepRetriesExceeded) as caught:
            await client.run(child)
    assert [each.cents for each in caught.value.errors if isinstance(each, Declined)] == [3, 4]
    assert caught.value.attempts == 2
