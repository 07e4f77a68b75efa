"""Children on real workers: started once, waited for without a slot, cancelled with their parent."""

import json
import signal
from typing import Any

import pytest
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import (
    WorkerProcess,
    effects,
    enqueue,
    finished,
    open_gate,
    until_effect,
    working,
)


async def output(conn: Connection, run_id: str) -> Any:
    found = await runs.result(conn, run_id)
    assert found is not None
    assert found.output is not None
    return json.loads(found.output)


async def waits(conn: Connection, run_id: str) -> None:
    async def waiting() -> bool:
        return await runs.get_status(conn, run_id) is RunStatus.WAITING

    await eventually(waiting, f"{run_id} waits")


async def test_a_parent_waits_for_its_children_without_a_slot(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.parent", 5, run_id="p")
    async with working(db, slots=1):
        assert await finished(conn, "p") is RunStatus.SUCCEEDED
    assert await output(conn, "p") == [f"c{n}" for n in range(5)]
    rows = await conn.fetch("SELECT * FROM perdure.workflows WHERE parent_id = 'p' ORDER BY parent_step")
    assert [row["id"] for row in rows] == [f"p-{n}" for n in range(5)]
    assert {(row["namespace"], row["pool"], row["queue"], row["name"]) for row in rows} == {
        ("ns", "default", "default", None)
    }


async def test_killed_while_it_waits_a_parent_starts_no_child_twice(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.parent", 3, "g", run_id="p")
    with WorkerProcess(db, slots=8) as first:
        await first.works()
        for n in range(3):
            await until_effect(conn, f"p-{n}", f"c{n}", "begun")
        await waits(conn, "p")
        first.send(signal.SIGKILL)
    async with working(db, slots=8):
        await open_gate(conn, "g")
        assert await finished(conn, "p") is RunStatus.SUCCEEDED
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 4
    for n in range(3):
        assert (await effects(conn, f"p-{n}")).count((f"c{n}", "done")) == 1


async def test_a_failed_child_raises_in_the_parent_as_its_own_class(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.parent_of", "t.fails", "no stock", run_id="p")
    async with working(db):
        assert await finished(conn, "p") is RunStatus.SUCCEEDED
    assert await output(conn, "p") == "raised ValueError: no stock"


async def test_a_cancelled_child_does_not_cancel_its_parent(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.parent_of", "t.gated", "g", run_id="p")
    async with working(db):
        await until_effect(conn, "p-0", "at", "begun")
        await runs.cancel(conn, "p-0", CancelMode.IMMEDIATE, "enough")
        assert await finished(conn, "p") is RunStatus.SUCCEEDED
    assert await output(conn, "p") == "raised PRD-511"


@pytest.mark.parametrize("mode", [CancelMode.IMMEDIATE, CancelMode.GRACEFUL])
async def test_a_cancel_of_the_parent_reaches_its_children(db: str, conn: Connection, mode: CancelMode) -> None:
    await enqueue(conn, "t.parent", 2, "g", run_id="p")
    async with working(db):
        await until_effect(conn, "p-0", "c0", "begun")
        await until_effect(conn, "p-1", "c1", "begun")
        await waits(conn, "p")
        assert await runs.cancel(conn, "p", mode, "enough") is RunStatus.CANCELLED

        async def asked() -> bool:
            flags = await conn.fetch("SELECT cancel_mode FROM perdure.workflows")
            return {row["cancel_mode"] for row in flags} == {mode}

        await eventually(asked, "the children are asked to end")
        await open_gate(conn, "g")
        for n in range(2):
            assert await finished(conn, f"p-{n}") is RunStatus.CANCELLED
            assert (f"c{n}", "done") not in await effects(conn, f"p-{n}")
    reason = await conn.fetchval("SELECT cancel_reason FROM perdure.workflows WHERE id = 'p-0'")
    assert reason == "run p, which started it, was cancelled"


async def test_without_the_poke_the_sweep_wakes_the_parent(db: str, conn: Connection) -> None:
    """The child's worker dies between the child's end and the wake: here, the end is made by hand."""
    await enqueue(conn, "t.parent", 1, "g", run_id="p")
    async with working(db):
        await until_effect(conn, "p-0", "c0", "begun")
        await waits(conn, "p")
    await conn.execute(
        "UPDATE perdure.workflows SET status = 50, worker_id = NULL, fence = fence + 1, finished_at = now(),"
        " waiting_since = NULL WHERE id = 'p-0'"
    )
    await conn.execute("UPDATE perdure.workflow_payloads SET output = '\"by hand\"' WHERE workflow_id = 'p-0'")
    async with working(db):
        assert await finished(conn, "p") is RunStatus.SUCCEEDED
    assert await output(conn, "p") == ["by hand"]


async def test_a_hundred_children_of_ten_parents_on_two_slots(db: str, conn: Connection) -> None:
    for n in range(10):
        await enqueue(conn, "t.parent", 10, run_id=f"p{n}")
    async with working(db, slots=2):
        for n in range(10):
            assert await finished(conn, f"p{n}", 60.0) is RunStatus.SUCCEEDED
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE status = 50") == 110
    assert await conn.fetchval("SELECT count(*) FROM public.effects WHERE what = 'done'") == 100


async def test_a_parent_of_hundreds_comes_back_a_few_times_and_not_hundreds(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.fan", 300, run_id="p")
    async with working(db, slots=20):
        assert await finished(conn, "p", 60.0) is RunStatus.SUCCEEDED
    assert await output(conn, "p") == 300
    assert await conn.fetchval("SELECT fence FROM perdure.workflows WHERE id = 'p'") < 100
