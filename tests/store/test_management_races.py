"""A verb and whoever settles, claims, wakes or sweeps the run, each order forced: the second waits for the first, sees
what it did, and decides on that."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import pytest
from perdure.errors import InvalidArgument, NonExistentWorkflow, WorkflowConflict, WorkflowNotRewindable
from perdure.model.management import Cancel, Cut, Delay, Delete, Fork, Resume, Rewind, Verb
from perdure.model.outcome import Cancelled, ErrorRecord, Failed, Parked, Succeeded
from perdure.model.rows import ClaimedRun, StepWrite, WaitingFor
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import journal, runs, sweeps, workers
from perdure.store.journal import RunWrites
from perdure.store.management import CallerLost, Done, manage, manage_for
from perdure.store.pool import connect
from perdure.store.transaction import Claim
from perdure.store.wakes import Child, announce

from tests.store.builders import (
    Connection,
    add_run,
    claim,
    claimed,
    finish,
    let_time_pass,
    row,
    start,
    step_rows,
    write,
)
from tests.support.pgwait import holding, until_waiting, waiting

T = TypeVar("T")

PARK = Parked(WaitingFor("Child", "other", on=("child:other",)), None)
ERROR = ErrorRecord("E", "m")
NAMELESS: dict[str, Any] = {"name": None}


async def behind(url: str, observer: Connection, first: Any, second: Coroutine[Any, Any, T]) -> T:
    """`first` in an open transaction, `second` begun and seen to wait, then the commit; what the second says."""
    async with holding(url) as holder:
        await first(holder)
        task = await waiting(observer, second)
    return await task


# -- a run that is settled


async def test_a_rewind_behind_a_settle_finds_the_run_ended(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    run = await claimed(conn, **NAMELESS)
    await write(conn, run, finish())
    [done] = await behind(
        pg_url,
        observer,
        lambda holder: write(holder, run, ending=Succeeded("1")),
        manage(conn, ["r1"], Rewind(Cut.BEGINNING)),
    )
    assert done.status is RunStatus.ENQUEUED
    assert await step_rows(conn) == []


async def test_a_resume_behind_a_settle_takes_the_failed_run_up(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    run = await claimed(conn, **NAMELESS)
    [done] = await behind(
        pg_url, observer, lambda holder: write(holder, run, ending=Failed(ERROR)), manage(conn, ["r1"], Resume())
    )
    assert done.ready
    assert (await row(conn))["finished_at"] is None


async def test_a_settle_behind_a_resume_that_took_the_run_away_writes_nothing(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    run = await claimed(conn, **NAMELESS)
    await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "why")
    ack = await behind(
        pg_url,
        observer,
        lambda holder: manage(holder, ["r1"], Resume()),
        write(conn, run, finish(), ending=Cancelled("why")),
    )
    assert not ack.owned
    assert await step_rows(conn) == []
    assert (await row(conn))["status"] == RunStatus.ENQUEUED


async def test_a_settle_behind_a_delete_ends_the_run_as_cancelled(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    run = await claimed(conn, **NAMELESS)
    ack = await behind(
        pg_url,
        observer,
        lambda holder: manage(holder, ["r1"], Delete()),
        write(conn, run, start(), ending=Succeeded("1")),
    )
    assert (ack.owned, ack.ended) == (True, None)
    assert (await write(conn, run, ending=Cancelled("why"))).ended is RunStatus.CANCELLED
    while await runs.purge_gone(conn, 10):
        pass
    assert await runs.get_status(conn, "r1") is None


async def test_a_delete_behind_a_settle_removes_the_ended_run(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    run = await claimed(conn, **NAMELESS)
    [done] = await behind(
        pg_url, observer, lambda holder: write(holder, run, ending=Succeeded("1")), manage(conn, ["r1"], Delete())
    )
    assert done.status is RunStatus.SUCCEEDED
    assert (await row(conn))["deleted"]


async def test_a_fork_behind_a_write_has_it(conn: Connection, observer: Connection, pg_url: str) -> None:
    """Nothing of the run is written while it is copied, so a fork never has half of a statement."""
    run = await claimed(conn, **NAMELESS)
    await behind(
        pg_url, observer, lambda holder: write(holder, run, finish()), manage(conn, ["r1"], Fork("f", Cut.step(1)))
    )
    assert [step["status"] for step in await step_rows(conn, "f")] == [StepStatus.SUCCEEDED]


async def test_a_write_behind_a_fork_is_the_first_runs_alone(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    run = await claimed(conn, **NAMELESS)
    ack = await behind(
        pg_url,
        observer,
        lambda holder: manage(holder, ["r1"], Fork("f", Cut.BEGINNING)),
        write(conn, run, finish(), ending=Succeeded("1")),
    )
    assert ack.ended is RunStatus.SUCCEEDED
    assert await step_rows(conn, "f") == []


# -- a run that is claimed


async def test_a_delay_behind_a_claim_is_refused(conn: Connection, observer: Connection, pg_url: str) -> None:
    await claimed(conn, "other")
    await add_run(conn, **NAMELESS)
    with pytest.raises(InvalidArgument, match="RUNNING"):
        await behind(pg_url, observer, claim, manage(conn, ["r1"], Delay(60)))
    assert (await row(conn))["wake_at"] is None


async def test_a_claim_beside_a_delay_takes_nothing(conn: Connection, pg_url: str) -> None:
    await claimed(conn, "other")
    await add_run(conn, **NAMELESS)
    async with holding(pg_url) as holder:
        await manage(holder, ["r1"], Delay(60))
        assert await claim(conn) == []
    assert await claim(conn) == []
    assert (await row(conn))["status"] == RunStatus.DELAYED


async def test_a_rewind_behind_a_claim_is_refused(conn: Connection, observer: Connection, pg_url: str) -> None:
    run = await claimed(conn, **NAMELESS)
    await write(conn, run, ending=Failed(ERROR))
    await manage(conn, ["r1"], Resume())
    with pytest.raises(WorkflowNotRewindable, match="RUNNING"):
        await behind(pg_url, observer, claim, manage(conn, ["r1"], Rewind(Cut.BEGINNING)))


async def test_of_two_resumes_the_second_finds_nothing_to_do(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    run = await claimed(conn, **NAMELESS)
    await write(conn, run, ending=Failed(ERROR))
    [done] = await behind(
        pg_url, observer, lambda holder: manage(holder, ["r1"], Resume()), manage(conn, ["r1"], Resume())
    )
    assert not done.ready
    assert (await row(conn))["fence"] == run.fence + 2


async def test_of_two_rewinds_the_second_is_refused(conn: Connection, observer: Connection, pg_url: str) -> None:
    run = await claimed(conn, **NAMELESS)
    await write(conn, run, ending=Failed(ERROR))
    verb = Rewind(Cut.BEGINNING)
    with pytest.raises(WorkflowNotRewindable):
        await behind(pg_url, observer, lambda holder: manage(holder, ["r1"], verb), manage(conn, ["r1"], verb))
    assert (await row(conn))["rewinds"] == 1


# -- a run that is woken or swept


async def test_a_wake_behind_a_resume_wakes_nobody_twice(conn: Connection, observer: Connection, pg_url: str) -> None:
    run = await claimed(conn, **NAMELESS)
    await write(conn, run, ending=PARK)
    woken = await behind(
        pg_url,
        observer,
        lambda holder: manage(holder, ["r1"], Resume()),
        announce(conn, [], [Child("other", "r1")]),
    )
    assert [each.ready for each in woken] == [False]
    assert (await row(conn))["fence"] == run.fence + 2


async def test_a_resume_behind_a_wake_finds_the_run_ready(conn: Connection, observer: Connection, pg_url: str) -> None:
    run = await claimed(conn, **NAMELESS)
    await write(conn, run, ending=PARK)
    [done] = await behind(
        pg_url,
        observer,
        lambda holder: announce(holder, [], [Child("other", "r1")]),
        manage(conn, ["r1"], Resume()),
    )
    assert not done.ready
    assert (await row(conn))["fence"] == run.fence + 2


async def test_the_wake_sweep_passes_over_a_run_whose_delay_is_being_changed(conn: Connection, pg_url: str) -> None:
    await add_run(conn, **NAMELESS)
    await manage(conn, ["r1"], Delay(1))
    await let_time_pass(conn, "wake_at", 2)
    async with holding(pg_url) as holder:
        await manage(holder, ["r1"], Delay(60))
        await sweeps.wake_due(conn, 10)
    await sweeps.wake_due(conn, 10)
    assert (await row(conn))["status"] == RunStatus.DELAYED


async def test_a_delay_behind_the_wake_sweep_puts_the_run_off_again(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    await add_run(conn, **NAMELESS)
    await manage(conn, ["r1"], Delay(1))
    await let_time_pass(conn, "wake_at", 2)
    [done] = await behind(pg_url, observer, lambda holder: sweeps.wake_due(holder, 10), manage(conn, ["r1"], Delay(60)))
    assert done.status is RunStatus.DELAYED
    assert await claim(conn, "nobody") == []


async def test_a_cancel_behind_a_resume_cancels_the_run_that_was_taken_up(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    run = await claimed(conn, **NAMELESS)
    await write(conn, run, ending=Failed(ERROR))
    [done] = await behind(
        pg_url, observer, lambda holder: manage(holder, ["r1"], Resume()), manage(conn, ["r1"], Cancel("why"))
    )
    assert (done.status, done.ended) == (RunStatus.CANCELLED, True)


async def test_a_move_from_a_dead_worker_behind_a_resume_finds_nothing(conn: Connection, pg_url: str) -> None:
    await claimed(conn, **NAMELESS)
    await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "why")
    await workers.mark_dead(conn, ["uid-w1"])
    async with holding(pg_url) as holder:
        await manage(holder, ["r1"], Resume())
        assert await workers.move(conn, ["w1"], 10) == []
    assert await workers.move(conn, ["w1"], 10) == []
    assert (await row(conn))["status"] == RunStatus.ENQUEUED


# -- many at once


@pytest.fixture
async def other(pg_url: str) -> AsyncIterator[Connection]:
    connection = await connect(pg_url, application_name="other")
    yield connection
    await connection.close()


async def held_up(url: str, observer: Connection, run_id: str, *both: Coroutine[Any, Any, Any]) -> list[Any]:
    """Both begun while somebody holds the run's row, and let go together."""
    async with holding(url, (f"SELECT FROM perdure.workflows WHERE id = '{run_id}' FOR UPDATE",)):
        tasks = [asyncio.ensure_future(each) for each in both]
        await until_waiting(observer, len(tasks))
    return await asyncio.gather(*tasks)


