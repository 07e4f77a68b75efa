"""Worker processes behind a real pgbouncer in transaction mode, with three sessions for everybody."""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from perdure.client import Client
from perdure.model.states import RunStatus, WorkerState
from perdure.worker.link import Connection

from tests.support.pgbouncer import SERVERS, Bouncer
from tests.support.pgwait import eventually
from tests.support.workerproc import WorkerProcess, effects, enqueue, finished, open_gate, until_effect
from tests.worker import flows, sqlflows

TOLD = {"PERDURE_DATABASE_POOLER": "transaction"}


@pytest.fixture
async def bouncer(db: str) -> AsyncIterator[Bouncer]:
    """Steps go through it as well: they read the worker's own settings."""
    with Bouncer(db) as made:
        yield made


def process(bouncer: Bouncer, **changes: Any) -> WorkerProcess:
    return WorkerProcess(bouncer.plain_url, environment=TOLD, **changes)


async def test_runs_are_claimed_stepped_parked_and_ended(bouncer: Bouncer, conn: Connection) -> None:
    await enqueue(conn, "t.notes", ["a", "b"], run_id="steps")
    await enqueue(conn, "t.slow_retry", run_id="parks")
    with process(bouncer) as worker:
        await worker.works()
        assert await finished(conn, "steps") is RunStatus.SUCCEEDED
        assert await finished(conn, "parks") is RunStatus.SUCCEEDED
        lost = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'perdure%'"
        assert await conn.fetchval(lost) <= SERVERS
        assert worker.said("settings of the role are missing")
    assert await effects(conn, "steps") == [("a", "done"), ("b", "done")]


async def test_a_client_starts_and_waits_without_listening(bouncer: Bouncer, conn: Connection) -> None:
    with process(bouncer) as worker:
        await worker.works()
        async with Client(bouncer.url, namespace="ns") as client:
            handle = await client.start(flows.notes, ["a"])
            assert await asyncio.wait_for(handle.result(), 20.0) == ["a"]


async def test_steps_commit_their_own_sql_with_their_outcome(bouncer: Bouncer, conn: Connection) -> None:
    """More at once than the pooler has sessions, and a key beside."""
    await conn.execute(sqlflows.TABLES)
    for number in range(5):
        await enqueue(conn, "sql.add", 4, run_id=f"r{number}")
    await enqueue(conn, "idem.call", "remembered", ["k"], run_id="key")
    with process(bouncer, modules="tests.worker.sqlflows,tests.worker.idemflows", slots=6) as worker:
        await worker.works()
        for run_id in ("key", *(f"r{number}" for number in range(5))):
            assert await finished(conn, run_id) is RunStatus.SUCCEEDED
    assert await conn.fetchval("SELECT value FROM public.counters WHERE name = 'a'") == 20
    assert await conn.fetchval("SELECT value FROM perdure.idempotency_keys") == "7"


async def test_killed_in_a_step_another_worker_goes_on_from_there(bouncer: Bouncer, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "g", run_id="r1")
    with process(bouncer) as first, process(bouncer) as second:
        await first.works()
        await second.works()
        await until_effect(conn, "r1", "at", "begun")
        owner = await conn.fetchval("SELECT pid FROM public.effects WHERE run = 'r1' AND what = 'begun'")
        (first if first.pid == owner else second).send(signal.SIGKILL)
        await until_effect(conn, "r1", "at", "begun", 2)
        await open_gate(conn, "g")
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    labels = [label for label, what in await effects(conn, "r1") if what != "begun"]
    assert labels == ["before", "at", "after"]


async def test_a_drain_lets_the_step_end_and_releases_the_run(bouncer: Bouncer, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "g", run_id="r1")
    with process(bouncer) as worker:
        await worker.works()
        await until_effect(conn, "r1", "at", "begun")
        worker.send(signal.SIGTERM)
        await worker.says("draining")
        await open_gate(conn, "g")
        assert await worker.ended() == 0
    found = await conn.fetchrow("SELECT status, recoveries, worker_id FROM perdure.workflows WHERE id = 'r1'")
    assert tuple(found or ()) == (RunStatus.ENQUEUED, 0, None)
    assert await conn.fetchval("SELECT state FROM perdure.workers") == WorkerState.STOPPED


async def test_a_pooler_that_is_restarted_in_the_middle_loses_nothing(bouncer: Bouncer, conn: Connection) -> None:
    """Every statement that was on its way is in doubt, on every connection at once."""
    count, steps = 40, 10
    for number in range(count):
        await enqueue(conn, "t.paced", steps, 0.02, run_id=f"r{number}")
    done = "SELECT count(*) FROM perdure.workflow_steps WHERE status = 30"
    with process(bouncer, slots=10) as worker:
        await worker.works()
        for share in (0.2, 0.4, 0.6):

            async def so_far(least: float = share * count * steps) -> bool:
                return bool(await conn.fetchval(done) >= least)

            await eventually(so_far, f"{share:.0%} of the steps are recorded")
            bouncer.restart()
        for number in range(count):
            assert await finished(conn, f"r{number}") is RunStatus.SUCCEEDED
    assert await conn.fetchval(done) == count * steps
    assert await conn.fetchval("SELECT max(recoveries) FROM perdure.workflows") == 0


async def test_a_worker_that_was_not_told_of_the_pooler_says_what_to_set(bouncer: Bouncer) -> None:
    with WorkerProcess(bouncer.plain_url) as worker:
        assert await worker.ended() == 1
        said = worker.text()
    assert "PRD-610" in said and "PERDURE_DATABASE_POOLER=transaction" in said
