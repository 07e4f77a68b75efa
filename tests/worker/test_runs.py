"""One worker, one run: from the row to its end, whatever the body does."""

import asyncio
import json
import math
import time

import pytest
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs, sweeps
from perdure.telemetry import names
from perdure.worker import floor
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import effects, enqueue, finished, open_gate, until_effect, working


async def error_of(conn: Connection, run_id: str) -> dict[str, str]:
    found = await runs.result(conn, run_id)
    assert found is not None
    assert found.error is not None
    error: dict[str, str] = json.loads(found.error)
    return error


async def output_of(conn: Connection, run_id: str) -> object:
    found = await runs.result(conn, run_id)
    assert found is not None
    assert found.output is not None
    return json.loads(found.output)


async def test_a_run_goes_through_its_steps(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.notes", ["a", "b", "c"], run_id="r1")
    async with working(db) as worker:
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await output_of(conn, "r1") == ["a", "b", "c"]
    assert await effects(conn, "r1") == [("a", "done"), ("b", "done"), ("c", "done")]
    assert worker.metrics.value(names.STEPS, "t.notes", "note", "succeeded") == 3
    assert worker.metrics.value(names.STEP_SECONDS, "t.notes", "note") == 3
    assert worker.metrics.value(names.RUNS_FINISHED, "ns", "t.notes", "succeeded") == 1
    assert worker.metrics.value(names.CLAIMED_RUNS, "default") == 1


async def test_a_sync_step_does_not_hold_up_the_loop(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.sync", "g", run_id="slow")
    await enqueue(conn, "t.notes", ["a"], run_id="quick")
    async with working(db):
        assert await finished(conn, "quick") is RunStatus.SUCCEEDED
        assert await runs.get_status(conn, "slow") is RunStatus.RUNNING
        await open_gate(conn, "g")
        assert await finished(conn, "slow") is RunStatus.SUCCEEDED


async def test_a_step_that_raises_fails_its_run_only(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.fails", "no stock", run_id="bad")
    await enqueue(conn, "t.notes", ["a"], run_id="good")
    async with working(db):
        assert await finished(conn, "bad") is RunStatus.FAILED
        assert await finished(conn, "good") is RunStatus.SUCCEEDED
    error = await error_of(conn, "bad")
    assert (error["type"], error["message"], error["step"]) == ("ValueError", "no stock", "failing")


async def test_a_result_that_cannot_be_recorded_fails_its_run(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.opaque", run_id="bad")
    async with working(db):
        assert await finished(conn, "bad") is RunStatus.FAILED
    assert (await error_of(conn, "bad"))["code"] == "PRD-401"


async def test_a_workflow_this_worker_does_not_know_is_left_alone(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.somewhere_else", run_id="other")
    await enqueue(conn, "t.notes", ["a"], run_id="ours")
    async with working(db):
        assert await finished(conn, "ours") is RunStatus.SUCCEEDED
    assert await runs.get_status(conn, "other") is RunStatus.ENQUEUED


async def test_attempts_are_counted_until_one_succeeds(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.flaky", run_id="r1")
    async with working(db) as worker:
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await effects(conn, "r1") == [("flaky", "tried")] * 3
    assert worker.metrics.value(names.STEPS, "t.flaky", "flaky", "retrying") == 2


async def test_a_long_backoff_gives_the_slot_back_and_comes_again(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.slow_retry", run_id="r1")
    async with working(db, slots=1) as worker:
        await until_effect(conn, "r1", "slow", "tried")

        async def waiting() -> bool:
            return await runs.get_status(conn, "r1") is RunStatus.WAITING

        await eventually(waiting, "the run waits")
        await enqueue(conn, "t.notes", ["a"], run_id="r2")
        assert await finished(conn, "r2") is RunStatus.SUCCEEDED
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await effects(conn, "r1") == [("slow", "tried")] * 2
    assert worker.metrics.value(names.RUNS_GIVEN_BACK, "parked") == 1
    row = await conn.fetchrow("SELECT recoveries, run_attempts FROM perdure.workflows WHERE id = 'r1'")
    assert row is not None
    assert tuple(row) == (0, 0)


async def test_never_more_runs_than_slots(db: str, conn: Connection) -> None:
    for number in range(5):
        await enqueue(conn, "t.gated", f"g{number}", run_id=f"r{number}")
    async with working(db, slots=2) as worker:
        for number in range(5):
            await until_effect(conn, f"r{number}", "at", "begun")
            running = await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE status = 30")
            assert running <= 2
            assert worker.busy <= 2
            await open_gate(conn, f"g{number}")
        for number in range(5):
            assert await finished(conn, f"r{number}") is RunStatus.SUCCEEDED


async def test_steps_at_the_same_time_are_all_recorded(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.many_at_once", 500, run_id="r1")
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflow_steps WHERE status = 30") == 500


async def begun(conn: Connection) -> list[str]:
    """Runs in the order in which a worker has begun them."""
    rows = await conn.fetch("SELECT run FROM public.effects ORDER BY number")
    return [row["run"] for row in rows]


async def test_queues_take_turns_however_long_one_of_them_is(db: str, conn: Connection) -> None:
    for number in range(6):
        await enqueue(conn, "t.notes", ["a"], run_id=f"long-{number}", queue="long", priority=1)
    for number in range(2):
        await enqueue(conn, "t.notes", ["a"], run_id=f"short-{number}", queue="short")
    async with working(db, slots=1, queues=("long", "short")):
        for number in range(6):
            assert await finished(conn, f"long-{number}") is RunStatus.SUCCEEDED
    assert await begun(conn) == ["long-0", "short-0", "long-1", "short-1", "long-2", "long-3", "long-4", "long-5"]


async def test_partitions_take_turns_slot_by_slot(db: str, conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when runs come while the worker is at it; here it looks before each claim, not when it hears of them."""
    monkeypatch.setattr(floor.Floor, "begin", floor.Floor.news)
    monkeypatch.setattr(floor, "LOOK_SHARE", math.inf)
    for number in range(5):
        await enqueue(conn, "t.notes", ["a"], run_id=f"big-{number}", partition_key="big")
    await enqueue(conn, "t.gated", "g", run_id="first", partition_key="a", priority=1)
    async with working(db, slots=1):
        await until_effect(conn, "first", "at", "begun")
        for name in ("x", "y"):
            await enqueue(conn, "t.notes", ["a"], run_id=name, partition_key=name)
        await open_gate(conn, "g")
        for number in range(5):
            assert await finished(conn, f"big-{number}") is RunStatus.SUCCEEDED
    order = [run for run in await begun(conn) if run != "first"]
    assert order == ["big-0", "x", "y", "big-1", "big-2", "big-3", "big-4"]


async def test_a_backlog_is_worked_off_although_nobody_says_anything(db: str, conn: Connection) -> None:
    """More runs than one claim takes, and a poll that is far away: each claim is followed by the next."""
    for number in range(30):
        await enqueue(conn, "t.notes", ["a"], run_id=f"r{number}")
    async with working(db, slots=4, poll_seconds=30.0, lease_seconds=60.0):
        for number in range(30):
            assert await finished(conn, f"r{number}", 20.0) is RunStatus.SUCCEEDED


async def test_a_notification_is_faster_than_the_poll(db: str, conn: Connection) -> None:
    async with working(db, poll_seconds=60.0, lease_seconds=120.0) as worker:
        await asyncio.sleep(0)
        await enqueue(conn, "t.notes", ["first"], run_id="r0")
        await conn.execute("SELECT pg_notify('perdure_ready', 'ns/other')")
        started = time.monotonic()
        while await runs.get_status(conn, "r0") is not RunStatus.SUCCEEDED:
            # The listener may still be connecting; what matters is that the poll is not waited for.
            await conn.execute("SELECT pg_notify('perdure_ready', 'ns/default')")
            assert time.monotonic() - started < 30
        assert worker.metrics.value(names.CLAIMED_RUNS, "default") == 1


async def test_a_cancel_stops_a_long_step_within_a_beat(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "never", run_id="r1")
    async with working(db):
        await until_effect(conn, "r1", "at", "begun")
        await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "not wanted")
        assert await finished(conn, "r1", 5.0) is RunStatus.CANCELLED
    assert ("at", "ended") not in await effects(conn, "r1")
    assert await conn.fetchval("SELECT cancel_reason FROM perdure.workflows WHERE id = 'r1'") == "not wanted"


async def test_a_graceful_cancel_lets_the_step_end(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "g", run_id="r1")
    async with working(db):
        await until_effect(conn, "r1", "at", "begun")
        await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "not wanted")
        await open_gate(conn, "g")
        assert await finished(conn, "r1") is RunStatus.CANCELLED
    assert await effects(conn, "r1") == [("before", "done"), ("at", "begun"), ("at", "ended")]


async def test_a_suspended_run_is_released_and_resumes(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "g", run_id="r1")
    async with working(db):
        await until_effect(conn, "r1", "at", "begun")
        await conn.execute("UPDATE perdure.workflows SET suspended = true, edits = edits + 1 WHERE id = 'r1'")
        await open_gate(conn, "g")

        async def enqueued() -> bool:
            return await runs.get_status(conn, "r1") is RunStatus.ENQUEUED

        await eventually(enqueued, "the run is released")
        assert ("at", "ended") in await effects(conn, "r1")
        await conn.execute("UPDATE perdure.workflows SET suspended = false, edits = edits + 1 WHERE id = 'r1'")
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await effects(conn, "r1") == [("before", "done"), ("at", "begun"), ("at", "ended"), ("after", "done")]


async def test_a_deadline_ends_a_run_in_a_step(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "never", run_id="r1")
    await conn.execute("UPDATE perdure.workflows SET timeout = interval '1 second' WHERE id = 'r1'")
    async with working(db):
        await until_effect(conn, "r1", "at", "begun")
        assert await finished(conn, "r1", 10.0) is RunStatus.CANCELLED


async def test_a_deadline_that_only_a_beat_brings_is_the_reason_of_the_end(
    db: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was set while the run was in progress, as with another timeout in its resource, and no sweep has seen it."""

    async def none(connection: Connection, limit: int) -> list[object]:
        return []

    monkeypatch.setattr(sweeps, "cancel_overdue", none)
    await enqueue(conn, "t.gated", "never", run_id="r1")
    async with working(db):
        await until_effect(conn, "r1", "at", "begun")
        await conn.execute("UPDATE perdure.workflows SET deadline_at = now() WHERE id = 'r1'")
        assert await finished(conn, "r1", 10.0) is RunStatus.CANCELLED
    row = await conn.fetchrow("SELECT cancel_mode, cancel_reason FROM perdure.workflows WHERE id = 'r1'")
    assert row is not None
    assert (row["cancel_mode"], row["cancel_reason"]) == (None, "its deadline has passed")


async def test_a_long_step_keeps_its_lease(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "g", run_id="r1")
    async with working(db, lease_seconds=1.0) as worker, working(db, lease_seconds=1.0):
        await until_effect(conn, "r1", "at", "begun")
        first = await conn.fetchval("SELECT min(beat_at) FROM perdure.workers")

        async def beaten_for_two_leases() -> bool:
            age = await conn.fetchval("SELECT min(beat_at) - $1 > interval '2.5 seconds' FROM perdure.workers", first)
            return bool(age)

        await eventually(beaten_for_two_leases, "beats go on")
        await open_gate(conn, "g")
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
        assert worker.metrics.value(names.WORKER_LOST) == 0
    assert len(await effects(conn, "r1")) == 4


async def test_a_failing_run_with_attempts_left_is_tried_again(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.fails", "no stock", run_id="r1", max_run_attempts=2)
    async with working(db) as worker:
        assert await finished(conn, "r1") is RunStatus.FAILED
    assert worker.metrics.value(names.RUNS_GIVEN_BACK, "delayed") == 1
    assert await conn.fetchval("SELECT run_attempts FROM perdure.workflows WHERE id = 'r1'") == 2


async def test_a_run_that_says_nothing_is_tried_as_the_worker_is_set_up_and_no_finished_step_again(
    db: str, conn: Connection
) -> None:
    await enqueue(conn, "t.fails_after_a_step", "no stock", run_id="r1")
    async with working(db, run_attempts=3, retry_backoff_seconds=0.0) as worker:
        assert await finished(conn, "r1") is RunStatus.FAILED
    assert worker.metrics.value(names.RUNS_GIVEN_BACK, "delayed") == 2
    assert await conn.fetchval("SELECT run_attempts FROM perdure.workflows WHERE id = 'r1'") == 3
    assert await effects(conn, "r1") == [("once", "done")]
    errors = await conn.fetchval("SELECT attempt_errors FROM perdure.workflow_steps WHERE step_index = 1")
    assert errors is not None and "no stock" in errors
