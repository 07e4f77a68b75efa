from datetime import UTC, datetime

import pytest
from perdure.model.outcome import ErrorRecord, Failed, Parked, Released, Succeeded
from perdure.model.queues import QueueLimits, RateLimit
from perdure.model.rows import WaitingFor
from perdure.model.states import CancelMode, RunStatus, WorkerState
from perdure.store import backlog, queues, runs, workers
from perdure.store.backlog import PhaseCount

from tests.store.builders import (
    MANIFEST,
    Connection,
    add_run,
    add_worker,
    claim,
    claimed,
    everything,
    let_time_pass,
    new_run,
    row,
    write,
)
from tests.support.pgwait import holding

REASON = WaitingFor("NoFreeSlot", "default", "wait or raise spec.slots")


async def one_of_each(conn: Connection) -> None:
    """In pool default: two not started (a suspended third), and of v1 one released, running, parked and delayed."""
    for name in ("ended", "released", "running", "parked", "delayed"):
        run = await claimed(conn, name, queue=name, max_run_attempts=2)
        ending = {
            "ended": Succeeded("1"),
            "released": Released("drain"),
            "parked": Parked(WaitingFor("x"), None),
            "delayed": Failed(ErrorRecord("E", "m")),
        }.get(name)
        await write(conn, run, ending=ending)
    await add_run(conn, "new-1")
    await add_run(conn, "new-2", queue="slow")
    await add_run(conn, "suspended", suspended=True)
    await add_run(conn, "elsewhere", pool="other")
    await add_run(conn, "far", namespace="other")


async def test_backlog_of_a_pool_by_version(conn: Connection) -> None:
    await one_of_each(conn)
    await let_time_pass(conn, "waiting_since", 100, "new-2")

    unbound, bound = await backlog.pool_backlog(conn, "ns", "default")

    assert (unbound.version, unbound.ready, unbound.running, unbound.waiting) == (None, 2, 0, 1)
    assert unbound.oldest_ready_seconds == pytest.approx(100, abs=5)
    assert (bound.version, bound.ready, bound.running, bound.waiting) == ("v1", 1, 1, 2)
    assert bound.oldest_ready_seconds < 50


async def test_runs_that_the_limits_of_their_queue_hold_back_need_no_worker_and_keep_their_version(
    conn: Connection,
) -> None:
    await one_of_each(conn)
    await let_time_pass(conn, "waiting_since", 100, "new-2")
    for name in ("slow", "released"):
        await queues.apply(conn, "ns", name, QueueLimits(), paused=True)
    await queues.apply(conn, "ns", "default", QueueLimits(concurrency=2), paused=False)
    for n in range(5):
        await add_run(conn, f"more-{n}")

    unbound, bound = await backlog.pool_backlog(conn, "ns", "default")

    assert (unbound.ready, unbound.running, unbound.waiting) == (2, 0, 6)
    assert unbound.oldest_ready_seconds < 50
    assert (bound.version, bound.ready, bound.running, bound.waiting) == ("v1", 0, 1, 3)
    assert bound.oldest_ready_seconds == 0
    assert [each.queue for each in await backlog.queue_depths(conn) if each.namespace == "ns"] == ["default", "default"]


async def ready_runs(conn: Connection) -> list[tuple[str | None, int, int]]:
    return [(each.version, each.ready, each.waiting) for each in await backlog.pool_backlog(conn, "ns", "default")]


async def test_of_partitions_that_run_enough_no_worker_is_wanted_for_what_waits(conn: Connection) -> None:
    for number in range(7):
        await add_run(conn, f"a-{number}", partition_key="a")
    for number in range(2):
        await add_run(conn, f"b-{number}", partition_key="b")
    await add_run(conn, "none")
    await queues.apply(conn, "ns", "default", QueueLimits(partition_concurrency=3), paused=False)
    assert await ready_runs(conn) == [(None, 3 + 2 + 1, 4)]

    await add_worker(conn, "w1")
    taken = await claim(conn, "w1", limit=2)

    busy = [run.id[0] for run in taken]
    [(_, ready, waiting), *_] = await ready_runs(conn)
    assert len(busy) == 2
    free = {"a": min(7 - busy.count("a"), 3 - busy.count("a")), "b": 2 - busy.count("b"), "n": 1 - busy.count("n")}
    assert (ready, ready + waiting) == (sum(free.values()), 8)


