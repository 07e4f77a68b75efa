"""Processes that die, pause, lose their database: what is finished stays finished, what was cut off runs again."""

import asyncio
import signal

import pytest
from perdure.model.states import RunStatus, WorkerState
from perdure.store import runs
from perdure.telemetry import names
from perdure.worker.link import Connection

from tests.support.cuts import Cutter
from tests.support.pgwait import eventually
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy
from tests.support.workerproc import (
    WorkerProcess,
    connect_again,
    effects,
    enqueue,
    finished,
    open_gate,
    until_effect,
    working,
)


async def recoveries(conn: Connection, run_id: str) -> int:
    count: int = await conn.fetchval("SELECT recoveries FROM perdure.workflows WHERE id = $1", run_id)
    return count


async def test_killed_in_a_step_another_worker_goes_on_from_there(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "g", run_id="r1")
    with WorkerProcess(db) as first:
        await first.works()
        await until_effect(conn, "r1", "at", "begun")
        first.send(signal.SIGKILL)
        async with working(db):
            await until_effect(conn, "r1", "at", "begun", 2)
            await open_gate(conn, "g")
            assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await effects(conn, "r1") == [
        ("before", "done"),
        ("at", "begun"),
        ("at", "begun"),
        ("at", "ended"),
        ("after", "done"),
    ]
    assert await recoveries(conn, "r1") == 1


async def test_killed_between_steps_no_finished_step_runs_again(db: str, conn: Connection) -> None:
    """The body itself waits, so the process dies with nothing in progress."""
    await enqueue(conn, "t.suspended_body", "g", run_id="r1")
    with WorkerProcess(db) as first:
        await first.works()

        async def recorded() -> bool:
            return bool(await conn.fetchval("SELECT count(*) FROM perdure.workflow_steps WHERE status = 30"))

        await eventually(recorded, "the first step is durable")
        first.send(signal.SIGKILL)
        async with working(db):
            await open_gate(conn, "g")
            assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await effects(conn, "r1") == [("before", "done"), ("after", "done")]


async def test_killed_before_any_step_the_run_is_found_and_run(db: str, conn: Connection) -> None:
    """Claimed, and nothing more: the claim's answer never becomes a body."""
    await enqueue(conn, "t.notes", ["a"], run_id="r1")
    with WorkerProcess(db) as first:
        await first.works()

        async def claimed() -> bool:
            return await runs.get_status(conn, "r1") is not RunStatus.ENQUEUED

        await eventually(claimed, "the run is claimed")
        first.send(signal.SIGKILL)
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert [label for label, _ in await effects(conn, "r1")].count("a") <= 2


async def test_a_restarted_container_proves_its_predecessor_dead(db: str, conn: Connection) -> None:
    """Same pod, new process: nobody waits for the lease."""
    await enqueue(conn, "t.gated", "g", run_id="r1")
    with WorkerProcess(db, pod_uid="pod-1", lease_seconds=60.0) as first:
        await first.works()
        await until_effect(conn, "r1", "at", "begun")
        first.send(signal.SIGKILL)
        await first.ended()
        async with working(db, pod_uid="pod-1", lease_seconds=60.0):
            await until_effect(conn, "r1", "at", "begun", 2)
            await open_gate(conn, "g")
            assert await finished(conn, "r1") is RunStatus.SUCCEEDED


