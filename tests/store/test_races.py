"""Two statements on one run, each order forced: the second waits for the first and then sees what it did."""

import asyncio

import pytest
from perdure.model.outcome import Parked, Succeeded
from perdure.model.rows import WaitingFor
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import clients, journal, runs, workers
from perdure.store.clients import RunStart
from perdure.store.journal import Ack, RunWrites
from perdure.store.pool import connect
from perdure.store.statements import sql

from tests.store.builders import (
    Connection,
    add_run,
    add_worker,
    claim,
    claimed,
    expire,
    finish,
    row,
    start,
    step_rows,
    write,
)
from tests.support.pgwait import holding, race, until_waiting, waiting

PARK = Parked(WaitingFor("Message", "topic"), None)
WAKE = (
    "UPDATE perdure.workflows SET wake_seq = wake_seq + 1, status = CASE status WHEN 40 THEN 10 ELSE status END,"
    " fence = fence + (status = 40)::integer WHERE id = 'r1'"
)
RECLAIM = "UPDATE perdure.workflows SET status = 10, worker_id = NULL, fence = fence + 1 WHERE id = 'r1'"


async def test_park_after_a_wake_it_has_not_seen_becomes_claimable(conn: Connection, pg_url: str) -> None:
    """R7: the sender saw RUNNING and woke nobody; the park decides on the row."""
    run = await claimed(conn)

    ack = await race(pg_url, (WAKE,), write(conn, run, ending=PARK))

    assert ack.ended is RunStatus.ENQUEUED
    assert (await row(conn))["waiting_for"] is None


async def test_wake_after_a_park_wakes(conn: Connection, pg_url: str) -> None:
    run = await claimed(conn)
    sender = await connect(pg_url, application_name="sender")
    try:
        async with holding(pg_url) as parking:
            assert (await write(parking, run, ending=PARK)).ended is RunStatus.WAITING
            # Without a status in its WHERE the sender waits for the park.
            waking = await waiting(conn, sender.execute(WAKE))
        await waking
        assert (await row(conn))["status"] == RunStatus.ENQUEUED
    finally:
        await sender.close()


async def test_a_zombie_waiting_for_the_reclaim_writes_nothing(conn: Connection, pg_url: str) -> None:
    run = await claimed(conn)

    ack = await race(pg_url, (RECLAIM,), write(conn, run, start(), ending=Succeeded("1")))

    assert not ack.owned
    assert await step_rows(conn) == []
    assert (await row(conn))["status"] == RunStatus.ENQUEUED


async def test_settle_behind_a_cancel_is_refused(conn: Connection, pg_url: str) -> None:
    run = await claimed(conn)
    cancel = (sql("run_cancel"), ["r1"], "Immediate", "why", True)

    ack = await race(pg_url, cancel, write(conn, run, finish(), ending=Succeeded("1")))

    assert (ack.owned, ack.ended) == (True, None)
    assert ack.flags is not None
    assert ack.flags.cancel_mode is CancelMode.IMMEDIATE
    assert [each["status"] for each in await step_rows(conn)] == [StepStatus.SUCCEEDED]


async def test_cancel_behind_a_settle_changes_nothing(conn: Connection, pg_url: str) -> None:
    run = await claimed(conn)
    canceller = await connect(pg_url, application_name="canceller")
    try:
        async with holding(pg_url) as settling:
            await write(settling, run, ending=Succeeded("1"))
            cancelling = await waiting(conn, runs.cancel(canceller, "r1", CancelMode.IMMEDIATE, "why"))
        assert await cancelling is RunStatus.SUCCEEDED
        stored = await row(conn)
        assert (stored["status"], stored["cancel_mode"]) == (RunStatus.SUCCEEDED, None)
    finally:
        await canceller.close()


async def test_cancel_behind_a_park_ends_the_run(conn: Connection, pg_url: str) -> None:
    """R8: whichever comes first, the cancel is not lost."""
    run = await claimed(conn)
    canceller = await connect(pg_url, application_name="canceller")
    try:
        async with holding(pg_url) as parking:
            await write(parking, run, ending=PARK)
            cancelling = await waiting(conn, runs.cancel(canceller, "r1", CancelMode.GRACEFUL, "why"))
        assert await cancelling is RunStatus.CANCELLED
        assert (await row(conn))["fence"] == run.fence + 2
    finally:
        await canceller.close()


async def test_start_here_first_mark_dead_waits_and_the_move_finds_the_run(conn: Connection, pg_url: str) -> None:
    """R4 and R5: the start in flight holds its worker's row."""
    await add_worker(conn)
    wanted = RunStart(id="r1", workflow="x", input="[]", pool="default", queue="default", priority=100)
    operator = await connect(pg_url, application_name="operator")
    try:
        async with holding(pg_url) as starting:
            assert await clients.start_here(starting, "w1", "", "ns", wanted) is not None
            marking = await waiting(conn, workers.mark_dead(operator, ["uid-w1"]))
        assert await marking == ["w1"]
        assert [moved.id for moved in await workers.move(operator, ["w1"], 10)] == ["r1"]
    finally:
        await operator.close()


async def test_claim_first_mark_dead_waits_and_the_move_finds_the_run(conn: Connection, pg_url: str) -> None:
    """R4 and R5: the claim in flight holds its worker's row."""
    await add_worker(conn)
    await add_run(conn)
    operator = await connect(pg_url, application_name="operator")
    try:
        async with holding(pg_url) as claiming:
            assert len(await claim(claiming)) == 1
            assert await workers.mark_expired(operator, 10) == []
            marking = await waiting(conn, workers.mark_dead(operator, ["uid-w1"]))
        assert await marking == ["w1"]
        assert await workers.dead_with_runs(conn, 10) == ["w1"]
        assert [each.id for each in await workers.move(conn, ["w1"], 10)] == ["r1"]
    finally:
        await operator.close()


