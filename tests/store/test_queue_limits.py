"""Claims keep the limits of queues: exactly, whoever claims at once, and whatever becomes of what runs."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from perdure.model.outcome import Cancelled, ErrorRecord, Failed, Parked, Released, Succeeded
from perdure.model.queues import RateLimit
from perdure.model.rows import ClaimedRun, WaitingFor
from perdure.model.states import CancelMode
from perdure.store import claims, clients, queues, runs, workers
from perdure.store.clients import RunStart
from perdure.store.pool import connect

from tests.store.builders import MANIFEST, Connection, add_run, add_worker, claim, row, write
from tests.store.queuebuilders import add_runs, end, ids, limit
from tests.support.pgwait import holding, until_waiting, waiting

HOLD_QUEUE = "SELECT FROM perdure.queues FOR NO KEY UPDATE"
RUNNING = "SELECT count(*) FROM perdure.workflows WHERE status = 30"


async def test_no_more_runs_of_a_queue_run_at_once_than_its_concurrency(conn: Connection) -> None:
    await add_worker(conn, "w1")
    await add_worker(conn, "w2")
    await limit(conn, concurrency=3)
    await add_runs(conn, 6)

    first = await claim(conn, "w1", limit=2)
    second = await claim(conn, "w2", limit=4)

    assert [run.id for run in first + second] == ["r00", "r01", "r02"]
    assert await claim(conn, "w1") == []
    await end(conn, first[0])
    assert await ids(claim(conn, "w2")) == ["r03"]


async def test_the_limits_of_a_queue_hold_for_all_pools_of_its_namespace_and_for_no_other_queue(
    conn: Connection,
) -> None:
    await add_worker(conn, "w1")
    await add_worker(conn, "w2", pool="gpu")
    await add_worker(conn, "w3", namespace="other")
    await limit(conn, concurrency=1)
    await add_runs(conn, 2)
    await add_runs(conn, 2, prefix="gpu", pool="gpu")
    await add_runs(conn, 2, prefix="free", queue="free")
    await add_runs(conn, 2, prefix="other", namespace="other")

    assert await ids(claim(conn, "w1")) == ["r00"]
    assert await ids(claim(conn, "w2", pool="gpu")) == []
    assert await ids(claim(conn, "w1", queue="free")) == ["free00", "free01"]
    assert await ids(claim(conn, "w3", namespace="other")) == ["other00", "other01"]


async def give_back(conn: Connection, run: ClaimedRun) -> None:
    await workers.give_back(conn, "w1", [(run.id, run.fence)])


async def die(conn: Connection, run: ClaimedRun) -> None:
    await workers.mark_dead(conn, ["uid-w1"])
    assert len(await workers.move(conn, ["w1"], 10)) == 1


async def cancelled(conn: Connection, run: ClaimedRun) -> None:
    await runs.cancel(conn, run.id, CancelMode.IMMEDIATE, "why")
    await write(conn, run, ending=Cancelled("why"))


ENDS: dict[str, Callable[[Connection, ClaimedRun], Coroutine[Any, Any, Any]]] = {
    "succeeded": lambda conn, run: write(conn, run, ending=Succeeded("1")),
    "failed": lambda conn, run: write(conn, run, ending=Failed(ErrorRecord("E", "m"))),
    "cancelled": cancelled,
    "parked": lambda conn, run: write(conn, run, ending=Parked(WaitingFor("x"), 60.0)),
    "released": lambda conn, run: write(conn, run, ending=Released("drain")),
    "given back unknown": give_back,
    "its worker dead": die,
}


@pytest.mark.parametrize("how", ENDS)
async def test_every_end_of_an_ownership_gives_the_place_back(conn: Connection, how: str) -> None:
    """Nothing is counted on the side, so nothing can be forgotten."""
    await add_worker(conn, "w1")
    await add_worker(conn, "w2")
    await limit(conn, concurrency=1, worker_concurrency=1, partition_concurrency=1)
    await add_runs(conn, 1)
    [run] = await claim(conn)
    await add_runs(conn, 1, prefix="next", priority=1)
    assert await claim(conn, "w2") == []

    await ENDS[how](conn, run)

    assert await ids(claim(conn, "w2")) == ["next00"]


async def test_what_runs_when_a_limit_comes_counts_and_goes_on(conn: Connection) -> None:
    await add_worker(conn)
    await add_runs(conn, 6)
    taken = await claim(conn, limit=3)
    await limit(conn, concurrency=2)

    assert await claim(conn) == []
    await end(conn, *taken[:2])
    assert await ids(claim(conn)) == ["r03"]


async def test_two_claims_that_wait_for_each_other_overshoot_no_limit(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    """Both have their snapshots before either has taken anything."""
    await add_worker(conn, "w1")
    await add_worker(conn, "w2")
    await limit(conn, concurrency=3, rate=RateLimit(4, 3600))
    await add_runs(conn, 8)
    sessions = [await connect(pg_url, application_name=name, statement_timeout=0) for name in ("w1", "w2")]
    async with holding(pg_url, (HOLD_QUEUE,)):
        claiming = [
            asyncio.ensure_future(claim(session, name, limit=2))
            for session, name in zip(sessions, ("w1", "w2"), strict=True)
        ]
        await until_waiting(observer, 2)
    first, second = await asyncio.gather(*claiming)
    for session in sessions:
        await session.close()

    assert sorted(map(len, (first, second))) == [1, 2]
    tokens = await conn.fetchval("SELECT tokens FROM perdure.queues")
    assert tokens == pytest.approx(1, abs=0.1)


async def test_many_claimers_at_once_finish_everything_and_never_pass_a_limit(conn: Connection, pg_url: str) -> None:
    await limit(conn, concurrency=3, worker_concurrency=2, partition_concurrency=2)
    for n in range(60):
        await add_run(conn, f"r{n:02}", partition_key=f"p{n % 3}")
    most: list[int] = []
    each = "SELECT max(runs) FROM (SELECT count(*) AS runs FROM perdure.workflows WHERE status = 30 GROUP BY {}) x"
    counts = (RUNNING, each.format("worker_id"), each.format("partition_key"))

    async def work(name: str) -> None:
        session = await connect(pg_url, application_name=name)
        try:
            await add_worker(session, name)
            while await session.fetchval("SELECT count(*) FROM perdure.workflows WHERE status < 50"):
                taken = await claim(session, name, limit=3)
                found = [await session.fetchval(count) or 0 for count in counts]
                most.append(max(found[0] - 3, found[1] - 2, found[2] - 2))
                await end(session, *taken, worker_id=name)
        finally:
            await session.close()

    await asyncio.gather(*(work(f"w{n}") for n in range(4)))

    assert max(most) == 0


async def test_each_worker_has_at_most_its_concurrency(conn: Connection) -> None:
    await add_worker(conn, "w1")
    await add_worker(conn, "w2")
    await limit(conn, worker_concurrency=2)
    await add_runs(conn, 6)
    await add_runs(conn, 2, prefix="free", queue="free")

    assert await ids(claim(conn, "w1", queue="free")) == ["free00", "free01"]
    assert len(await claim(conn, "w1")) == 2
    assert len(await claim(conn, "w1")) == 0
    assert len(await claim(conn, "w2")) == 2


async def test_each_partition_has_at_most_its_concurrency(conn: Connection) -> None:
    await add_worker(conn)
    await limit(conn, partition_concurrency=2)
    await add_runs(conn, 3, prefix="a", partition_key="a")
    await add_runs(conn, 1, prefix="b", partition_key="b")
    await add_runs(conn, 3, prefix="none")

    taken = await claim(conn)

    assert sorted(run.id for run in taken) == ["a00", "a01", "b00", "none00", "none01"]
    assert await claim(conn) == []
    await end(conn, next(run for run in taken if run.id == "a01"))
    assert await ids(claim(conn)) == ["a02"]


async def test_a_partition_of_several_ranges_is_one_partition(conn: Connection) -> None:
    await add_worker(conn)
    await limit(conn, partition_concurrency=2, concurrency=3)
    await add_runs(conn, 2, prefix="x", partition_key="a")
    await add_runs(conn, 2, prefix="y", partition_key="a", requires=("workflow:x", "step:s"))
    for run in await claim(conn, limit=1):
        await write(conn, run, ending=Released("drain"))
    await add_runs(conn, 2, prefix="b", partition_key="b")

    assert sorted(await ids(claim(conn))) == ["b00", "x00", "x01"]


async def test_a_partition_at_its_limit_hides_no_other(conn: Connection) -> None:
    await add_worker(conn)
    await limit(conn, partition_concurrency=1)
    await add_runs(conn, 5, prefix="a", partition_key="a", priority=1)
    await claim(conn, limit=1)
    await add_runs(conn, 2, prefix="b", partition_key="b")

    assert await ids(claim(conn, limit=1)) == ["b00"]


async def test_nothing_of_a_paused_queue_is_taken(conn: Connection) -> None:
    await add_worker(conn)
    await add_runs(conn, 3)
    [run] = await claim(conn, limit=1)
    await limit(conn, paused=True)
    await write(conn, run, ending=Released("drain"))

    assert await claim(conn) == []
    await queues.pause(conn, "ns", "default", paused=False)
    assert len(await claim(conn)) == 3


async def test_once_a_pause_has_returned_no_claim_takes_anything(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    """A claim that was there first is waited for; one that had begun takes nothing after it."""
    await add_worker(conn, "w1")
    await add_worker(conn, "w2")
    await limit(conn, concurrency=5)
    await add_runs(conn, 4)
    async with holding(pg_url) as first:
        assert len(await claim(first, "w1", limit=1)) == 1
        pausing = await waiting(observer, queues.pause(conn, "ns", "default", paused=True))
        session = await connect(pg_url, application_name="late", statement_timeout=0)
        late = asyncio.ensure_future(claim(session, "w2"))
        await until_waiting(observer, 2)
    assert await pausing is not None
    assert await late == []
    await session.close()


async def test_a_queue_whose_limits_are_taken_off_has_none(conn: Connection) -> None:
    await add_worker(conn)
    await limit(conn, concurrency=1, paused=True)
    await add_runs(conn, 3)

    assert await queues.delete(conn, "ns", "default")
    assert len(await claim(conn)) == 3


async def test_beats_do_not_wait_for_a_claim_that_waits_for_its_queue(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    """Worker, queue, runs: the claim holds its worker's row while it waits, and marking it dead comes after it."""
    await add_worker(conn)
    await limit(conn, concurrency=1)
    await add_runs(conn, 2)
    session = await connect(pg_url, application_name="dead")
    await conn.execute("SET lock_timeout = 0")
    async with holding(pg_url, (HOLD_QUEUE,)):
        claiming = await waiting(observer, claim(conn))
        assert await workers.beat(observer, "w1", 60.0) is not None
        marking = asyncio.ensure_future(workers.mark_dead(session, ["uid-w1"]))
        await until_waiting(observer, 2)
    assert len(await claiming) == 1
    await marking
    await session.close()
    assert len(await workers.move(conn, ["w1"], 10)) == 1


