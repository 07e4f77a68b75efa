"""Undo in the database: what is promised, when it is to be done, in which order, and who has no say meanwhile."""

import json

import pytest
from perdure.model.management import Cut, Resume, Rewind
from perdure.model.outcome import Cancelled, ErrorRecord, Failed, Parked, Released, Succeeded
from perdure.model.rows import ClaimedRun, WaitingFor
from perdure.model.states import CancelMode, RunStatus, Undo
from perdure.store import runs, sweeps, undo, wakes, workers
from perdure.store.management import manage
from perdure.store.transaction import Claim

from tests.store.builders import Connection, add_run, claim, claimed, finish, new_run, write

ERROR = ErrorRecord("ValueError", "no courier")
PARKED = Parked(WaitingFor("x"), 60.0)


async def promised(conn: Connection, *indexes: int, **changes: object) -> ClaimedRun:
    """A run with these steps in the order in which they succeeded, each with another that undoes it."""
    run = await claimed(conn, **changes)
    for number, index in enumerate(indexes, 1):
        await undo.promise(conn, Claim(run.id, "w1", run.fence), index, f"back{index}", f"[null,{index}]")
        await write(conn, run, finish(index, number))
    return run


async def begin(conn: Connection, run: ClaimedRun) -> undo.Plan:
    plan = await undo.begin(conn, Claim(run.id, "w1", run.fence), 99)
    assert plan is not None
    return plan


async def row(conn: Connection, run_id: str = "r1") -> tuple[object, ...]:
    columns = "status, undo, undo_at, cancel_mode, suspended"
    return tuple(await conn.fetchrow(f"SELECT {columns} FROM perdure.workflows WHERE id = $1", run_id))


async def failed(conn: Connection, *indexes: int) -> ClaimedRun:
    """It has failed for good, and is claimed anew."""
    run = await promised(conn, *indexes, max_run_attempts=1)
    await write(conn, run, ending=Failed(ERROR))
    [again] = await claim(conn, "w1")
    return again


async def test_the_first_promise_marks_the_run_and_a_later_one_says_more(conn: Connection) -> None:
    run = await claimed(conn)
    assert (await row(conn))[1] is None
    me = Claim(run.id, "w1", run.fence)
    await undo.promise(conn, me, 0, "back", "[null]")
    await undo.promise(conn, me, 0, "back2", "[null,1]")
    assert (await row(conn))[1] == Undo.PROMISED
    assert [tuple(each) for each in await conn.fetch("SELECT * FROM perdure.undos")] == [("r1", 0, "back2", "[null,1]")]


async def test_under_a_cancel_nothing_is_promised(conn: Connection) -> None:
    run = await claimed(conn)
    await runs.cancel(conn, run.id, CancelMode.GRACEFUL, "why")
    flags = await undo.promise(conn, Claim(run.id, "w1", run.fence), 0, "back", "[null]")
    assert flags is not None
    assert flags.cancel_mode is CancelMode.GRACEFUL
    assert await conn.fetchval("SELECT count(*) FROM perdure.undos") == 0


async def test_a_failure_for_good_makes_the_run_claimable_for_that_alone(conn: Connection) -> None:
    run = await failed(conn, 0)
    assert (run.undo, run.undoes, run.run_attempts) == (Undo.FAILED, True, 1)


async def test_a_failure_with_attempts_left_is_none_for_good(conn: Connection) -> None:
    run = await promised(conn, 0, max_run_attempts=2)
    await write(conn, run, ending=Failed(ERROR))
    assert (await row(conn))[:2] == (RunStatus.DELAYED, Undo.PROMISED)


async def test_a_failure_without_promises_and_a_success_with_some_end_the_run(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=1)
    await write(conn, run, ending=Failed(ERROR))
    assert (await row(conn))[:2] == (RunStatus.FAILED, None)
    await add_run(conn, "r2")
    [other] = await claim(conn, "w1")
    await undo.promise(conn, Claim("r2", "w1", other.fence), 0, "back", "[null]")
    await write(conn, other, finish(0, 1), ending=Succeeded("1"))
    assert (await row(conn, "r2"))[:2] == (RunStatus.SUCCEEDED, Undo.PROMISED)