async def test_paused_past_its_lease_a_worker_changes_nothing_and_comes_back(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "g", run_id="r1")
    with WorkerProcess(db) as paused:
        await paused.works()
        await until_effect(conn, "r1", "at", "begun")
        first_id = await conn.fetchval("SELECT worker_id FROM perdure.workflows WHERE id = 'r1'")
        paused.send(signal.SIGSTOP)
        async with working(db) as other:
            await until_effect(conn, "r1", "at", "begun", 2)
            fence = await conn.fetchval("SELECT fence FROM perdure.workflows WHERE id = 'r1'")
            # Both bodies wait at the same gate: the old one ends its step first, and may not record it.
            paused.send(signal.SIGCONT)
            await paused.says("this worker is lost")
            assert await conn.fetchval("SELECT fence FROM perdure.workflows WHERE id = 'r1'") == fence
            await open_gate(conn, "g")
            assert await finished(conn, "r1") is RunStatus.SUCCEEDED
            assert await conn.fetchval("SELECT state FROM perdure.workers WHERE id = $1", first_id) == WorkerState.DEAD
            await other.stop()
        # It has registered under a new id and works again, alone.
        await enqueue(conn, "t.notes", ["again"], run_id="r2")
        assert await finished(conn, "r2") is RunStatus.SUCCEEDED
        assert len(paused.said("registered")) == 2
        assert len(paused.said("this worker is lost")) == 1
        assert len(paused.said("ownership lost")) <= 1
    assert (await effects(conn, "r1")).count(("after", "done")) == 1
    steps = await conn.fetch("SELECT DISTINCT fence FROM perdure.workflow_steps WHERE workflow_id = 'r1'")
    assert len(steps) == 2, "the first step under the first fence, the others under the second"


