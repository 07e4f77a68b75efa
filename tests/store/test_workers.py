from datetime import timedelta

import pytest
from perdure.model.states import CancelMode, WorkerState
from perdure.store import runs, workers
from perdure.store.pool import connect

from tests.store.builders import (
    LEASE,
    Connection,
    add_run,
    add_worker,
    claim,
    claimed,
    expire,
    let_time_pass,
    row,
    worker_row,
)
from tests.support.pgwait import eventually


async def state_of(conn: Connection, worker_id: str = "w1") -> WorkerState:
    return WorkerState(await conn.fetchval("SELECT state FROM perdure.workers WHERE id = $1", worker_id))


async def test_registered_worker_is_live_for_its_lease(conn: Connection) -> None:
    assert await workers.register(conn, worker_row(), LEASE) == []

    stored = await conn.fetchrow("SELECT *, lease_until - clock_timestamp() AS left FROM perdure.workers")
    assert stored["state"] == WorkerState.LIVE
    assert stored["left"].total_seconds() == pytest.approx(LEASE, abs=5)
    assert stored["manifest"] == ["step:s", "workflow:x"]


async def test_registering_again_changes_nothing(conn: Connection) -> None:
    """The answer was lost and the statement is resent; and a dead worker is never revived."""
    await add_worker(conn)
    await workers.mark_dead(conn, ["uid-w1"])

    assert await workers.register(conn, worker_row(), LEASE) == []

    assert await state_of(conn) is WorkerState.DEAD


async def test_a_restarted_container_proves_its_predecessor_dead(conn: Connection) -> None:
    await add_worker(conn, "old", pod_uid="same")
    await add_worker(conn, "other", pod_uid="another")

    assert await workers.register(conn, worker_row("new", pod_uid="same"), LEASE) == ["old"]

    assert await state_of(conn, "old") is WorkerState.DEAD
    assert await state_of(conn, "other") is WorkerState.LIVE
    assert await state_of(conn, "new") is WorkerState.LIVE


async def test_without_a_pod_nothing_is_proved(conn: Connection) -> None:
    await add_worker(conn, "first", pod_uid="")

    assert await workers.register(conn, worker_row("second", pod_uid=""), LEASE) == []
    assert await workers.mark_dead(conn, [""]) == []


async def test_beat_extends_the_lease_and_shows_what_is_owned(conn: Connection) -> None:
    await add_worker(conn)
    await add_run(conn, "r1")
    await add_run(conn, "r2", timeout=timedelta(hours=1))
    assert await workers.beat(conn, "w1", LEASE) == []
    await claim(conn)
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "why")
    await let_time_pass(conn, "deadline_at", 4000, "r2")
    await conn.execute("UPDATE perdure.workers SET lease_until = now() + interval '1 second'")

    owned = await workers.beat(conn, "w1", LEASE)

    assert owned is not None
    first, second = sorted(owned, key=lambda run: run.id)
    assert (first.id, first.fence, first.cancel_mode, first.deadline_passed) == ("r1", 1, CancelMode.GRACEFUL, False)
    assert (second.id, second.cancel_mode, second.deadline_passed) == ("r2", None, True)
    left = await conn.fetchval("SELECT lease_until - clock_timestamp() FROM perdure.workers")
    assert left.total_seconds() == pytest.approx(LEASE, abs=5)


async def test_a_draining_worker_beats_and_a_dead_or_stopped_one_does_not(conn: Connection) -> None:
    await add_worker(conn)
    assert await workers.drain(conn, "w1")
    assert not await workers.drain(conn, "w1")
    assert await workers.beat(conn, "w1", LEASE) == []
    assert await workers.stop(conn, "w1")
    assert not await workers.stop(conn, "w1")
    assert await workers.beat(conn, "w1", LEASE) is None
    assert await workers.beat(conn, "unknown", LEASE) is None


async def test_a_stopped_worker_is_not_marked_dead(conn: Connection) -> None:
    await add_worker(conn)
    await workers.stop(conn, "w1")
    await expire(conn, "w1")

    assert await workers.mark_expired(conn, 10) == []
    assert await workers.mark_dead(conn, ["uid-w1"]) == []
    assert await state_of(conn) is WorkerState.STOPPED


async def test_expired_leases_are_marked_a_bounded_number_at_a_time(conn: Connection) -> None:
    for n in range(5):
        await add_worker(conn, f"w{n}")
    await workers.drain(conn, "w3")
    await expire(conn, "w1", "w2", "w3")

    assert await workers.mark_expired(conn, 2) == ["w1", "w2"]
    assert await workers.mark_expired(conn, 2) == ["w3"]
    assert await workers.mark_expired(conn, 2) == []


async def test_after_a_restart_of_postgres_everybody_has_one_lease(conn: Connection) -> None:
    """The lease ran out while the database was away: nobody could beat."""
    await add_worker(conn)
    await conn.execute(
        "UPDATE perdure.workers SET beat_at = pg_postmaster_start_time() - interval '2 hours',"
        " lease_until = pg_postmaster_start_time() - interval '1 hour'"
    )

    assert await workers.mark_expired(conn, 10) == []


async def test_owned_but_unknown_runs_are_given_back_once(conn: Connection) -> None:
    """R6: the claim committed, its answer was lost."""
    run = await claimed(conn)
    other = await claimed(conn, "r2")

    assert await workers.give_back(conn, "w1", [("r1", run.fence), ("r2", other.fence + 1), ("no", 1)]) == ["r1"]
    assert await workers.give_back(conn, "w1", [("r1", run.fence)]) == []

    stored = await row(conn)
    assert (stored["status"], stored["fence"], stored["recoveries"]) == (10, 2, 0)
    assert (await row(conn, "r2"))["status"] == 30
    assert len(await claim(conn)) == 1


async def test_the_sessions_of_a_dead_worker_are_ended(conn: Connection, pg_url: str) -> None:
    worker_id = "w" * 80
    zombie = await connect(pg_url, application_name=worker_id)
    bystander = await connect(pg_url, application_name="w")

    assert await workers.terminate_backends(conn, worker_id) == 1

    async def ended() -> bool:
        return zombie.is_closed()

    await eventually(ended, "the session has ended")
    assert await bystander.fetchval("SELECT 1") == 1
    await bystander.close()


async def test_workers_that_ended_long_ago_are_forgotten_unless_a_run_names_them(conn: Connection) -> None:
    await add_worker(conn, "idle")
    await claimed(conn)
    await add_worker(conn, "young")
    await workers.mark_dead(conn, ["uid-idle", "uid-w1", "uid-young"])
    await conn.execute("UPDATE perdure.workers SET ended_at = now() - interval '2 hours' WHERE id <> 'young'")

    assert await workers.forget(conn, 3600) == 1

    assert [each["id"] for each in await conn.fetch("SELECT id FROM perdure.workers ORDER BY 1")] == ["w1", "young"]