async def test_the_last_that_succeeded_is_undone_first_whatever_its_index(conn: Connection) -> None:
    run = await failed(conn, 2, 0, 1)
    plan = await begin(conn, run)
    assert [(part.index, part.name, part.input) for part in plan.parts] == [
        (1, "back1", "[null,1]"),
        (0, "back0", "[null,0]"),
        (2, "back2", "[null,2]"),
    ]
    assert (plan.index, plan.error) == (3, ERROR)


async def test_what_did_not_succeed_is_not_undone(conn: Connection) -> None:
    run = await promised(conn, 0, max_run_attempts=1)
    await undo.promise(conn, Claim(run.id, "w1", run.fence), 1, "back", "[null]")
    await write(conn, run, ending=Failed(ERROR))
    [again] = await claim(conn, "w1")
    assert [part.index for part in (await begin(conn, again)).parts] == [0]


async def test_begun_again_it_is_the_same_for_every_claim(conn: Connection) -> None:
    run = await failed(conn, 0, 1)
    first = await begin(conn, run)
    await write(conn, run, finish(3, 100), ending=Released("drain"))
    [again] = await claim(conn, "w1")
    second = await begin(conn, again)
    assert (second.index, second.parts, second.error) == (first.index, first.parts, first.error)
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflow_steps WHERE name = 'perdure.undo'") == 1


async def test_nothing_to_undo_leaves_no_step_and_the_run_fails(conn: Connection) -> None:
    run = await promised(conn, max_run_attempts=1)
    await undo.promise(conn, Claim(run.id, "w1", run.fence), 0, "back", "[null]")
    await write(conn, run, ending=Failed(ERROR))
    [again] = await claim(conn, "w1")
    assert (await begin(conn, again)).index is None
    await write(conn, again, ending=Failed(ERROR))
    assert (await row(conn))[0] == RunStatus.FAILED


async def test_the_end_of_it_is_no_further_attempt(conn: Connection) -> None:
    run = await failed(conn, 0)
    await begin(conn, run)
    await conn.execute("UPDATE perdure.workflows SET max_run_attempts = 9")
    await write(conn, run, ending=Failed(ERROR))
    found = await conn.fetchrow("SELECT status, run_attempts FROM perdure.workflows")
    assert tuple(found) == (RunStatus.FAILED, 1)


async def test_what_is_suspended_is_undone_all_the_same(conn: Connection) -> None:
    run = await promised(conn, 0, max_run_attempts=1)
    await runs.upsert(conn, new_run("r1", generation=1, suspended=True, max_run_attempts=1))
    await write(conn, run, ending=Failed(ERROR))
    [again] = await claim(conn, "w1")
    await runs.upsert(conn, new_run("r1", generation=2, suspended=True, max_run_attempts=1))
    assert (await row(conn))[4] is False
    again_too = await runs.upsert(conn, new_run("r1", generation=2, suspended=True, max_run_attempts=1))
    assert (again.undoes, again_too.changed) == (True, False)


async def test_a_suspended_run_that_is_cancelled_so_goes_on_undoing_in_the_claim_that_begins(conn: Connection) -> None:
    run = await promised(conn, 0)
    await runs.upsert(conn, new_run("r1", generation=1, suspended=True))
    await write(conn, run, ending=Released("suspended"))
    await runs.cancel(conn, "r1", CancelMode.COMPENSATE, "enough")
    [again] = await claim(conn, "w1")
    plan = await begin(conn, again)
    assert (plan.index, plan.flags.suspended, plan.flags.cancel_mode) == (1, False, None)
    assert (await row(conn))[4] is False


async def test_no_deadline_ends_a_run_that_undoes(conn: Connection) -> None:
    run = await failed(conn, 0)
    await conn.execute("UPDATE perdure.workflows SET deadline_at = now() - interval '1 hour'")
    assert await sweeps.cancel_overdue(conn, 10) == []
    [beat] = await workers.beat(conn, "w1", 30.0) or ()
    assert beat.deadline_passed is False
    await write(conn, run, ending=Released("drain"))
    [again] = await claim(conn, "w1")
    assert (again.undoes, again.deadline_in) == (True, None)


