import json

import asyncpg
import pytest
from perdure.model.outcome import Cancelled, ErrorRecord, Failed, Lost, Mismatch, Parked, Released, Succeeded
from perdure.model.rows import StepWrite, WaitingFor
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import journal, runs
from perdure.store.journal import RunWrites

from tests.store.builders import (
    Connection,
    add_run,
    add_worker,
    claim,
    claimed,
    everything,
    failure,
    finish,
    row,
    start,
    step_rows,
    write,
)

ERROR = ErrorRecord("ValueError", "no", step="s")


async def test_start_and_finish_are_recorded(conn: Connection) -> None:
    run = await claimed(conn)

    ack = await write(conn, run, start())
    assert (ack.owned, ack.ended, ack.fence) == (True, None, 1)
    [recorded] = await step_rows(conn)
    assert (recorded["status"], recorded["fence"], recorded["seq"]) == (StepStatus.RUNNING, 1, 1)
    assert recorded["finished_at"] is None

    await write(conn, run, finish(), start(1, 3))
    done, running = await step_rows(conn)
    assert (done["status"], done["output"], done["input"]) == (StepStatus.SUCCEEDED, '"ok"', "[]")
    assert done["finished_at"] >= done["started_at"] == recorded["started_at"]
    assert running["status"] == StepStatus.RUNNING


async def test_a_late_twin_of_a_start_changes_nothing_after_the_finish(conn: Connection) -> None:
    """R3: the first copy of a start commits long after its retry and the step's end."""
    run = await claimed(conn)
    await write(conn, run, start())
    await write(conn, run, finish())
    before = await everything(conn)

    ack = await write(conn, run, start())

    assert ack.owned
    assert await everything(conn) == before


async def test_a_late_twin_of_an_earlier_attempt_changes_nothing(conn: Connection) -> None:
    run = await claimed(conn)
    retrying = StepWrite(0, 2, "s", StepStatus.RETRYING, "[]", attempts=1, attempt_errors="[]", wake_in=1.0)
    await write(conn, run, start())
    await write(conn, run, retrying)
    await write(conn, run, start(seq=3, attempts=1))
    before = await everything(conn)

    await write(conn, run, start())
    await write(conn, run, retrying)

    assert await everything(conn) == before


async def test_a_final_step_is_never_changed_by_a_later_claim(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, start(), ending=None)
    await write(conn, run, finish(), ending=Released("drain"))
    [again] = await claim(conn)

    await write(conn, again, start(seq=1), failure(1, 2))
    await write(conn, again, failure(0, 3))

    first, second = await step_rows(conn)
    assert (first["status"], first["fence"]) == (StepStatus.SUCCEEDED, 1)
    assert (second["status"], second["fence"]) == (StepStatus.FAILED, 3)


async def test_a_step_cut_off_by_a_crash_is_started_again_by_the_next_claim(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, start(seq=9))
    await conn.execute("UPDATE perdure.workflows SET status = 10, worker_id = NULL, fence = fence + 1")
    [again] = await claim(conn)

    await write(conn, again, start(seq=1))

    [recorded] = await step_rows(conn)
    assert (recorded["fence"], recorded["seq"], recorded["started_fence"]) == (again.fence, 1, again.fence)


async def test_input_may_be_left_out_after_the_first_write_of_a_claim(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, StepWrite(0, 1, "s", StepStatus.RUNNING, '["a"]'))
    await write(conn, run, StepWrite(0, 2, "s", StepStatus.SUCCEEDED, None, "1"))

    [recorded] = await step_rows(conn)
    assert (recorded["input"], recorded["output"]) == ('["a"]', "1")


async def test_success_settles_the_run_with_its_output(conn: Connection) -> None:
    run = await claimed(conn)

    ack = await write(conn, run, finish(), ending=Succeeded('{"n": 1}'))

    assert (ack.owned, ack.ended, ack.fence) == (True, RunStatus.SUCCEEDED, 2)
    stored = await row(conn)
    assert (stored["worker_id"], stored["fence"]) == (None, 2)
    assert (stored["ended_fence"], stored["ended_by"]) == (1, "w1")
    assert stored["finished_at"] is not None
    assert stored["status_due_at"] is not None
    assert await runs.result(conn, "r1") == runs.RunResult(RunStatus.SUCCEEDED, '{"n": 1}', None)


async def test_failure_settles_the_run_with_its_error(conn: Connection) -> None:
    run = await claimed(conn)

    assert (await write(conn, run, ending=Failed(ERROR))).ended is RunStatus.FAILED

    assert await runs.result(conn, "r1") == runs.RunResult(RunStatus.FAILED, None, ERROR.to_json())
    assert (await row(conn))["run_attempts"] == 1


