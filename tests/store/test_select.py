"""Rows of a select: what becomes of them when the run is tried again, and the inbox that a receive looks into."""

import pytest
from perdure.model.calls import Otherwise
from perdure.model.management import Cut, Fork, Rewind
from perdure.model.outcome import ErrorRecord, Failed, Succeeded
from perdure.model.rows import ClaimedRun, StepWrite
from perdure.model.states import StepStatus
from perdure.store import calls, looks, status, sweeps
from perdure.store.calls import RunCalls
from perdure.store.management import manage

from tests.store.builders import (
    Connection,
    add_run,
    claim,
    claimed,
    failure,
    finish,
    let_time_pass,
    start,
    step_rows,
    write,
)
from tests.store.callbuilders import receive, send

ERROR = ErrorRecord("ValueError", "no")


def select(index: int, seq: int, winner: int) -> StepWrite:
    return StepWrite(index, seq, "perdure.select", StepStatus.SUCCEEDED, "[]", str(winner))


def dropped(index: int, seq: int) -> StepWrite:
    return StepWrite(index, seq, "s", StepStatus.DROPPED, "[]")


async def retried(conn: Connection, run: ClaimedRun) -> ClaimedRun:
    await write(conn, run, ending=Failed(ERROR))
    await let_time_pass(conn, "wake_at", 4000)
    assert await sweeps.wake_due(conn, 10) == [("ns", "default")]
    [again] = await claim(conn)
    return again


async def found(conn: Connection) -> list[tuple[int, int]]:
    return [(each["step_index"], each["status"]) for each in await step_rows(conn)]


async def test_a_failed_winner_is_opened_again_and_its_race_is_run_anew(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=2)
    await write(conn, run, start(0, 1), start(1, 2), start(2, 3))
    await write(conn, run, failure(1, 4), select(3, 5, 1), dropped(0, 6), dropped(2, 7))
    again = await retried(conn, run)
    [opened] = again.steps
    assert (opened.index, opened.status, opened.attempts) == (1, StepStatus.RETRYING, 0)
    # All of it can be written again.
    await write(conn, again, start(0, 1, fresh=True), start(1, 2), start(2, 3, fresh=True))
    await write(conn, again, finish(0, 4), select(3, 5, 0), dropped(1, 6), dropped(2, 7))
    assert await found(conn) == [(0, 30), (1, 45), (2, 45), (3, 30)]


async def test_a_failed_winner_that_the_body_caught_stays_caught_with_its_race(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=2)
    await write(conn, run, start(0, 1), start(1, 2))
    await write(conn, run, failure(1, 3), select(2, 4, 1), dropped(0, 5), start(3, 6))
    await write(conn, run, failure(3, 7))
    await retried(conn, run)
    assert await found(conn) == [(0, 45), (1, 40), (2, 30), (3, 20)]


async def test_a_winner_that_did_not_fail_stays_and_will_win_again(conn: Connection) -> None:
    """The body failed by itself after the race: only the record of the race goes."""
    run = await claimed(conn, max_run_attempts=2)
    await write(conn, run, start(0, 1), start(1, 2))
    await write(conn, run, finish(1, 3), select(2, 4, 1), dropped(0, 5))
    await retried(conn, run)
    assert await found(conn) == [(1, 30)]


async def test_an_earlier_failure_does_not_count_as_last_because_only_a_race_came_after_it(conn: Connection) -> None:
    """Step 0 failed and was caught; the race that followed ended the attempt."""
    run = await claimed(conn, max_run_attempts=2)
    await write(conn, run, start(0, 1))
    await write(conn, run, failure(0, 2), start(1, 3), start(2, 4))
    await write(conn, run, failure(1, 5), select(3, 6, 0), dropped(2, 7))
    await retried(conn, run)
    assert await found(conn) == [(0, 40), (1, 20)]


async def ended_race(conn: Connection) -> None:
    run = await claimed(conn, name=None)
    await write(conn, run, start(0, 1), start(1, 2), start(2, 3))
    await write(conn, run, finish(1, 4), select(3, 5, 1), dropped(0, 6), dropped(2, 7), ending=Succeeded("1"))


