from datetime import timedelta

import pytest
from perdure.model.outcome import ErrorRecord, Failed, Mismatch, Parked
from perdure.model.rows import ClaimedRun, WaitingFor
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import runs, sweeps
from perdure.store.sweeps import Overdue

from tests.store.builders import (
    Connection,
    add_run,
    add_worker,
    claim,
    claimed,
    failure,
    finish,
    let_time_pass,
    row,
    start,
    step_rows,
    write,
)
from tests.support.pgwait import holding

ERROR = Failed(ErrorRecord("ValueError", "no"))


async def test_a_parked_run_wakes_when_its_time_has_come_and_not_before(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=Parked(WaitingFor("RetryBackoff"), 60.0))
    assert await sweeps.wake_due(conn, 10) == []
    await let_time_pass(conn, "wake_at", 61)

    assert await sweeps.wake_due(conn, 10) == [("ns", "default")]

    stored = await row(conn)
    assert (stored["status"], stored["fence"], stored["wake_seq"]) == (RunStatus.ENQUEUED, 3, 1)
    assert (stored["wake_at"], stored["waiting_for"]) == (None, None)
    assert await sweeps.wake_due(conn, 10) == []


async def test_a_run_that_waits_for_no_time_is_left(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=Parked(WaitingFor("Message"), None))

    assert await sweeps.wake_due(conn, 10) == []


async def test_a_delayed_run_keeps_its_steps_after_a_mismatch(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, start(), failure(1, 2), ending=Mismatch(ERROR.error))
    await let_time_pass(conn, "wake_at", 100)

    assert await sweeps.wake_due(conn, 10) == [("ns", "default")]

    assert [each["status"] for each in await step_rows(conn)] == [StepStatus.RUNNING, StepStatus.FAILED]


async def test_wakes_are_bounded_and_skip_what_others_hold(conn: Connection, pg_url: str) -> None:
    for n in range(4):
        run = await claimed(conn, f"r{n}")
        await write(conn, run, ending=Parked(WaitingFor("x"), -float(10 - n)))
    async with holding(pg_url, ("SELECT id FROM perdure.workflows WHERE id = 'r0' FOR NO KEY UPDATE",)):
        assert len(await sweeps.wake_due(conn, 2)) == 2
        assert len(await sweeps.wake_due(conn, 2)) == 1
    assert len(await sweeps.wake_due(conn, 2)) == 1


async def parked(conn: Connection, count: int, pool: str = "default") -> None:
    for n in range(count):
        run = await claimed_in(conn, f"{pool}-{n}", pool)
        await write(conn, run, ending=Parked(WaitingFor("Sleep"), -float(10 - n)))


async def claimed_in(conn: Connection, run_id: str, pool: str) -> ClaimedRun:
    await add_run(conn, run_id, pool=pool)
    [run] = await claim(conn, pool=pool)
    return run


async def test_a_woken_run_takes_its_place_at_the_end_of_the_queue(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=Parked(WaitingFor("Sleep"), -1.0))
    await add_run(conn, "r2")
    await let_time_pass(conn, "run_at", 10, "r1")

    await sweeps.wake_due(conn, 10)

    assert [each.id for each in await claim(conn)] == ["r2", "r1"]


async def test_no_more_are_woken_than_the_pool_has_room_for_but_a_few_in_any_case(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "READY_ROOM", 5)
    monkeypatch.setattr(sweeps, "WOKEN_ANYWAY", 1)
    await add_worker(conn)
    await parked(conn, 8)
    await add_run(conn, "fresh")

    assert len(await sweeps.wake_due(conn, 10)) == 4
    assert len(await sweeps.wake_due(conn, 10)) == 1
    assert len(await sweeps.wake_due(conn, 10)) == 1
    assert len(await claim(conn)) == 7
    assert len(await sweeps.wake_due(conn, 10)) == 2
    assert await sweeps.wake_due(conn, 10) == []


async def test_a_pool_without_room_does_not_hold_up_another(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "READY_ROOM", 3)
    monkeypatch.setattr(sweeps, "WOKEN_ANYWAY", 0)
    await add_worker(conn)
    await parked(conn, 5, "a")
    await parked(conn, 2, "b")
    for n in range(3):
        await add_run(conn, f"ready-{n}", pool="a")

    assert await sweeps.wake_due(conn, 10) == [("ns", "b")] * 2


async def test_a_suspended_sleeper_wakes_and_is_not_counted_as_ready(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "READY_ROOM", 1)
    monkeypatch.setattr(sweeps, "WOKEN_ANYWAY", 0)
    await add_worker(conn)
    await parked(conn, 2)
    await conn.execute("UPDATE perdure.workflows SET suspended = true WHERE id = 'default-0'")

    assert len(await sweeps.wake_due(conn, 10)) == 1
    assert len(await sweeps.wake_due(conn, 10)) == 1
    assert [each.id for each in await claim(conn)] == ["default-1"]


async def retried(conn: Connection, run: ClaimedRun) -> ClaimedRun:
    await write(conn, run, ending=ERROR)
    await let_time_pass(conn, "wake_at", 4000)
    assert await sweeps.wake_due(conn, 10) == [("ns", "default")]
    [again] = await claim(conn)
    return again