async def test_bulk_calls_with_common_runs_in_any_order_never_deadlock(
    conn: Connection, other: Connection, observer: Connection, pg_url: str
) -> None:
    for run_id in ("a", "b", "c"):
        await add_run(conn, run_id, **NAMELESS)
    await held_up(
        pg_url,
        observer,
        "b",
        manage(conn, ["c", "b", "a"], Cancel("1")),
        manage(other, ["b", "c", "a"], Cancel("2")),
    )
    assert {await runs.get_status(conn, run_id) for run_id in ("a", "b", "c")} == {RunStatus.CANCELLED}


async def test_a_call_of_a_run_and_the_journal_of_its_worker_never_deadlock(
    conn: Connection, other: Connection, observer: Connection, pg_url: str
) -> None:
    """The caller and the run that it is about are locked in one sorted pass, as the journal locks its batch (R15)."""
    caller, target = await claimed(conn, "b", **NAMELESS), await claimed(conn, "a", **NAMELESS)
    batch = [RunWrites(run.id, run.fence, (start(5, 50),)) for run in (caller, target)]
    done, acks = await held_up(
        pg_url, observer, "a", call(conn, caller, Cancel("why"), "a"), journal.commit(other, "w1", batch)
    )
    assert done.output == "30"
    assert all(ack.owned for ack in acks.values())