@pytest.mark.parametrize(("cut", "left"), [(4, [(1, 30), (3, 30)]), (3, [(1, 30)]), (2, [(1, 30)]), (1, [])])
async def test_a_fork_begins_without_what_has_lost(conn: Connection, cut: int, left: list[tuple[int, int]]) -> None:
    """So that where the select itself is cut off its branches can be raced again."""
    await ended_race(conn)
    await manage(conn, ["r1"], Fork("f", Cut.step(cut)))
    assert [(each["step_index"], each["status"]) for each in await step_rows(conn, "f")] == left


@pytest.mark.parametrize(("cut", "left"), [(4, [(1, 30), (3, 30)]), (3, [(1, 30)]), (2, [(1, 30)]), (1, [])])
async def test_a_rewind_takes_away_what_has_lost(conn: Connection, cut: int, left: list[tuple[int, int]]) -> None:
    await ended_race(conn)
    await manage(conn, ["r1"], Rewind(Cut.step(cut)))
    assert await found(conn) == left


async def test_forks_and_forks_of_forks_go_by_the_chance_of_the_first_run(conn: Connection) -> None:
    await ended_race(conn)
    await manage(conn, ["r1"], Fork("f", Cut.step(1)))
    await manage(conn, ["f"], Fork("g", Cut.BEGINNING))
    assert {run.id: run.seed for run in await claim(conn)} == {"f": "r1", "g": "r1"}


async def test_a_race_of_another_run_is_left_alone(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=2)
    other = await claimed(conn, "r2")
    await write(conn, other, start(0, 1), start(1, 2))
    await write(conn, other, finish(1, 3), select(2, 4, 1), dropped(0, 5))
    await write(conn, run, start(0, 1))
    await write(conn, run, failure(0, 2))
    await retried(conn, run)
    assert [each["status"] for each in await step_rows(conn, "r2")] == [45, 30, 30]


@pytest.mark.parametrize("late", [start(0, 9), finish(0, 9), failure(0, 9)])
async def test_what_has_lost_stays_lost(conn: Connection, late: StepWrite) -> None:
    run = await claimed(conn)
    await write(conn, run, start(0, 1), start(1, 2))
    await write(conn, run, finish(1, 3), select(2, 4, 1), dropped(0, 5))
    await write(conn, run, late)
    [lost, *_] = await step_rows(conn)
    assert (lost["status"], lost["seq"], lost["output"]) == (45, 5, None)
    assert lost["finished_at"] is not None


async def test_a_late_receive_of_a_branch_that_has_lost_is_not_recorded(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, dropped(0, 5))
    late = receive(0, 4, otherwise=Otherwise.WAITING, wake_in=5.0)
    await calls.execute(conn, "w1", [RunCalls(run.id, run.fence, (late,))])
    assert await found(conn) == [(0, 45)]


async def test_the_status_counts_what_has_lost_neither_as_live_nor_as_failed(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, start(0, 1), start(1, 2))
    await write(conn, run, finish(1, 3), select(2, 4, 1), dropped(0, 5))
    [read] = await status.read(conn, [run.id])
    counts = read.counts
    assert (counts.succeeded, counts.failed, counts.running, counts.retrying) == (2, 0, 0, 0)


async def test_a_look_into_the_inbox_takes_nothing_and_says_how_many_wakes_it_has_seen(conn: Connection) -> None:
    run = await claimed(conn)
    seen = await looks.inbox(conn, run.id, "t")
    assert (seen.there, seen.wake_seq) == (False, run.wake_seq)
    await calls.execute(conn, "w1", [RunCalls(run.id, run.fence, (send(0, 1, to=run.id),))])
    for _ in range(2):
        assert (await looks.inbox(conn, run.id, "t")).there
    assert not (await looks.inbox(conn, run.id, "other")).there
    await calls.execute(conn, "w1", [RunCalls(run.id, run.fence, (receive(1, 2),))])
    assert not (await looks.inbox(conn, run.id, "t")).there


async def test_a_look_into_the_inbox_of_a_run_that_is_gone_finds_nothing(conn: Connection) -> None:
    assert not (await looks.inbox(conn, "nobody", "t")).there


async def test_the_clock_is_that_of_the_database(conn: Connection) -> None:
    await add_run(conn)
    before = await conn.fetchval("SELECT clock_timestamp()")
    assert before <= await looks.clock(conn) <= await conn.fetchval("SELECT clock_timestamp()")