@pytest.mark.parametrize("ending", [PARKED, Released("drain")])
async def test_a_cancel_that_compensates_makes_what_nobody_owns_claimable(conn: Connection, ending: Parked) -> None:
    run = await promised(conn, 0)
    await write(conn, run, ending=ending)
    assert await runs.cancel(conn, "r1", CancelMode.COMPENSATE, "enough") is RunStatus.ENQUEUED
    [again] = await claim(conn, "w1")
    plan = await begin(conn, again)
    assert (plan.index, plan.error, plan.reason, plan.flags.cancel_mode) == (1, None, "enough", None)
    assert (await row(conn))[1:4] == (Undo.CANCELLED, 1, None)
    await write(conn, again, ending=Cancelled("enough"))
    assert (await row(conn))[0] == RunStatus.CANCELLED


async def test_an_owner_gives_back_what_is_cancelled_so_and_no_success_comes_before(conn: Connection) -> None:
    run = await promised(conn, 0)
    assert await runs.cancel(conn, "r1", CancelMode.COMPENSATE, "enough") is RunStatus.RUNNING
    assert (await write(conn, run, ending=Succeeded("1"))).ended is None
    assert (await write(conn, run, ending=Cancelled("it was cancelled"))).ended is RunStatus.ENQUEUED
    assert (await row(conn))[1] == Undo.REQUESTED


async def test_a_dead_owner_leaves_it_to_another(conn: Connection) -> None:
    await promised(conn, 0)
    await runs.cancel(conn, "r1", CancelMode.COMPENSATE, "enough")
    await workers.mark_dead(conn, ["uid-w1"])
    await workers.move(conn, ["w1"], 10)
    assert (await row(conn))[:2] == (RunStatus.ENQUEUED, Undo.REQUESTED)


async def test_where_nothing_can_be_undone_it_is_an_ordinary_cancel(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, finish(0, 1), ending=PARKED)
    assert await runs.cancel(conn, "r1", CancelMode.COMPENSATE, "enough") is RunStatus.CANCELLED
    await add_run(conn, "r2")
    [other] = await claim(conn, "w1")
    await runs.cancel(conn, "r2", CancelMode.COMPENSATE, "enough")
    assert (await write(conn, other, ending=Cancelled("enough"))).ended is RunStatus.CANCELLED


async def test_it_may_get_stronger_only_where_nothing_can_be_undone(conn: Connection) -> None:
    await promised(conn, 0)
    await runs.cancel(conn, "r1", CancelMode.COMPENSATE, "enough")
    await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "now")
    assert (await row(conn))[3] == "Compensate"
    await conn.execute("UPDATE perdure.workflows SET undo = NULL")
    await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "now")
    assert (await row(conn))[3] == "Immediate"


@pytest.mark.parametrize("first", [Cancelled("enough"), Released("drain")])
async def test_where_no_promised_step_has_succeeded_the_run_is_cancelled_by_its_next_claim(
    conn: Connection, first: Cancelled | Released
) -> None:
    run = await claimed(conn)
    await undo.promise(conn, Claim(run.id, "w1", run.fence), 0, "back", "[null]")
    await runs.cancel(conn, run.id, CancelMode.COMPENSATE, "enough")
    await write(conn, run, ending=first)
    [again] = await claim(conn, "w1")
    for _ in range(2):  # as when the answer is lost
        plan = await begin(conn, again)
        assert (plan.index, plan.error, plan.reason) == (None, None, "enough")
    assert (await write(conn, again, ending=Cancelled("enough"))).ended is RunStatus.CANCELLED


@pytest.mark.parametrize("begun", [False, True])
async def test_a_removal_ends_a_run_that_was_about_to_undo(conn: Connection, begun: bool) -> None:
    run = await promised(conn, 0)
    await runs.cancel(conn, run.id, CancelMode.COMPENSATE, "enough")
    if begun:
        await write(conn, run, ending=Cancelled("enough"))
        [run] = await claim(conn, "w1")
        await begin(conn, run)
    await runs.remove(conn, [run.id], "gone")
    assert (await write(conn, run, ending=Cancelled("gone"))).ended is RunStatus.CANCELLED