# -- the calls of runs


async def call(
    conn: Connection, run: ClaimedRun, verb: Verb, target: str, *, index: int = 3, seq: int = 9, plain: bool = False
) -> Done:
    step = StepWrite(index, seq, "perdure.cancel", StepStatus.SUCCEEDED, "[]")
    return await manage_for(conn, Claim(run.id, "w1", run.fence), target, verb, None if plain else step)


async def test_what_a_run_does_with_another_and_its_step_are_one_transaction(conn: Connection) -> None:
    await add_run(conn, "other", **NAMELESS)
    caller = await claimed(conn, "caller", queue="mine", **NAMELESS)
    done = await call(conn, caller, Cancel("why"), "other")
    assert (done.output, done.managed is not None) == ("70", True)
    [step] = await step_rows(conn, "caller")
    assert (step["status"], step["output"], step["fence"], step["seq"]) == (30, "70", caller.fence, 9)


async def test_sent_again_after_a_lost_answer_it_is_not_done_again(conn: Connection) -> None:
    await add_run(conn, "other", **NAMELESS)
    caller = await claimed(conn, "caller", queue="mine", **NAMELESS)
    await call(conn, caller, Cancel("why"), "other")
    await manage(conn, ["other"], Resume())
    again = await call(conn, caller, Cancel("why"), "other")
    assert (again.output, again.managed) == ("70", None)
    assert await runs.get_status(conn, "other") is RunStatus.ENQUEUED