async def test_failure_with_attempts_left_is_delayed_a_little_longer_each_time(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=3)
    waits = []
    for expected in (RunStatus.DELAYED, RunStatus.DELAYED, RunStatus.FAILED):
        acks = await journal.commit(
            conn, "w1", [RunWrites("r1", run.fence, (), Failed(ERROR))], backoff=journal.Backoff(run_retry=100)
        )
        assert acks["r1"].ended is expected
        stored = await row(conn)
        if expected is RunStatus.DELAYED:
            waits.append((stored["wake_at"] - stored["waiting_since"]).total_seconds())
            assert json.loads(stored["waiting_for"])["kind"] == "RunRetry"
            await conn.execute("UPDATE perdure.workflows SET status = 10, wake_at = NULL")
            [run] = await claim(conn)
    assert waits == [pytest.approx(100, abs=0.1), pytest.approx(200, abs=0.1)]
    assert (await row(conn))["run_attempts"] == 3
    assert (await row(conn))["waiting_for"] is None


async def test_mismatch_is_delayed_and_over_the_limit_parked(conn: Connection) -> None:
    run = await claimed(conn, max_recoveries=1)

    assert (await write(conn, run, ending=Mismatch(ERROR))).ended is RunStatus.DELAYED
    stored = await row(conn)
    assert (stored["recoveries"], stored["run_attempts"], stored["reopen"]) == (1, 0, False)
    waiting = json.loads(stored["waiting_for"])
    assert (waiting["kind"], waiting["name"], waiting["message"]) == ("ReplayMismatch", "s", "no")
    assert "until" in waiting

    await conn.execute("UPDATE perdure.workflows SET status = 10, wake_at = NULL")
    [again] = await claim(conn)
    assert (await write(conn, again, ending=Mismatch(ERROR))).ended is RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED
    assert (await runs.result(conn, "r1")).error == ERROR.to_json()


async def test_park_waits_for_a_named_thing_until_an_instant_of_the_database(conn: Connection) -> None:
    run = await claimed(conn)

    ack = await write(conn, run, ending=Parked(WaitingFor("RetryBackoff", "s", "again later"), 60.0))

    assert ack.ended is RunStatus.WAITING
    stored = await row(conn)
    waiting = json.loads(stored["waiting_for"])
    assert (waiting["kind"], waiting["name"], waiting["message"]) == ("RetryBackoff", "s", "again later")
    assert (stored["wake_at"] - stored["waiting_since"]).total_seconds() == pytest.approx(60, abs=0.1)
    assert waiting["until"].startswith(stored["wake_at"].strftime("%Y-%m-%dT%H:%M:%S"))


async def test_release_keeps_the_place_and_counts_nothing(conn: Connection) -> None:
    run = await claimed(conn)
    before = await row(conn)

    assert (await write(conn, run, finish(), ending=Released("drain"))).ended is RunStatus.ENQUEUED

    stored = await row(conn)
    assert stored["run_at"] == before["run_at"]
    assert (stored["run_attempts"], stored["recoveries"], stored["waiting_for"]) == (0, 0, None)


async def test_cancelled_keeps_the_first_reason(conn: Connection) -> None:
    run = await claimed(conn)
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "asked by a person")

    assert (await write(conn, run, ending=Cancelled("at a step"))).ended is RunStatus.CANCELLED

    assert (await row(conn))["cancel_reason"] == "asked by a person"


@pytest.mark.parametrize("ending", [Succeeded("1"), Failed(ERROR), Mismatch(ERROR)])
async def test_cancel_beats_every_other_outcome_until_it_is_committed(
    conn: Connection, ending: Succeeded | Failed | Mismatch
) -> None:
    """R9: the settle is refused, the answer says why, the step's result is kept."""
    run = await claimed(conn)
    await write(conn, run, start())
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "why")

    ack = await write(conn, run, finish(), ending=ending)

    assert (ack.owned, ack.ended) == (True, None)
    assert ack.flags is not None
    assert ack.flags.cancel_mode is CancelMode.GRACEFUL
    assert (await row(conn))["status"] == RunStatus.RUNNING
    assert [each["status"] for each in await step_rows(conn)] == [StepStatus.SUCCEEDED]


@pytest.mark.parametrize("ending", [Parked(WaitingFor("x"), None), Released("drain")])
async def test_a_run_that_is_parked_or_released_with_a_cancel_is_cancelled(
    conn: Connection, ending: Parked | Released
) -> None:
    """It must not wait for a claim: its queue may be paused."""
    run = await claimed(conn)
    await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "why")

    assert (await write(conn, run, ending=ending)).ended is RunStatus.CANCELLED
    ended = await row(conn)
    assert (ended["status"], ended["cancel_reason"]) == (RunStatus.CANCELLED, "why")
    assert ended["finished_at"] is not None
    assert (ended["wake_at"], ended["waiting_for"], ended["waiting_since"]) == (None, None, None)


async def test_no_step_starts_once_a_cancel_is_set(conn: Connection) -> None:
    run = await claimed(conn)
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "why")

    ack = await write(conn, run, start())

    assert ack.owned
    assert ack.flags is not None
    assert ack.flags.cancel_mode is CancelMode.GRACEFUL
    assert await step_rows(conn) == []