async def test_with_more_partitions_than_are_looked_at_their_limit_holds_none_back(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("a", "b", "c"):
        for number in range(3):
            await add_run(conn, f"{key}-{number}", partition_key=key)
    await queues.apply(conn, "ns", "default", QueueLimits(partition_concurrency=1), paused=False)
    assert await ready_runs(conn) == [(None, 3, 6)]
    monkeypatch.setattr(backlog, "PARTITION_LIMIT", 3)
    assert await ready_runs(conn) == [(None, 9, 0)]


async def test_of_a_rate_there_is_what_may_begin_until_a_new_worker_is_there(conn: Connection) -> None:
    await one_of_each(conn)
    for number in range(40):
        await add_run(conn, f"more-{number}")
    slow = RateLimit(5, 3600.0)
    await queues.apply(conn, "ns", "default", QueueLimits(rate=slow), paused=False)
    assert await ready_runs(conn) == [(None, 5 + 1, 36 + 1), ("v1", 1, 2)]

    spent = "UPDATE perdure.queues SET tokens = 0, tokens_at = clock_timestamp()"
    await conn.execute(spent)
    assert await ready_runs(conn) == [(None, 1, 41 + 1), ("v1", 1, 2)]

    await queues.apply(conn, "ns", "default", QueueLimits(rate=RateLimit(1, 10.0)), paused=False)
    await conn.execute(spent)
    [(_, ready, _), *_] = await ready_runs(conn)
    assert 3 <= ready - 1 <= 4  # within half a minute, and the one of the other queue


async def test_a_version_is_open_while_anything_of_it_is(conn: Connection) -> None:
    """Also a single suspended run keeps its version's workers wanted."""
    run = await claimed(conn, generation=1)
    await runs.upsert(conn, new_run(generation=2, suspended=True))
    await write(conn, run, ending=Released("suspended"))

    [version] = await backlog.pool_backlog(conn, "ns", "default")

    assert (version.version, version.ready, version.waiting) == ("v1", 0, 1)
    await runs.resource_gone(conn, ["r1"])
    assert await backlog.pool_backlog(conn, "ns", "default") == []


async def test_a_suspended_run_with_a_cancel_is_ready(conn: Connection) -> None:
    run = await claimed(conn, generation=1)
    await runs.upsert(conn, new_run(generation=2, suspended=True, cancel_mode=CancelMode.GRACEFUL))
    await workers.give_back(conn, "w1", [(run.id, run.fence)])

    [version] = await backlog.pool_backlog(conn, "ns", "default")

    assert (version.ready, version.waiting) == (1, 0)


async def test_counts_stop_at_their_limit(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "COUNT_LIMIT", 3)
    monkeypatch.setattr(backlog, "PHASE_COUNT_LIMIT", 3)
    for n in range(5):
        await add_run(conn, f"r{n}")

    assert [each.ready for each in await backlog.pool_backlog(conn, "ns", "default")] == [3]
    assert await backlog.phase_counts(conn) == [PhaseCount("ns", RunStatus.ENQUEUED, 3)]


async def test_phase_counts_of_every_namespace(conn: Connection) -> None:
    await one_of_each(conn)

    assert await backlog.phase_counts(conn) == [
        PhaseCount("ns", RunStatus.ENQUEUED, 5),
        PhaseCount("ns", RunStatus.DELAYED, 1),
        PhaseCount("ns", RunStatus.RUNNING, 1),
        PhaseCount("ns", RunStatus.WAITING, 1),
        PhaseCount("other", RunStatus.ENQUEUED, 1),
    ]


async def test_nothing_is_open_in_an_empty_database(conn: Connection) -> None:
    assert await backlog.pool_backlog(conn, "ns", "default") == []
    assert await backlog.phase_counts(conn) == []
    assert await backlog.live_workers(conn, "ns", "default") == []
    assert await backlog.unclaimed(conn, "ns", 10) == []


async def test_live_workers_and_what_they_know(conn: Connection) -> None:
    for name in ("dead", "draining", "live", "stopped"):
        await add_worker(conn, name)
    await add_worker(conn, "elsewhere", pool="other")
    await workers.drain(conn, "draining")
    await workers.stop(conn, "stopped")
    await workers.mark_dead(conn, ["uid-dead"])

    draining, live = await backlog.live_workers(conn, "ns", "default")

    assert (draining.id, draining.state, draining.accepts) == ("draining", WorkerState.DRAINING, False)
    assert (live.id, live.accepts, live.manifest, live.queues, live.slots) == ("live", True, MANIFEST, ("default",), 4)


async def test_unclaimed_runs_after_two_seconds(conn: Connection) -> None:
    await add_run(conn, "old", requires=("workflow:x", "step:t"), suspended=True)
    await add_run(conn, "young")
    await claimed(conn, "running", queue="q")
    await let_time_pass(conn, "waiting_since", 10, "old")

    [run] = await backlog.unclaimed(conn, "ns", 10)

    assert (run.id, run.fence, run.name, run.pool, run.queue) == ("old", 0, "name-old", "default", "default")
    assert (run.requires, run.version, run.suspended, run.waiting_for) == (
        ("workflow:x", "step:t"),
        None,
        True,
        None,
    )


async def test_runs_without_a_reason_come_first_and_the_others_in_turn(conn: Connection) -> None:
    for n in range(8):
        await add_run(conn, f"r{n}")
        await let_time_pass(conn, "waiting_since", 100 - n, f"r{n}")
    await backlog.set_waiting(conn, [(f"r{n}", 0, REASON) for n in range(4)])

    first = await backlog.unclaimed(conn, "ns", 4, round_from="r2")
    assert [run.id for run in first] == ["r4", "r5", "r6", "r2"]
    everyone = await backlog.unclaimed(conn, "ns", 20, round_from="r2")
    assert [run.id for run in everyone] == ["r4", "r5", "r6", "r7", "r2", "r3", "r0", "r1"]
    assert {run.id for run in await backlog.unclaimed(conn, "ns", 20)} == {f"r{n}" for n in range(8)}


async def test_a_reason_is_written_once(conn: Connection) -> None:
    await add_run(conn)
    await conn.execute("UPDATE perdure.workflows SET status_due_at = NULL")

    assert await backlog.set_waiting(conn, [("r1", 0, REASON)]) == ["r1"]
    stored = await row(conn)
    assert (stored["edits"], stored["fence"]) == (1, 0)
    assert stored["status_due_at"] is not None
    before = await everything(conn)
    assert await backlog.set_waiting(conn, [("r1", 0, REASON)]) == []
    assert await everything(conn) == before

    await let_time_pass(conn, "waiting_since", 10)
    [run] = await backlog.unclaimed(conn, "ns", 10)
    assert run.waiting_for == REASON
    assert await backlog.set_waiting(conn, [("r1", 0, None)]) == ["r1"]
    assert (await row(conn))["waiting_for"] is None


async def test_a_reason_keeps_its_instant(conn: Connection) -> None:
    await add_run(conn)
    until = WaitingFor("Later", until=datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC))
    await backlog.set_waiting(conn, [("r1", 0, until)])
    await let_time_pass(conn, "waiting_since", 10)

    assert (await backlog.unclaimed(conn, "ns", 10))[0].waiting_for == until


async def test_a_reason_is_not_written_over_a_claim(conn: Connection, pg_url: str) -> None:
    await add_run(conn)
    await add_worker(conn)
    async with holding(pg_url) as claiming:
        assert len(await claim(claiming)) == 1
        # Not even waited for: whoever claims it makes the reason wrong.
        assert await backlog.set_waiting(conn, [("r1", 0, REASON)]) == []
    assert await backlog.set_waiting(conn, [("r1", 0, REASON), ("r1", 1, REASON), ("unknown", 0, None)]) == []
    assert (await row(conn))["waiting_for"] is None