@pytest.mark.parametrize("plain", [False, True], ids=["as a step", "in a step"])
async def test_a_call_behind_a_reclaim_of_its_run_does_nothing(
    conn: Connection, observer: Connection, pg_url: str, plain: bool
) -> None:
    await add_run(conn, "other", **NAMELESS)
    caller = await claimed(conn, "caller", queue="mine", **NAMELESS)
    await workers.mark_dead(conn, ["uid-w1"])
    with pytest.raises(CallerLost, match="run caller was taken over") as lost:
        await behind(
            pg_url,
            observer,
            lambda holder: workers.move(holder, ["w1"], 10),
            call(conn, caller, Cancel("why"), "other", plain=plain),
        )
    assert isinstance(lost.value.why, WorkflowConflict)
    assert await runs.get_status(conn, "other") is RunStatus.ENQUEUED
    assert await step_rows(conn, "caller") == []


async def test_a_call_of_a_run_that_was_deleted_meanwhile_does_nothing(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    await add_run(conn, "other", **NAMELESS)
    caller = await claimed(conn, "caller", queue="mine", **NAMELESS)
    with pytest.raises(CallerLost, match="run caller was deleted while it ran") as lost:
        await behind(
            pg_url,
            observer,
            lambda holder: manage(holder, ["caller"], Delete()),
            call(conn, caller, Cancel("why"), "other"),
        )
    assert isinstance(lost.value.why, NonExistentWorkflow)
    assert await runs.get_status(conn, "other") is RunStatus.ENQUEUED


async def test_a_call_behind_a_cancel_of_its_run_does_nothing(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    await add_run(conn, "other", **NAMELESS)
    caller = await claimed(conn, "caller", queue="mine", **NAMELESS)
    done = await behind(
        pg_url,
        observer,
        lambda holder: runs.cancel(holder, "caller", CancelMode.GRACEFUL, "why"),
        call(conn, caller, Cancel("why"), "other"),
    )
    assert (done.flags.cancel_mode, done.output) == (CancelMode.GRACEFUL, None)
    assert await runs.get_status(conn, "other") is RunStatus.ENQUEUED