async def test_a_foreign_and_a_stale_claim_are_told_apart(conn: Connection) -> None:
    """Not owned twice: the run is another worker's, and the run is mine again under a newer fence."""
    mine = await claimed(conn)
    await write(conn, mine, ending=Released("drain"))
    await claim(conn)
    await add_worker(conn, "w2")
    await add_run(conn, "r2")
    [other] = await claim(conn, "w2")

    acks = await journal.commit(
        conn,
        "w1",
        [RunWrites("r1", mine.fence, (start(),)), RunWrites("r2", other.fence, (start(),)), RunWrites("no", 1)],
    )

    assert {run_id: (ack.owned, ack.fence) for run_id, ack in acks.items()} == {
        "r1": (False, 3),
        "r2": (False, other.fence),
        "no": (False, 1),
    }
    assert await step_rows(conn) == await step_rows(conn, "r2") == []


async def test_one_batch_holds_many_runs_each_with_its_own_answer(conn: Connection) -> None:
    await add_worker(conn)
    for n in range(20):
        await add_run(conn, f"r{n:02}")
    claimed_runs = await claim(conn, limit=20)

    acks = await journal.commit(
        conn,
        "w1",
        [
            RunWrites(run.id, run.fence, (start(), start(1, 2)), Succeeded("1") if n % 2 else None)
            for n, run in enumerate(claimed_runs)
        ],
    )

    assert all(ack.owned for ack in acks.values())
    assert sum(ack.ended is RunStatus.SUCCEEDED for ack in acks.values()) == 10
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflow_steps") == 40


MANY = journal.FEW_STEPS + 1
"""Steps that are too many for the small statement."""


def starts(*, fresh: bool) -> list[StepWrite]:
    return [start(index, index + 1, fresh=fresh) for index in range(MANY)]


async def test_fresh_starts_are_recorded_as_any_other(conn: Connection) -> None:
    run, other = await claimed(conn), await claimed(conn, "r2")
    await write(conn, run, *starts(fresh=True))
    await write(conn, other, *starts(fresh=False))

    def compared(rows: list[asyncpg.Record]) -> list[dict[str, object]]:
        apart = {"workflow_id", "started_at"}
        return [{key: value for key, value in found.items() if key not in apart} for found in rows]

    fresh, plain = compared(await step_rows(conn)), compared(await step_rows(conn, "r2"))
    assert len(fresh) == MANY
    assert fresh == plain


@pytest.mark.parametrize("count", [1, MANY])
async def test_fresh_starts_are_refused_once_the_run_is_cancelled(conn: Connection, count: int) -> None:
    run = await claimed(conn)
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "why")

    ack = await write(conn, run, *starts(fresh=True)[:count])

    assert ack.flags is not None
    assert (ack.owned, ack.flags.cancel_mode) == (True, CancelMode.GRACEFUL)
    assert await step_rows(conn) == []


async def test_a_fresh_start_that_is_there_is_told_apart_and_sent_again_as_resent(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, *starts(fresh=True))
    await write(conn, run, finish(0, MANY + 1))
    before = await step_rows(conn)
    again = RunWrites(run.id, run.fence, starts(fresh=True))

    with pytest.raises(asyncpg.UniqueViolationError) as caught:
        await journal.commit(conn, "w1", [again])
    assert journal.is_not_fresh(caught.value)
    again.resent = True
    acks = await journal.commit(conn, "w1", [again])

    assert acks["r1"].owned
    assert await step_rows(conn) == before


@pytest.mark.parametrize("value", ["a\x1fb", "\x1f"])
async def test_a_separator_in_a_value_is_a_bad_row(conn: Connection, value: str) -> None:
    run = await claimed(conn)

    with pytest.raises(asyncpg.DataError):
        await write(conn, run, start(), finish(1, 2, value))


async def test_columns_may_hold_nothing_at_any_place(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, *(start(index, index + 1, fresh=index % 2 == 0) for index in range(4)))
    await write(
        conn,
        run,
        failure(0, 5),
        finish(1, 6),
        StepWrite(2, 7, "step", StepStatus.RETRYING, None, None, "{}", 1, "[]", 10.0),
        finish(3, 8),
    )

    rows = await step_rows(conn)
    assert [(row["output"] is None, row["error"] is None, row["wake_at"] is None) for row in rows] == [
        (True, False, True),
        (False, True, True),
        (True, False, False),
        (False, True, True),
    ]


async def test_a_batch_without_writes_asks_what_is_owned(conn: Connection) -> None:
    run = await claimed(conn)

    ack = await write(conn, run)

    assert (ack.owned, ack.ended) == (True, None)
    assert await journal.commit(conn, "w1", []) == {}


async def test_a_lost_run_has_nothing_to_write(conn: Connection) -> None:
    run = await claimed(conn)
    with pytest.raises(ValueError, match="lost run"):
        await write(conn, run, ending=Lost())