async def test_mark_dead_first_the_claim_waits_and_takes_nothing(conn: Connection, pg_url: str) -> None:
    await add_worker(conn)
    await add_run(conn)

    taken = await race(pg_url, (sql("worker_mark_dead"), ["uid-w1"]), claim(conn))

    assert taken == []
    assert (await row(conn))["status"] == RunStatus.ENQUEUED


async def test_a_beat_that_waits_for_its_death_learns_of_it(conn: Connection, pg_url: str) -> None:
    await add_worker(conn)

    assert await race(pg_url, (sql("worker_mark_dead"), ["uid-w1"]), workers.beat(conn, "w1", 60)) is None


async def test_a_beat_in_flight_keeps_the_worker_alive(conn: Connection, pg_url: str) -> None:
    await add_worker(conn)
    await expire(conn, "w1")
    async with holding(pg_url) as beating:
        assert await workers.beat(beating, "w1", 60) == []
        assert await workers.mark_expired(conn, 10) == []

    assert await workers.mark_expired(conn, 10) == []


async def test_claims_and_beats_do_not_wait_for_each_other(conn: Connection, pg_url: str) -> None:
    await add_worker(conn)
    await add_run(conn)
    async with holding(pg_url) as claiming:
        await claim(claiming)
        assert await workers.beat(conn, "w1", 60) == []
    async with holding(pg_url) as beating:
        await workers.beat(beating, "w1", 60)
        await add_run(conn, "r2")
        assert [run.id for run in await claim(conn)] == ["r2"]


async def test_two_reclaimers_move_each_run_once(conn: Connection, pg_url: str) -> None:
    for n in range(6):
        await claimed(conn, f"r{n}")
    await workers.mark_dead(conn, ["uid-w1"])
    async with holding(pg_url) as first:
        moved = await workers.move(first, ["w1"], 3)
        rest = await workers.move(conn, ["w1"], 10)

    assert sorted(each.id for each in (*moved, *rest)) == [f"r{n}" for n in range(6)]
    for n in range(6):
        stored = await row(conn, f"r{n}")
        assert (stored["fence"], stored["recoveries"]) == (2, 1)


async def test_a_batch_of_four_is_decided_run_by_run(conn: Connection, pg_url: str) -> None:
    """Reclaimed, woken while parking, cancelled while settling, and one that just goes on: one statement."""
    fences = {f"r{n}": (await claimed(conn, f"r{n}")).fence for n in range(1, 5)}
    batch = [
        RunWrites("r1", fences["r1"], (start(),)),
        RunWrites("r2", fences["r2"], (), PARK, wake_seq=0),
        RunWrites("r3", fences["r3"], (finish(),), Succeeded("1")),
        RunWrites("r4", fences["r4"], (finish(0, 1), start(1, 2))),
    ]

    acks: dict[str, Ack] = await race(
        pg_url,
        (RECLAIM,),
        journal.commit(conn, "w1", batch),
        (WAKE.replace("r1", "r2"),),
        (sql("run_cancel"), ["r3"], "Graceful", "why", True),
    )

    async def check() -> None:
        assert await step_rows(conn, "r1") == []
        assert (await row(conn, "r2"))["status"] == RunStatus.ENQUEUED
        assert (await row(conn, "r3"))["status"] == RunStatus.RUNNING
        assert [each["status"] for each in await step_rows(conn, "r3")] == [StepStatus.SUCCEEDED]
        assert [each["status"] for each in await step_rows(conn, "r4")] == [StepStatus.SUCCEEDED, StepStatus.RUNNING]

    assert {run_id: ack.owned for run_id, ack in acks.items()} == {"r1": False, "r2": True, "r3": True, "r4": True}
    assert {run_id: ack.ended for run_id, ack in acks.items()} == {
        "r1": None,
        "r2": RunStatus.ENQUEUED,
        "r3": None,
        "r4": None,
    }
    assert acks["r3"].flags is not None
    assert acks["r3"].flags.cancel_mode is CancelMode.GRACEFUL
    await check()
    steps = [await step_rows(conn, f"r{n}") for n in range(1, 5)]
    await journal.commit(conn, "w1", batch)
    assert [await step_rows(conn, f"r{n}") for n in range(1, 5)] == steps
    await check()


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
async def test_batches_of_the_same_runs_never_deadlock(conn: Connection, pg_url: str, order: tuple[str, str]) -> None:
    """R15: rows are locked in one sorted pass, in the mode they are written in."""
    fences = {name: (await claimed(conn, name)).fence for name in ("r1", "r2")}
    batch = [RunWrites(name, fences[name], (start(),)) for name in order]
    other = await connect(pg_url, application_name="other")
    observer = await connect(pg_url, application_name="observer")
    try:
        async with holding(pg_url, ("SELECT id FROM perdure.workflows WHERE id = 'r1' FOR NO KEY UPDATE",)):
            both = [asyncio.ensure_future(journal.commit(session, "w1", batch)) for session in (conn, other)]
            await until_waiting(observer, 2)
        for acks in await asyncio.gather(*both):
            assert all(ack.owned for ack in acks.values())
    finally:
        await other.close()
        await observer.close()
