import pytest
from perdure.model.outcome import Parked
from perdure.model.rows import MovedRun, WaitingFor
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs, workers

from tests.store.builders import (
    Connection,
    add_run,
    add_worker,
    claim,
    claimed,
    finish,
    row,
    start,
    write,
)
from tests.support.pgwait import holding


async def die(conn: Connection, worker_id: str = "w1") -> list[MovedRun]:
    await workers.mark_dead(conn, [f"uid-{worker_id}"])
    return await workers.move(conn, [worker_id], 100)


async def recover(conn: Connection, number: int, *, progress: int | None = None) -> None:
    """A fresh worker takes the run, finishes a step if asked to, and dies."""
    name = f"w{number}"
    await add_worker(conn, name)
    [run] = await claim(conn, name)
    if progress is not None:
        await write(conn, run, finish(progress, 1), worker_id=name)
    await die(conn, name)


async def test_runs_of_a_dead_worker_are_claimable_again_with_their_place(conn: Connection) -> None:
    await claimed(conn)
    before = await row(conn)

    assert await die(conn) == [MovedRun("r1", RunStatus.ENQUEUED, "ns", "default", "x", 0, 1, 1)]

    stored = await row(conn)
    assert (stored["status"], stored["worker_id"], stored["fence"]) == (RunStatus.ENQUEUED, None, 2)
    assert (stored["recoveries"], stored["run_attempts"]) == (1, 0)
    assert stored["run_at"] == before["run_at"]
    assert stored["status_due_at"] is not None


async def test_the_dead_are_found_as_long_as_a_run_names_them(conn: Connection) -> None:
    """R5: for ever, not once after a death. Also one whose row is gone."""
    await claimed(conn)
    await claimed(conn, "r2", "w2")
    await claimed(conn, "r3", "w3")
    assert await workers.dead_with_runs(conn, 10) == []
    await workers.mark_dead(conn, ["uid-w1"])
    await workers.stop(conn, "w3")
    await conn.execute("DELETE FROM perdure.workers WHERE id = 'w2'")

    assert await workers.dead_with_runs(conn, 10) == ["w1", "w2", "w3"]
    assert await workers.dead_with_runs(conn, 1) == ["w1"]
    moved = await workers.move(conn, ["w1", "w2", "w3"], 10)
    assert [(each.id, each.status) for each in moved] == [(f"r{n}", RunStatus.ENQUEUED) for n in (1, 2, 3)]
    assert await workers.dead_with_runs(conn, 10) == []


async def test_move_is_bounded_and_skips_what_a_zombie_still_locks(conn: Connection, pg_url: str) -> None:
    for n in range(4):
        await claimed(conn, f"r{n}")
    await workers.mark_dead(conn, ["uid-w1"])
    async with holding(pg_url, ("SELECT id FROM perdure.workflows WHERE id = 'r0' FOR NO KEY UPDATE",)):
        assert len(await workers.move(conn, ["w1"], 2)) == 2
        assert len(await workers.move(conn, ["w1"], 2)) == 1
        assert await workers.dead_with_runs(conn, 10) == ["w1"]
    assert [each.id for each in await workers.move(conn, ["w1"], 2)] == ["r0"]


async def test_a_stopped_workers_runs_move_without_counting(conn: Connection) -> None:
    """R12: a claim whose answer was lost at a clean stop."""
    await claimed(conn, max_recoveries=0)
    await workers.stop(conn, "w1")

    assert [each.status for each in await workers.move(conn, ["w1"], 10)] == [RunStatus.ENQUEUED]

    stored = await row(conn)
    assert (stored["recoveries"], stored["fence"]) == (0, 2)


async def test_claims_wakes_and_releases_count_nothing(conn: Connection) -> None:
    run = await claimed(conn, max_recoveries=0)
    for _ in range(5):
        await write(conn, run, ending=Parked(WaitingFor("x"), None))
        await conn.execute("UPDATE perdure.workflows SET status = 10, wake_seq = wake_seq + 1")
        [run] = await claim(conn)

    assert (await row(conn))["recoveries"] == 0


async def test_over_the_limit_without_progress_a_run_is_parked_for_good(conn: Connection) -> None:
    await claimed(conn, max_recoveries=2)
    await die(conn)
    await recover(conn, 2)
    assert (await row(conn))["status"] == RunStatus.ENQUEUED

    await recover(conn, 3)

    stored = await row(conn)
    assert stored["status"] == RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED
    assert stored["recoveries"] == 3
    assert stored["finished_at"] is not None
    assert await claim(conn) == []


async def test_progress_since_the_last_recovery_starts_the_count_again(conn: Connection) -> None:
    await claimed(conn, max_recoveries=1)
    await die(conn)
    for number in range(2, 6):
        await recover(conn, number, progress=number)
        stored = await row(conn)
        assert (stored["status"], stored["recoveries"]) == (RunStatus.ENQUEUED, 1)
        assert stored["recovered_at_step"] == number

    await recover(conn, 6)

    assert (await row(conn))["status"] == RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED


async def test_a_started_step_is_no_progress(conn: Connection) -> None:
    run = await claimed(conn, max_recoveries=1)
    await write(conn, run, start())
    await die(conn)

    stored = await row(conn)
    assert (stored["recoveries"], stored["recovered_at_step"]) == (1, -1)


@pytest.mark.parametrize("mode", list(CancelMode))
async def test_a_cancelled_run_of_a_dead_worker_ends(conn: Connection, mode: CancelMode) -> None:
    """Nobody is there to see the flag; and over the limit the cancel is still what it ended as."""
    await claimed(conn, max_recoveries=0)
    await runs.cancel(conn, "r1", mode, "why")

    assert [each.status for each in await die(conn)] == [RunStatus.CANCELLED]

    stored = await row(conn)
    assert stored["finished_at"] is not None
    assert stored["fence"] == 2


async def test_what_the_dead_parked_or_ended_stays(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=Parked(WaitingFor("x"), None))
    await add_run(conn, "r2")

    assert await die(conn) == []
    assert (await row(conn))["status"] == RunStatus.WAITING
