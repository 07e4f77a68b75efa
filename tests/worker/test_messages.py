"""Messages and events between runs on real workers: in order, each once, through deaths."""

import signal

from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import WorkerProcess, enqueue, finished, open_gate, until_effect, working
from tests.worker.test_children import output, waits


async def test_two_runs_play_ping_pong_on_one_slot(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.ping", "b", 20, run_id="a")
    await enqueue(conn, "t.pong", "a", 20, run_id="b")
    async with working(db, slots=1):
        assert await finished(conn, "a", 60.0) is RunStatus.SUCCEEDED
        assert await finished(conn, "b") is RunStatus.SUCCEEDED
    assert await conn.fetchval("SELECT count(*) FROM perdure.messages WHERE consumed_by IS NULL") == 0


async def test_ping_pong_goes_on_through_deaths_of_its_workers(db: str, conn: Connection) -> None:
    """No message is lost or taken twice: each side checks what it gets."""
    await enqueue(conn, "t.ping", "b", 60, run_id="a", max_recoveries=100)
    await enqueue(conn, "t.pong", "a", 60, run_id="b", max_recoveries=100)
    for round_number in range(1, 4):
        with WorkerProcess(db) as worker:
            await worker.works()

            async def progress(least: int = round_number * 10) -> bool:
                return bool(await conn.fetchval("SELECT count(*) FROM perdure.messages") >= least)

            await eventually(progress, "messages are sent", 60.0)
            worker.send(signal.SIGKILL)
    async with working(db):
        assert await finished(conn, "a", 60.0) is RunStatus.SUCCEEDED
        assert await finished(conn, "b") is RunStatus.SUCCEEDED
    assert await conn.fetchval("SELECT count(*) FROM perdure.messages") == 120
    consumed = await conn.fetch("SELECT DISTINCT workflow_id, consumed_by FROM perdure.messages")
    assert len(consumed) == 120


async def test_many_senders_and_one_receiver_lose_nothing(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.collects", 60, run_id="all")
    for n in range(6):
        await enqueue(conn, "t.sends", "all", n * 10, 10, run_id=f"s{n}")
    async with working(db, slots=4):
        assert await finished(conn, "all", 60.0) is RunStatus.SUCCEEDED
    got = await output(conn, "all")
    assert sorted(got) == list(range(60))
    for n in range(6):
        mine = [number for number in got if number // 10 == n]
        assert mine == sorted(mine)


async def test_killed_while_it_waits_a_run_gets_its_message_once(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.hears", "numbers", run_id="r")
    with WorkerProcess(db) as first:
        await first.works()
        await waits(conn, "r")
        first.send(signal.SIGKILL)
    await enqueue(conn, "t.sends", "r", 7, 1, run_id="s")
    async with working(db):
        assert await finished(conn, "r") is RunStatus.SUCCEEDED
    assert await output(conn, "r") == 7


async def test_a_message_whose_sender_died_before_the_wake_is_found(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.hears", "t", run_id="r")
    async with working(db):
        await waits(conn, "r")
        await conn.execute(
            "INSERT INTO perdure.messages (workflow_id, topic, key, value) VALUES ('r', 't', 'k', '\"found\"')"
        )
        assert await finished(conn, "r") is RunStatus.SUCCEEDED
    assert await output(conn, "r") == "found"


async def test_a_receive_with_a_limit_of_time_gives_up_at_its_end(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.hears", "t", 0.2, run_id="short")
    await enqueue(conn, "t.hears", "t", 1.3, run_id="long")
    async with working(db, slots=1):
        assert await finished(conn, "short") is RunStatus.SUCCEEDED
        assert await finished(conn, "long") is RunStatus.SUCCEEDED
    assert await output(conn, "short") is None
    assert await output(conn, "long") is None
    waited = await conn.fetchval(
        "SELECT extract(epoch FROM finished_at - started_at) FROM perdure.workflow_steps WHERE workflow_id = 'long'"
    )
    assert waited >= 1.3


async def test_an_event_reaches_all_who_wait_for_it_and_those_who_come_later(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.publishes", "ready", "g", run_id="p")
    for n in range(20):
        await enqueue(conn, "t.expects", "p", "ready", run_id=f"e{n}")
    await enqueue(conn, "t.expects", "p", "never", 1.2, run_id="never")
    async with working(db, slots=2):
        await until_effect(conn, "p", "at", "begun")
        for n in range(20):
            await waits(conn, f"e{n}")
        await open_gate(conn, "g")
        for n in range(20):
            assert await finished(conn, f"e{n}") is RunStatus.SUCCEEDED
        assert await finished(conn, "never") is RunStatus.SUCCEEDED
        await enqueue(conn, "t.expects", "p", "ready", run_id="late")
        assert await finished(conn, "late") is RunStatus.SUCCEEDED
    assert await output(conn, "e7") == await output(conn, "late") == {"is": "there"}
    assert await output(conn, "never") is None


async def test_a_cancel_ends_a_run_that_waits_for_a_message(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.hears", "t", run_id="r")
    async with working(db):
        await waits(conn, "r")
        assert await runs.cancel(conn, "r", CancelMode.GRACEFUL, "enough") is RunStatus.CANCELLED