async def test_a_blocked_loop_loses_its_lease_and_the_run_goes_on_elsewhere(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.stuck", "never", run_id="r1")
    with WorkerProcess(db) as blocked:
        await blocked.works()
        await until_effect(conn, "r1", "at", "begun")
        # The next one to run it does not block: as a new version of the code would not.
        await open_gate(conn, "open")
        await conn.execute("UPDATE perdure.workflow_payloads SET input = '[\"open\"]' WHERE workflow_id = 'r1'")
        await conn.execute("DELETE FROM perdure.workflow_steps WHERE workflow_id = 'r1' AND step_index = 1")
        async with working(db):
            assert await finished(conn, "r1") is RunStatus.SUCCEEDED
        line = await blocked.says("the event loop is blocked")
        assert "blocked_until_open(name)" in line["stack"]
        assert "flows.py" in line["stack"]
        # Nobody could stop the body, so the process ended itself.
        assert await blocked.ended() == 75


async def test_a_database_that_restarts_under_load_loses_and_doubles_nothing(
    db: str, conn: Connection, pg_server: PostgresServer
) -> None:
    for number in range(40):
        await enqueue(conn, "t.no_op", 100, run_id=f"r{number}")
    async with working(db, slots=20, lease_seconds=5.0) as worker:
        await until_steps(conn, 200)
        await asyncio.to_thread(pg_server.restart)
        again = await connect_again(db)
        await until_steps(again, 1500)
        await asyncio.to_thread(pg_server.restart, clean=False)
        again = await connect_again(db)
        for number in range(40):
            assert await finished(again, f"r{number}", 60.0) is RunStatus.SUCCEEDED
        assert await again.fetchval("SELECT count(*) FROM perdure.workflow_steps WHERE status = 30") == 4000
        assert await again.fetchval("SELECT sum(recoveries) FROM perdure.workflows") == 0
        assert worker.id is not None
        await again.close()


@pytest.mark.parametrize(("victim", "times"), [("me", 20), ("perdure-sweeper", 3), ("perdure-listener", 3)])
async def test_cut_sessions_heal(db: str, conn: Connection, victim: str, times: int) -> None:
    """Cut again and again while runs go on: the first time at once, the last time before the last of their steps."""
    for number in range(10):
        await enqueue(conn, "t.no_op", 60, run_id=f"r{number}")
    async with working(db, slots=5) as worker:
        name = worker.id if victim == "me" else victim
        cutter = Cutter(conn, name)
        for turn in range(times):
            await until_steps(conn, 500 * turn // times)
            await cutter.hit()
        for number in range(10):
            assert await finished(conn, f"r{number}") is RunStatus.SUCCEEDED
        assert worker.id == name or victim != "me", "cut sessions are no lost lease"
    assert await conn.fetchval("SELECT sum(recoveries) FROM perdure.workflows") == 0


async def test_answers_that_never_come_lose_and_double_nothing(
    db: str, conn: Connection, pg_server: PostgresServer
) -> None:
    """Every kind of statement is cut between its commit and its answer: claims, journals, beats, sweeps.

    One of them at least each time; in the later turns it is waited for more, the rarer ones among them.
    """
    total = 0

    async def some_run() -> bool:
        return bool(await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE status = 30"))

    async with Proxy(pg_server.port) as proxy, working(proxy.through(db), slots=5, lease_seconds=6.0) as worker:
        for turn in range(12):
            for _ in range(5):
                await enqueue(conn, "t.notes", ["a", "b", "c", "d"], run_id=f"r{total}")
                total += 1
            # Without a run at work the journal would be silent, and only claims and sweeps would be cut.
            await eventually(some_run, "a run is claimed")
            proxy.hold_answers()

            async def unanswered(connections: int = 1 + turn // 4) -> bool:
                return proxy.held_answers >= connections

            await eventually(unanswered, "statements are executed and not answered")
            proxy.cut()
        for number in range(total):
            assert await finished(conn, f"r{number}", 60.0) is RunStatus.SUCCEEDED
        assert worker.metrics.value(names.JOURNAL_RETRIES, "connection") > 0
    assert await conn.fetchval("SELECT count(*) FROM public.effects") == 4 * total
    assert await conn.fetchval("SELECT count(DISTINCT (run, step)) FROM public.effects") == 4 * total
    assert await conn.fetchval("SELECT sum(recoveries) FROM perdure.workflows") == 0


async def test_two_workers_share_a_queue_and_each_run_runs_once(db: str, conn: Connection) -> None:
    for number in range(300):
        await enqueue(conn, "t.notes", ["only"], run_id=f"r{number}")
    async with working(db, slots=8) as one, working(db, slots=8) as two:
        for number in range(300):
            assert await finished(conn, f"r{number}", 60.0) is RunStatus.SUCCEEDED
        shares = [worker.metrics.value(names.CLAIMED_RUNS, "default") for worker in (one, two)]
    assert sum(shares) == 300
    assert await conn.fetchval("SELECT count(*) FROM public.effects") == 300
    assert await conn.fetchval("SELECT count(DISTINCT run) FROM public.effects") == 300


async def test_a_claim_whose_answer_was_lost_is_given_back(db: str, conn: Connection) -> None:
    async with working(db, lease_seconds=1.0) as worker:
        await enqueue(conn, "t.notes", ["a"], run_id="r1", queue="other")
        # What a claim that committed without an answer leaves behind.
        await conn.execute(
            "UPDATE perdure.workflows SET status = 30, worker_id = $1, fence = fence + 1, queue = 'default' "
            "WHERE id = 'r1'",
            worker.id,
        )
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await recoveries(conn, "r1") == 0
    assert await effects(conn, "r1") == [("a", "done")]


async def test_poison_is_parked_after_its_recoveries(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "never", run_id="r1", max_recoveries=1)
    for _ in range(3):
        with WorkerProcess(db, pod_uid="pod-1", lease_seconds=60.0) as victim:
            await victim.works()
            begun = len(await effects(conn, "r1"))

            async def again(before: int = begun) -> bool:
                return len(await effects(conn, "r1")) > before or await is_parked(conn)

            await eventually(again, "it begins again, or is parked")
            victim.send(signal.SIGKILL)
            await victim.ended()
    async with working(db, pod_uid="pod-1", lease_seconds=60.0):
        assert await finished(conn, "r1") is RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED


async def is_parked(conn: Connection) -> bool:
    return await runs.get_status(conn, "r1") is RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED


async def until_steps(conn: Connection, count: int) -> None:
    async def enough() -> bool:
        return bool(await conn.fetchval("SELECT count(*) >= $1 FROM perdure.workflow_steps", count))

    await eventually(enough, f"{count} steps are recorded")
