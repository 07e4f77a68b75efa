"""Races on real workers: parked, woken, killed and tried again, with one winner and no message lost."""

import signal
from typing import Any

import perdure
from perdure.model.states import RunStatus
from perdure.store import runs, sweeps
from perdure.worker.link import Connection

import tests.worker.raceflows  # noqa: F401 - registers its workflows
from tests.support.pgwait import eventually
from tests.support.workerproc import WorkerProcess, effects, enqueue, finished, open_gate, until_effect, working
from tests.worker.test_children import output
from tests.worker.test_sleep import asleep

MODULES = "tests.worker.raceflows"


async def steps(conn: Connection) -> list[tuple[str, int]]:
    rows = await conn.fetch("SELECT name, status FROM perdure.workflow_steps ORDER BY workflow_id, step_index")
    return [(row["name"], row["status"]) for row in rows]


async def tell(db: str, run_id: str, value: Any, topic: str) -> None:
    async with perdure.Client(db, namespace="ns") as client:
        await client.send(run_id, value, topic)


async def test_a_race_of_waits_takes_no_slot_and_any_of_its_keys_wakes_it(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.first_told", 3600.0, run_id="r1")
    async with working(db, slots=1):
        await asleep(conn)
        waiting = await conn.fetchval("SELECT waiting_for FROM perdure.workflows")
        assert '"message:a"' in waiting
        assert '"message:b"' in waiting
        assert await conn.fetchval("SELECT wake_at > now() + interval '59 minutes' FROM perdure.workflows")
        await tell(db, "r1", "hello", "b")
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await output(conn, "r1") == ["b", "hello"]
    assert await steps(conn) == [
        ("perdure.recv", 45),
        ("perdure.recv", 30),
        ("perdure.sleep", 45),
        ("perdure.select", 30),
        ("note", 30),
    ]


async def test_a_parked_race_is_over_when_its_time_has_come(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.first_told", 1.2, run_id="r1")
    async with working(db, slots=1):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await output(conn, "r1") == ["late", None]


async def test_a_message_that_loses_is_there_for_the_next_receive(db: str, conn: Connection) -> None:
    """The step is done and the message is there at the same time: whichever wins, nothing is lost."""
    for number in range(10):
        await enqueue(conn, "t.told_or_done", "g", run_id=f"r{number}")
    async with working(db, slots=10):
        for number in range(10):
            await until_effect(conn, f"r{number}", "g", "begun")
        async with perdure.Client(db, namespace="ns") as client:
            await open_gate(conn, "g")
            for number in range(10):
                await client.send(f"r{number}", f"m{number}", "t")
        for number in range(10):
            assert await finished(conn, f"r{number}") is RunStatus.SUCCEEDED
    for number in range(10):
        name, value, rest = await output(conn, f"r{number}")
        taken = value if name == "told" else rest
        left = await conn.fetchval(
            "SELECT count(*) FROM perdure.messages WHERE workflow_id = $1 AND consumed_by IS NULL", f"r{number}"
        )
        assert taken == f"m{number}" or (taken is None and left == 1)


async def test_killed_in_a_race_another_worker_races_again_and_loses_no_message(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.told_or_done", "g", run_id="r1")
    with WorkerProcess(db, modules=MODULES) as first:
        await first.works()
        await until_effect(conn, "r1", "g", "begun")
        first.send(signal.SIGKILL)
    await tell(db, "r1", "hello", "t")
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await output(conn, "r1") == ["told", "hello", None]
    assert await conn.fetchval("SELECT count(*) FROM perdure.messages WHERE consumed_by = 0") == 1


async def test_killed_after_a_race_its_winner_stays_though_the_others_could_win_now(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.done_then_held", "g", "h", run_id="r1")
    await open_gate(conn, "g")
    with WorkerProcess(db, modules=MODULES) as first:
        await first.works()
        await until_effect(conn, "r1", "h", "begun")
        first.send(signal.SIGKILL)
    await tell(db, "r1", "too late", "t")
    await open_gate(conn, "h")
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await output(conn, "r1") == ["done", "g", "h"]
    assert (await effects(conn, "r1")).count(("g", "begun")) == 1
    assert await conn.fetchval("SELECT count(*) FROM perdure.messages WHERE consumed_by IS NULL") == 1


async def test_a_run_that_failed_by_its_winner_races_anew_when_it_is_tried_again(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.fails_first", "g", run_id="r1", max_run_attempts=2)
    await open_gate(conn, "g")
    async with working(db):

        async def failed_once() -> bool:
            return bool(await conn.fetchval("SELECT reopen FROM perdure.workflows"))

        await eventually(failed_once, "the first attempt has failed")
        await conn.execute("UPDATE perdure.workflows SET wake_at = now()")
        await sweeps.wake_due(conn, 10)
        assert await finished(conn, "r1") is RunStatus.FAILED
    assert await effects(conn, "r1") == [("g", "tried")] * 2
    assert await steps(conn) == [("t.fails_once", 40), ("perdure.sleep", 45), ("perdure.select", 30)]


async def test_time_and_chance_are_the_same_after_a_death(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.drawn", "g", run_id="r1")
    with WorkerProcess(db, modules=MODULES) as first:
        await first.works()
        await until_effect(conn, "r1", "g", "begun")
        first.send(signal.SIGKILL)
    await open_gate(conn, "g")
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    at, one, other = await output(conn, "r1")
    [noted] = [label for label, _ in await effects(conn, "r1") if label.startswith("2")]
    assert noted == f"{at} {one} {other}"


async def test_a_body_that_gives_a_step_up_and_goes_on_fails_the_run(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gives_up", run_id="r1")
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.FAILED
        assert "PRD-315" in ((await runs.result(conn, "r1")).error or "")
