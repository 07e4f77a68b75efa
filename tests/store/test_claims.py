import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from perdure.model.outcome import Parked, Released
from perdure.model.rows import WaitingFor
from perdure.model.states import CancelMode, RunStatus
from perdure.store import claims, runs, sweeps, workers
from perdure.store.pool import connect

from tests.store.builders import (
    Connection,
    add_run,
    add_worker,
    claim,
    claimed,
    expire,
    finish,
    let_time_pass,
    new_run,
    row,
    start,
    step_rows,
    write,
)
from tests.support.pgwait import holding, waiting


async def test_claim_takes_the_run_and_says_what_to_execute(conn: Connection) -> None:
    await add_worker(conn)
    await runs.upsert(conn, new_run(input='{"n": 1}', definition='{"steps": []}', timeout=timedelta(hours=1)))

    [run] = await claim(conn)

    assert (run.id, run.fence, run.input, run.definition) == ("r1", 1, '{"n": 1}', '{"steps": []}')
    assert run.deadline_in == pytest.approx(3600, abs=5)
    assert run.steps == ()
    stored = await row(conn)
    assert (stored["status"], stored["worker_id"], stored["version"]) == (RunStatus.RUNNING, "w1", "v1")
    assert stored["waiting_since"] is None
    assert stored["run_attempts"] == stored["recoveries"] == 0


async def test_claim_never_takes_more_than_its_limit(conn: Connection) -> None:
    await add_worker(conn)
    for n in range(6):
        await add_run(conn, f"r{n}")

    assert len(await claim(conn, limit=1)) == 1
    assert len(await claim(conn, limit=2)) == 2
    assert len(await claim(conn, limit=10)) == 3


async def test_order_is_priority_then_place_then_id_across_versions(conn: Connection) -> None:
    """Rows bound to this version and rows bound to none are two ranges of the index, merged."""
    await add_worker(conn)
    for run_id, priority in (("a", 100), ("b", 50), ("c", 100), ("d", 10)):
        await add_run(conn, run_id, priority=priority)
    [d] = await claim(conn, limit=1)
    [b] = await claim(conn, limit=1)
    assert (d.id, b.id) == ("d", "b")
    # Given back they are bound to v1, and keep their places: d first, then b, then the unbound ones.
    await write(conn, d, ending=Released("drain"))
    await write(conn, b, ending=Released("drain"))

    assert [run.id for run in await claim(conn, limit=3)] == ["d", "b", "a"]
    assert [run.id for run in await claim(conn, limit=3)] == ["c"]


async def test_a_new_run_of_higher_priority_goes_before_bound_ones(conn: Connection) -> None:
    await add_worker(conn)
    for n in range(3):
        await add_run(conn, f"bound-{n}")
    for run in await claim(conn):
        await write(conn, run, ending=Released("drain"))
    await add_run(conn, "urgent", priority=1)

    assert [run.id for run in await claim(conn, limit=2)] == ["urgent", "bound-0"]


async def test_order_holds_across_what_runs_require(conn: Connection) -> None:
    """Each set of required names is a range of the index of its own."""
    await add_worker(conn)
    for n, requires in enumerate((("workflow:x",), ("workflow:x", "step:s"), ("step:s",), ("workflow:nobody",)) * 2):
        await add_run(conn, f"r{n}", requires=requires)

    taken = [[run.id for run in await claim(conn, limit=2)] for _ in range(4)]

    assert taken == [["r0", "r1"], ["r2", "r4"], ["r5", "r6"], []]


async def test_a_claim_with_an_old_snapshot_takes_nothing_twice(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    """It has begun, waits for its worker's row, and meanwhile the runs it saw are claimed, and one given back."""
    await add_worker(conn, "w1")
    await add_worker(conn, "w2")
    for n in range(3):
        await add_run(conn, f"r{n}")
    async with holding(pg_url, ("SELECT id FROM perdure.workers WHERE id = 'w1' FOR UPDATE",)):
        late = await waiting(observer, claim(conn, "w1"))
        first, _ = await claim(observer, "w2", limit=2)
        await write(observer, first, ending=Released("drain"), worker_id="w2")

    taken = {run.id: run.fence for run in await late}
    assert taken == {"r2": 1}
    assert (await row(conn, "r1"))["worker_id"] == "w2"


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        ({"namespace": "other"}, {}),
        ({"pool": "other"}, {}),
        ({"queue": "other"}, {}),
        ({"requires": ("workflow:x", "step:unknown")}, {}),
        ({"suspended": True}, {}),
        ({}, {"manifest": ("step:s",)}),
        ({}, {"worker_id": "nobody"}),
    ],
)
async def test_claim_leaves_what_it_may_not_run(
    conn: Connection, fields: dict[str, Any], arguments: dict[str, Any]
) -> None:
    await add_worker(conn)
    await add_run(conn, **fields)

    assert await claim(conn, **arguments) == []


async def test_only_workers_of_the_pinned_version_continue_a_run(conn: Connection) -> None:
    await add_worker(conn, "new", version="v2")
    run = await claimed(conn)
    await write(conn, run, ending=Released("drain"))

    assert await claim(conn, "new", version="v2") == []
    assert [each.id for each in await claim(conn, version="v1")] == ["r1"]


async def test_a_worker_without_a_version_pins_nothing(conn: Connection) -> None:
    await add_worker(conn, version="")
    await add_run(conn)

    [run] = await claim(conn, version="")

    assert (await row(conn))["version"] is None
    await write(conn, run, ending=Released("drain"))
    assert len(await claim(conn, version="")) == 1