async def test_a_queue_whose_row_somebody_holds_has_no_room_and_holds_up_no_other(
    conn: Connection, pg_url: str
) -> None:
    await add_worker(conn)
    await limit(conn, concurrency=5)
    await add_runs(conn, 2)
    await add_runs(conn, 2, prefix="free", queue="free")
    await conn.execute("SET lock_timeout = '300ms'")
    async with holding(pg_url, (HOLD_QUEUE,)):
        assert await claim(conn) == []
        assert len(await claim(conn, queue="free")) == 2
    assert len(await claim(conn)) == 2


async def test_a_claim_says_how_far_the_limits_let_it(conn: Connection) -> None:
    await add_worker(conn)
    await add_runs(conn, 9)
    scope = claims.Scope("w1", "ns", "default", "default", MANIFEST, "v1")
    ranges = list((await claims.look(conn, scope, "")).ranges.items())

    async def said(wanted: int) -> tuple[int, int | None, bool]:
        taken = await claims.take(conn, scope, ranges, wanted)
        return len(taken.runs), taken.room, taken.again_in is not None

    assert await said(1) == (1, None, False)
    await limit(conn, concurrency=4, rate=RateLimit(2, 60))
    assert await said(1) == (1, 1, False)
    assert await said(4) == (1, 2, True)
    assert await said(1) == (0, 1, True)
    taken = await claims.take(conn, scope, ranges, 4)
    assert taken.again_in == pytest.approx(30, abs=5)
    await limit(conn, concurrency=4, paused=True)
    assert await said(4) == (0, 0, False)


async def test_no_run_of_a_queue_with_limits_begins_beside_the_queue(conn: Connection) -> None:
    """Not even where nobody has heard of the limits yet."""
    await add_worker(conn)
    start = RunStart("mine", "x", "[]", "default", "default", 100)
    await limit(conn, concurrency=10)

    assert await clients.start_here(conn, "w1", "v1", "ns", start) is None
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 0
    await queues.delete(conn, "ns", "default")
    assert await clients.start_here(conn, "w1", "v1", "ns", start) is not None
    assert (await row(conn, "mine"))["status"] == 30
