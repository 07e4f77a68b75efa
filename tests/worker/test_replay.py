"""The code has changed under a run: replay meets another step or another input than what is recorded."""

import json

import pytest
from perdure.model.states import RunStatus
from perdure.store import claims, runs
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import effects, enqueue, finished, open_gate, until_effect, working

DUE_NOW = "UPDATE perdure.workflows SET wake_at = now() WHERE id = $1 AND status = 20 AND wake_at > now()"


async def interrupted(db: str, conn: Connection, run_id: str, **changes: object) -> None:
    """A run with one finished and one running step, released by its worker."""
    await enqueue(conn, "t.gated", "g", run_id=run_id, **changes)
    async with working(db, drain_seconds=0.5) as worker:
        await until_effect(conn, run_id, "at", "begun")
        worker.force()
        await worker.wait()


async def parked_after(conn: Connection, run_id: str) -> dict[str, str]:
    """Hurry the run through its retries until it is parked; its error."""

    async def over() -> bool:
        await conn.execute(DUE_NOW, run_id)
        status = await runs.get_status(conn, run_id)
        return status is not None and status.finished

    await eventually(over, "the run is parked")
    found = await runs.result(conn, run_id)
    assert found is not None
    assert found.status is RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED
    error: dict[str, str] = json.loads(found.error or "{}")
    return error


@pytest.mark.parametrize("index", [0, 1])
async def test_another_step_at_a_recorded_place_is_parked_with_both_names(
    db: str, conn: Connection, index: int
) -> None:
    """Index 0 is finished, 1 was running: both are compared."""
    await interrupted(db, conn, "r1", max_recoveries=2)
    await conn.execute("UPDATE perdure.workflow_steps SET name = 'charge_card' WHERE step_index = $1", index)
    async with working(db):
        error = await parked_after(conn, "r1")
    assert error["code"] == "PRD-301"
    assert "charge_card" in error["message"]
    assert ("note" if index == 0 else "gated") in error["message"]
    assert ("after", "done") not in await effects(conn, "r1")
    assert await conn.fetchval("SELECT recoveries FROM perdure.workflows WHERE id = 'r1'") == 3


async def test_another_input_at_a_recorded_place_is_parked_with_both_inputs(db: str, conn: Connection) -> None:
    await interrupted(db, conn, "r1", max_recoveries=1)
    await conn.execute("UPDATE perdure.workflow_steps SET input = '[\"other\"]' WHERE step_index = 0")
    async with working(db):
        error = await parked_after(conn, "r1")
    assert error["code"] == "PRD-302"
    assert "other" in error["message"]
    assert "before" in error["message"]


async def test_a_run_whose_code_is_mended_in_time_goes_on(db: str, conn: Connection) -> None:
    await interrupted(db, conn, "r1", max_recoveries=100)
    await conn.execute("UPDATE perdure.workflow_steps SET name = 'charge_card' WHERE step_index = 0")
    async with working(db):

        async def held() -> bool:
            return await runs.get_status(conn, "r1") is RunStatus.DELAYED

        await eventually(held, "the mismatch is seen")
        waiting = await conn.fetchval("SELECT waiting_for->>'message' FROM perdure.workflows WHERE id = 'r1'")
        assert "charge_card" in waiting
        await conn.execute("UPDATE perdure.workflow_steps SET name = 'note' WHERE step_index = 0")
        await open_gate(conn, "g")
        await conn.execute(DUE_NOW, "r1")
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await effects(conn, "r1") == [
        ("before", "done"),
        ("at", "begun"),
        ("at", "begun"),
        ("at", "ended"),
        ("after", "done"),
    ]


async def test_a_history_longer_than_a_page_is_read_on(
    db: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enqueue(conn, "t.no_op", 120, run_id="r1")
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    monkeypatch.setattr(claims, "STEPS_WITH_CLAIM", 50)
    monkeypatch.setattr("perdure.worker.runner.HISTORY_PAGE", 30)
    await conn.execute(
        "UPDATE perdure.workflows SET status = 10, finished_at = NULL, fence = fence + 1 WHERE id = 'r1'"
    )
    before = await conn.fetchval("SELECT max(fence) FROM perdure.workflow_steps WHERE workflow_id = 'r1'")
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await conn.fetchval("SELECT max(fence) FROM perdure.workflow_steps WHERE workflow_id = 'r1'") == before