@pytest.mark.parametrize("how", ["drain", "stop", "expire", "dead"])
async def test_a_worker_that_is_not_live_takes_nothing(conn: Connection, how: str) -> None:
    await add_worker(conn)
    await add_run(conn)
    match how:
        case "drain":
            await workers.drain(conn, "w1")
        case "stop":
            await workers.stop(conn, "w1")
        case "expire":
            await expire(conn, "w1")
        case _:
            await workers.mark_dead(conn, ["uid-w1"])

    assert await claim(conn) == []


async def test_suspended_run_with_a_cancel_is_claimable(conn: Connection) -> None:
    """R10: else it never ends."""
    run = await claimed(conn, generation=1)
    await runs.upsert(conn, new_run(generation=2, suspended=True))
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "why")
    await workers.give_back(conn, "w1", [(run.id, run.fence)])

    [again] = await claim(conn)

    assert (again.cancel_mode, again.suspended) == (CancelMode.GRACEFUL, True)


async def test_start_and_deadline_are_set_once(conn: Connection) -> None:
    run = await claimed(conn, timeout=timedelta(hours=1))
    first = await row(conn)
    await write(conn, run, ending=Released("drain"))
    await claim(conn)

    again = await row(conn)

    assert again["fence"] == 3
    assert (again["started_at"], again["deadline_at"]) == (first["started_at"], first["deadline_at"])


async def test_a_run_past_its_deadline_is_not_started(conn: Connection) -> None:
    run = await claimed(conn, timeout=timedelta(seconds=10))
    await write(conn, run, ending=Released("drain"))
    await let_time_pass(conn, "deadline_at", 11)

    assert await claim(conn) == []


async def test_claim_brings_recorded_steps_a_page_of_each(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "STEPS_WITH_CLAIM", 3)
    run = await claimed(conn)
    for index in range(5):
        await write(conn, run, start(index, 2 * index + 1), finish(index + 10, 2 * index + 2))
    await write(conn, run, ending=Released("drain"))

    [again] = await claim(conn)

    assert ([step.index for step in again.steps], again.more_steps) == ([0, 1, 2], True)
    rest = await claims.history(conn, "r1", 2, 100)
    assert [step.index for step in rest] == [3, 4, 10, 11, 12, 13, 14]
    assert len(await step_rows(conn)) == 10


@pytest.mark.parametrize(
    ("most", "brought"),
    [(1, [1, 1]), (9_000, [1, 1]), (22_000, [2, 2]), (82_000, [5, 5])],
    ids=["one of each", "whole ones", "half a page", "all"],
)
async def test_claim_brings_no_more_bytes_of_recorded_steps_than_it_may(
    conn: Connection, monkeypatch: pytest.MonkeyPatch, most: int, brought: list[int]
) -> None:
    monkeypatch.setattr(claims, "BYTES_WITH_CLAIM", most)
    for name in ("r1", "r2"):
        await add_run(conn, name)
    await add_worker(conn)
    for run in await claim(conn):
        for index in range(5):
            await write(conn, run, finish(index, index + 1, output=json.dumps("x" * 8_000)))
        await write(conn, run, ending=Released("drain"))

    again = await claim(conn)

    assert [len(run.steps) for run in again] == brought
    assert [run.more_steps for run in again] == [count < 5 for count in brought]
    monkeypatch.setattr(claims, "PAGE_BYTES", 1)
    assert [step.index for step in await claims.history(conn, "r1", 2, 100)] == [3]
    assert await claims.history(conn, "r1", 4, 100) == ()


async def test_time_left_of_a_retry_comes_from_the_database(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, start())
    step = finish(seq=2)
    await write(conn, run, type(step)(0, 3, "s", step.status.RETRYING, "[]", attempts=1, wake_in=100))
    parked = await write(conn, run, ending=Parked(WaitingFor("RetryBackoff"), 0.0))
    assert parked.ended is RunStatus.WAITING
    assert await sweeps.wake_due(conn, 10) == [("ns", "default")]

    [again] = await claim(conn)

    assert again.steps[0].wake_in == pytest.approx(100, abs=5)
    assert again.wake_seq == 1


async def test_seconds_ready_are_measured_by_the_database(conn: Connection) -> None:
    await add_worker(conn)
    await add_run(conn)
    await let_time_pass(conn, "waiting_since", 30)

    [run] = await claim(conn)

    assert run.ready_seconds == pytest.approx(30, abs=5)


async def test_rivals_share_a_queue_without_waiting_or_taking_twice(conn: Connection, pg_url: str) -> None:
    for name in ("w1", "w2"):
        await add_worker(conn, name)
    for n in range(8):
        await add_run(conn, f"r{n}")
    async with holding(pg_url, ("SELECT 1",)) as rival:
        first = await claim(rival, "w1", limit=4)
        second = await claim(conn, "w2", limit=8)

    assert {run.id for run in first} & {run.id for run in second} == set()
    assert len(first) + len(second) == 8


async def test_many_claimers_at_once_take_every_run_once(conn: Connection, pg_url: str) -> None:
    for n in range(60):
        await add_run(conn, f"r{n:02}")
    taken: list[str] = []

    async def take(name: str) -> None:
        session = await connect(pg_url, application_name=name)
        try:
            await add_worker(session, name)
            while found := await claim(session, name, limit=3):
                taken.extend(run.id for run in found)
        finally:
            await session.close()

    await asyncio.gather(*(take(f"w{n}") for n in range(5)))
    # A claim may come back short while others hold rows; whoever asks last gets the rest.
    await add_worker(conn, "last")
    while found := await claim(conn, "last"):
        taken.extend(run.id for run in found)

    assert sorted(taken) == [f"r{n:02}" for n in range(60)]
