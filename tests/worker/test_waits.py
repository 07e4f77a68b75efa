"""Waits for any run on real workers: no end is missed, whoever started the run and however it ended."""

import json
import signal
from typing import Any

import pytest
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs, wakes
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import WorkerProcess, effects, enqueue, finished, open_gate, until_effect, working
from tests.worker import waitflows

MODULE = waitflows.__name__

SOON = 20.0
"""With sweeps that leave it to the workers for minutes, what happens within this was told."""


async def output(conn: Connection, run_id: str) -> Any:
    found = await runs.result(conn, run_id)
    assert found is not None
    assert found.output is not None
    return json.loads(found.output)


async def waits(conn: Connection, *run_ids: str) -> None:
    """They are parked, and have said for what."""

    async def waiting() -> bool:
        found = await conn.fetchval(
            "SELECT count(*) FROM perdure.workflows WHERE id = ANY($1) AND status = 40", list(run_ids)
        )
        return bool(found == len(run_ids))

    await eventually(waiting, f"{run_ids} wait")


@pytest.fixture
def no_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakes, "TOLD_AFTER", 600.0)


@pytest.mark.usefixtures("no_sweeps")
async def test_a_run_that_waits_for_one_that_somebody_else_started_is_told_of_its_end(
    db: str, conn: Connection
) -> None:
    await enqueue(conn, "t.gated", "g", run_id="theirs")
    async with working(db):
        await until_effect(conn, "theirs", "at", "begun")
        await enqueue(conn, "w.same_start", "theirs", "g", run_id="again")
        await enqueue(conn, "w.result", "theirs", run_id="by id")
        await enqueue(conn, "w.select", ["theirs"], run_id="first")
        await enqueue(conn, "w.join", ["theirs"], run_id="all")
        await waits(conn, "again", "by id", "first", "all")
        await open_gate(conn, "g")
        for run_id in ("again", "by id", "first", "all"):
            assert await finished(conn, run_id, SOON) is RunStatus.SUCCEEDED
    done = ["before", "at", "after"]
    assert await output(conn, "again") == done
    assert await output(conn, "by id") == f"returned {done!r}"
    assert await output(conn, "first") == "theirs"
    assert await output(conn, "all") == ["SUCCEEDED"]
    assert await conn.fetchval("SELECT count(*) FROM perdure.run_waits") == 0
    assert await conn.fetchval("SELECT parent_id FROM perdure.workflows WHERE id = 'theirs'") is None


async def test_an_end_that_nobody_tells_of_is_found_by_the_sweep(db: str, conn: Connection) -> None:
    """The worker dies between the end and the telling: here, the end is made by hand."""
    await enqueue(conn, "t.expects", "nobody", "never", run_id="theirs")
    async with working(db):
        for kind in ("result", "select", "join"):
            await enqueue(conn, f"w.{kind}", ["theirs"] if kind != "result" else "theirs", run_id=kind)
        await waits(conn, "theirs", "result", "select", "join")
    await conn.execute(
        "UPDATE perdure.workflows SET status = 50, worker_id = NULL, fence = fence + 1, finished_at = now(),"
        " waiting_since = NULL, waiting_for = NULL WHERE id = 'theirs'"
    )
    await conn.execute("UPDATE perdure.workflow_payloads SET output = '\"by hand\"' WHERE workflow_id = 'theirs'")
    async with working(db):
        for kind in ("result", "select", "join"):
            assert await finished(conn, kind) is RunStatus.SUCCEEDED
    assert await output(conn, "result") == "returned 'by hand'"


@pytest.mark.parametrize("mode", [CancelMode.IMMEDIATE, CancelMode.GRACEFUL])
async def test_a_run_that_is_cancelled_wakes_who_waits_for_it_and_cancels_nobody(
    db: str, conn: Connection, mode: CancelMode
) -> None:
    await enqueue(conn, "t.gated", "g", run_id="theirs")
    async with working(db):
        await until_effect(conn, "theirs", "at", "begun")
        await enqueue(conn, "w.result", "theirs", run_id="waiter")
        await waits(conn, "waiter")
        await runs.cancel(conn, "theirs", mode, "enough")
        await open_gate(conn, "g")
        assert await finished(conn, "waiter") is RunStatus.SUCCEEDED
    assert await output(conn, "waiter") == "raised PRD-511"


async def test_killed_while_it_waits_a_run_waits_again_and_goes_on(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "g", run_id="theirs")
    for kind in ("result", "select", "join"):
        await enqueue(conn, f"w.{kind}", ["theirs"] if kind != "result" else "theirs", run_id=kind)
    with WorkerProcess(db, modules=MODULE, slots=8) as first:
        await first.works()
        await until_effect(conn, "theirs", "at", "begun")
        await waits(conn, "result", "select", "join")
        first.send(signal.SIGKILL)
    async with working(db, slots=8):
        await open_gate(conn, "g")
        for run_id in ("theirs", "result", "select", "join"):
            assert await finished(conn, run_id) is RunStatus.SUCCEEDED
    assert await output(conn, "select") == "theirs"


async def test_the_first_of_several_runs_is_recorded_and_the_others_go_on(db: str, conn: Connection) -> None:
    for name in ("a", "b"):
        await enqueue(conn, "t.gated", name, run_id=name)
    await enqueue(conn, "w.select", ["a", "b"], run_id="select")
    async with working(db, slots=3):
        await until_effect(conn, "a", "at", "begun")
        await until_effect(conn, "b", "at", "begun")
        await waits(conn, "select")
        await open_gate(conn, "b")
        assert await finished(conn, "select") is RunStatus.SUCCEEDED
        assert await runs.get_status(conn, "a") is RunStatus.RUNNING
        await open_gate(conn, "a")
        assert await finished(conn, "a") is RunStatus.SUCCEEDED
    assert await output(conn, "select") == "b"


async def test_killed_between_its_two_halves_a_run_in_a_run_starts_nothing_twice(db: str, conn: Connection) -> None:
    await enqueue(conn, "w.run", "g", run_id="p")
    with WorkerProcess(db, modules=MODULE, slots=8) as first:
        await first.works()
        await until_effect(conn, "p-0", "at", "begun")
        await waits(conn, "p")
        first.send(signal.SIGKILL)
    async with working(db):
        await open_gate(conn, "g")
        assert await finished(conn, "p") is RunStatus.SUCCEEDED
    assert await output(conn, "p") == ["before", "at", "after"]
    rows = await conn.fetch("SELECT name FROM perdure.workflow_steps WHERE workflow_id = 'p' ORDER BY step_index")
    assert [row["name"] for row in rows] == ["perdure.start", "perdure.result"]
    assert (await effects(conn, "p-0")).count(("before", "done")) == 1