async def test_a_retried_run_runs_the_step_again_that_ended_it(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=2)
    await write(conn, run, start())
    await write(conn, run, finish(0, 2), start(1, 3))
    await write(conn, run, failure(1, 4))

    again = await retried(conn, run)

    assert again.run_attempts == 1
    done, reopened = again.steps
    assert (done.status, done.output) == (StepStatus.SUCCEEDED, '"ok"')
    assert (reopened.status, reopened.attempts, reopened.error) == (StepStatus.RETRYING, 0, None)
    assert reopened.attempt_errors == '[{"type": "ValueError", "message": "no"}]'
    assert reopened.wake_in is None
    # And it can be written again.
    await write(conn, again, start(1, 1))
    await write(conn, again, finish(1, 2))
    assert [each["status"] for each in await step_rows(conn)] == [StepStatus.SUCCEEDED] * 2


async def test_a_failure_that_the_body_caught_stays_caught(conn: Connection) -> None:
    """Step 0 failed and was caught, step 1 was the fallback, step 2 failed: only 2 is opened again."""
    run = await claimed(conn, max_run_attempts=2)
    await write(conn, run, start(0, 1))
    await write(conn, run, failure(0, 2), start(1, 3))
    await write(conn, run, finish(1, 4), start(2, 5))
    await write(conn, run, failure(2, 6))

    again = await retried(conn, run)

    statuses = [step.status for step in again.steps]
    assert statuses == [StepStatus.FAILED, StepStatus.SUCCEEDED, StepStatus.RETRYING]


async def test_steps_started_together_are_opened_again_together(conn: Connection) -> None:
    """Two steps of a gather fail; a third that was started before they failed does not make them caught."""
    run = await claimed(conn, max_run_attempts=2)
    await write(conn, run, start(0, 1), start(1, 2), start(2, 3))
    await write(conn, run, failure(0, 4), failure(1, 5), finish(2, 6))

    again = await retried(conn, run)

    assert [step.status for step in again.steps] == [StepStatus.RETRYING, StepStatus.RETRYING, StepStatus.SUCCEEDED]


async def test_a_failure_caught_in_an_earlier_attempt_stays_caught(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=3)
    await write(conn, run, start(0, 1))
    again = await retried(conn, run)
    await write(conn, again, start(0, 1))
    await write(conn, again, failure(0, 2), start(1, 3))
    await write(conn, again, failure(1, 4))

    third = await retried(conn, again)

    assert [step.status for step in third.steps] == [StepStatus.FAILED, StepStatus.RETRYING]


async def test_a_run_cancelled_while_delayed_is_not_retried(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=2)
    await write(conn, run, start(), failure(1, 2), ending=ERROR)
    await let_time_pass(conn, "wake_at", 4000)
    assert await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "why") is RunStatus.CANCELLED

    assert await sweeps.wake_due(conn, 10) == []
    assert [each["status"] for each in await step_rows(conn)] == [StepStatus.RUNNING, StepStatus.FAILED]


async def overdue(conn: Connection, status: RunStatus) -> None:
    run = await claimed(conn, timeout=timedelta(seconds=60), max_run_attempts=2)
    match status:
        case RunStatus.WAITING:
            await write(conn, run, ending=Parked(WaitingFor("x"), None))
        case RunStatus.DELAYED:
            await write(conn, run, ending=ERROR)
        case RunStatus.ENQUEUED:
            await write(conn, run, ending=Parked(WaitingFor("x"), -1.0))
            await sweeps.wake_due(conn, 10)
        case _:
            assert status is RunStatus.RUNNING
    assert (await row(conn))["status"] == status
    await let_time_pass(conn, "deadline_at", 61)


@pytest.mark.parametrize("status", [RunStatus.ENQUEUED, RunStatus.DELAYED, RunStatus.WAITING])
async def test_an_overdue_run_that_nobody_owns_ends_at_once(conn: Connection, status: RunStatus) -> None:
    await overdue(conn, status)
    fence = (await row(conn))["fence"]

    assert await sweeps.cancel_overdue(conn, 10) == [Overdue("r1", RunStatus.CANCELLED)]

    stored = await row(conn)
    assert (stored["cancel_reason"], stored["fence"]) == ("its deadline has passed", fence + 1)
    assert stored["finished_at"] is not None
    assert await sweeps.cancel_overdue(conn, 10) == []


async def test_an_overdue_run_that_is_owned_is_cancelled_once(conn: Connection) -> None:
    await overdue(conn, RunStatus.RUNNING)
    fence = (await row(conn))["fence"]

    assert await sweeps.cancel_overdue(conn, 10) == [Overdue("r1", RunStatus.RUNNING)]
    assert await sweeps.cancel_overdue(conn, 10) == []

    stored = await row(conn)
    assert (stored["cancel_mode"], stored["cancel_reason"]) == (CancelMode.IMMEDIATE, "its deadline has passed")
    assert (stored["fence"], stored["edits"]) == (fence, 1)


async def test_a_deadline_makes_a_graceful_cancel_immediate(conn: Connection) -> None:
    await overdue(conn, RunStatus.RUNNING)
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "asked")

    assert len(await sweeps.cancel_overdue(conn, 10)) == 1

    stored = await row(conn)
    assert (stored["cancel_mode"], stored["cancel_reason"]) == (CancelMode.IMMEDIATE, "asked")


async def test_runs_without_a_deadline_are_never_overdue(conn: Connection) -> None:
    await claimed(conn)
    await add_run(conn, "r2")

    assert await sweeps.cancel_overdue(conn, 10) == []