async def test_a_removal_ends_it_where_its_worker_has_died(conn: Connection) -> None:
    run = await promised(conn, 0)
    await runs.cancel(conn, run.id, CancelMode.COMPENSATE, "enough")
    await runs.remove(conn, [run.id], "gone")
    await workers.mark_dead(conn, ["uid-w1"])
    await workers.move(conn, ["w1"], 10)
    assert (await row(conn))[0] == RunStatus.CANCELLED


async def test_what_is_cancelled_otherwise_is_not_undone_afterwards(conn: Connection) -> None:
    await promised(conn, 0)
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "why")
    await runs.cancel(conn, "r1", CancelMode.COMPENSATE, "enough")
    assert (await row(conn))[1:4] == (Undo.PROMISED, None, "Graceful")


async def test_a_resource_asks_for_it_once(conn: Connection) -> None:
    run = await promised(conn, 0)
    await write(conn, run, ending=PARKED)
    asked = new_run("r1", generation=1, cancel_mode=CancelMode.COMPENSATE)
    assert (await runs.upsert(conn, asked)).status is RunStatus.ENQUEUED
    assert (await runs.upsert(conn, asked)).changed is False
    [again] = await claim(conn, "w1")
    await begin(conn, again)
    assert (await runs.upsert(conn, asked)).changed is False
    immediate = new_run("r1", generation=2, cancel_mode=CancelMode.IMMEDIATE)
    assert (await runs.upsert(conn, immediate)).status is RunStatus.RUNNING
    assert (await row(conn))[1:4] == (Undo.CANCELLED, 1, None)


async def test_children_are_undone_too_and_also_once_the_parent_has_begun(conn: Connection) -> None:
    run = await promised(conn, 0)
    for child in ("c1", "c2"):
        await add_run(conn, child)
    await conn.execute("UPDATE perdure.workflows SET parent_id = 'r1', parent_step = 1 WHERE id LIKE 'c_'")
    await conn.execute("UPDATE perdure.workflows SET cascades = true WHERE id = 'r1'")
    [first, second] = await claim(conn, "w1", limit=2)
    await undo.promise(conn, Claim(first.id, "w1", first.fence), 0, "back", "[null]")
    for child in (first, second):
        await write(conn, child, finish(0, 1), ending=PARKED)
    await write(conn, run, ending=PARKED)
    await runs.cancel(conn, "r1", CancelMode.COMPENSATE, "enough")
    [again] = await claim(conn, "w1")
    await begin(conn, again)
    await wakes.cascade(conn, 10)
    assert (await row(conn, first.id))[:4] == (RunStatus.ENQUEUED, Undo.REQUESTED, None, "Compensate")
    assert (await row(conn, second.id))[0] == RunStatus.CANCELLED
    assert await conn.fetchval("SELECT cascades FROM perdure.workflows WHERE id = 'r1'") is False


async def test_a_rewind_forgets_it_and_a_resume_takes_a_request_back(conn: Connection) -> None:
    run = await failed(conn, 0)
    await begin(conn, run)
    await write(conn, run, ending=Failed(ERROR))
    await manage(conn, ["r1"], Rewind(Cut.BEGINNING))
    assert (await row(conn))[:3] == (RunStatus.ENQUEUED, Undo.PROMISED, None)
    assert await conn.fetchval("SELECT count(*) FROM perdure.undos") == 0
    await runs.cancel(conn, "r1", CancelMode.COMPENSATE, "enough")
    assert (await row(conn))[1] == Undo.REQUESTED
    await manage(conn, ["r1"], Resume())
    assert (await row(conn))[1:4] == (Undo.PROMISED, None, None)


async def test_the_step_that_says_what_is_undone_says_why(conn: Connection) -> None:
    run = await failed(conn, 0, 1)
    await begin(conn, run)
    found = await conn.fetchrow("SELECT input, output FROM perdure.workflow_steps WHERE name = 'perdure.undo'")
    assert (json.loads(found["input"])["message"], json.loads(found["output"])) == ("no courier", [1, 0])
