"""Workers fire schedules on a real database: which ticks start runs, once, whoever fires them and whatever overlaps.

No test waits for a minute to pass: it moves what the row says instead.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import perdure
import pytest
from perdure.errors import NotInWorkflow
from perdure.model.schedules import run_id_of_tick
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs
from perdure.store import schedules as store
from perdure.store.firing import LIMIT, fire_due
from perdure.store.pool import connect
from perdure.telemetry import names
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import finished, working
from tests.worker.scheduleflows import EVERY_MINUTE, due, fired, registry, report, row, run_ids, schedule


@pytest.fixture
async def client(db: str) -> AsyncIterator[perdure.Client]:
    async with perdure.Client(db, "ns") as client:
        yield client


async def end(conn: Connection, run_id: str) -> None:
    assert await runs.cancel(conn, run_id, CancelMode.IMMEDIATE, "by the test") is RunStatus.CANCELLED


async def owned(conn: Connection, run_id: str) -> None:
    """As if a worker ran it."""
    await conn.execute(
        "UPDATE perdure.workflows SET status = 30, worker_id = 'w', waiting_since = NULL WHERE id = $1", run_id
    )


# -- firing


async def test_a_worker_starts_the_run_of_a_tick_and_no_operator_is_needed(
    db: str, conn: Connection, client: perdure.Client
) -> None:
    await client.schedules.create(schedule())
    async with working(db, registry) as worker:
        await due(conn)

        async def started() -> list[str]:
            return [each["id"] for each in await conn.fetch("SELECT id FROM perdure.workflows WHERE schedule = 's'")]

        [run_id, *_] = await eventually(started, "a run of the schedule")
        tick = (await row(conn))["last_tick"]
        assert await client.handle(run_id).result(20.0) == ["eu", "s", tick.isoformat(), True]
        assert run_id == run_id_of_tick("ns", "s", tick)
        assert worker.metrics.value(names.SCHEDULE_TICKS, "started") == 1


async def test_a_schedule_finds_its_workflow_by_its_name(db: str, conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(perdure.Schedule("s", EVERY_MINUTE, "s.other"))
    [run_id] = await fired(conn)
    async with working(db, registry):
        assert await finished(conn, run_id) is RunStatus.SUCCEEDED


async def test_a_run_has_the_options_of_its_start(conn: Connection, client: perdure.Client) -> None:
    start = report.options(
        queue="q", pool="p", priority=7, timeout=60, partition_key="k", attributes={"team": "a"}
    ).prepare("eu")
    await client.schedules.create(perdure.Schedule("s", EVERY_MINUTE, start))
    [run_id] = await fired(conn)
    made = await conn.fetchrow("SELECT * FROM perdure.workflows WHERE id = $1", run_id)
    assert made is not None
    assert (made["pool"], made["queue"], made["priority"], made["partition_key"]) == ("p", "q", 7, "k")
    assert (made["timeout"], made["attributes"], made["schedule"]) == (timedelta(minutes=1), '{"team": "a"}', "s")


async def test_of_two_workers_one_starts_a_tick(db: str, conn: Connection, client: perdure.Client) -> None:
    await client.schedules.apply(schedule(f"s{n}") for n in range(5))
    await due(conn, *(f"s{n}" for n in range(5)))
    others = [await connect(db, application_name="test") for _ in range(4)]
    await asyncio.gather(*(fire_due(each) for each in others))
    while (await fire_due(conn)).seen:
        pass
    assert len(await run_ids(conn)) == 5
    for each in others:
        await each.close()


async def test_what_one_worker_fires_the_others_leave_alone(db: str, conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(schedule())
    await due(conn)
    first = await connect(db, application_name="first")
    async with first.transaction():
        assert len(await store.due(first, LIMIT)) == 1
        assert (await fire_due(conn)).seen == 0
    await first.close()
    assert len((await fire_due(conn)).runs) == 1


async def test_a_worker_that_dies_over_a_tick_leaves_it_to_the_next(
    db: str, conn: Connection, client: perdure.Client
) -> None:
    await client.schedules.create(schedule())
    await due(conn)
    dying = await connect(db, application_name="dying")
    await dying.execute("BEGIN")
    [(_, now)] = await store.due(dying, LIMIT)
    await store.start(dying, [("ns", "s", run_id_of_tick("ns", "s", now))])
    dying.terminate()

    async def started() -> bool:
        return bool((await fire_due(conn)).runs)

    await eventually(started, "the next one starts it")
    assert len(await run_ids(conn)) == 1


async def test_a_tick_has_one_run_though_it_is_fired_twice(conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(schedule())
    first = await fired(conn)
    await due(conn)
    again = await fire_due(conn)
    assert [(run.id, run.created) for run in again.runs if run.id in first] == [(first[0], False)]


async def test_hundreds_of_schedules_of_one_minute_all_start(conn: Connection, client: perdure.Client) -> None:
    many = [f"s{n}" for n in range(375)]
    await client.schedules.apply(schedule(name) for name in many)
    await due(conn, *many)
    while (await fire_due(conn)).seen:
        pass
    found = await conn.fetch("SELECT DISTINCT schedule FROM perdure.workflows")
    assert {each["schedule"] for each in found} == set(many)


async def test_after_an_outage_the_latest_tick_starts_and_the_others_are_counted_as_missed(
    conn: Connection, client: perdure.Client
) -> None:
    await client.schedules.create(schedule())
    await due(conn, ticks=5)
    result = await fire_due(conn)
    assert len(result.runs) == 1
    assert result.missed in {4, 5}
    assert (await row(conn))["missed"] == result.missed


async def test_all_ticks_are_made_up_for_when_that_is_asked_for(conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(schedule(catch_up="all"))
    assert len(await fired(conn, ticks=5)) in {5, 6}
    starts = await conn.fetch("SELECT id FROM perdure.workflows ORDER BY run_at")
    assert [each["id"] for each in starts] == sorted(each["id"] for each in starts)


async def test_a_rule_that_no_process_can_read_stops_no_other_schedule(
    conn: Connection, client: perdure.Client
) -> None:
    await client.schedules.apply([schedule("bad"), schedule("good")])
    await conn.execute("UPDATE perdure.schedules SET time_zone = 'Mars/Base' WHERE name = 'bad'")
    [run_id] = await fired(conn, "bad", "good")
    assert run_id.startswith("schedule:ns/good/")
    bad = await row(conn, "bad")
    assert "Mars/Base" in bad["problem"]
    assert timedelta(seconds=30) < bad["next_at"] - datetime.now(UTC) < timedelta(minutes=2)
    assert (await client.schedules.get("bad")).next_tick is None

    await client.schedules.apply([schedule("bad")])
    assert await fired(conn, "bad")
    assert (await row(conn, "bad"))["problem"] is None


async def test_a_schedule_fires_again_after_the_database_was_away(
    db: str, conn: Connection, client: perdure.Client, pg_server: Any
) -> None:
    await client.schedules.create(schedule())
    async with working(db, registry):
        await asyncio.to_thread(pg_server.restart)
        again = await eventually(lambda: _connected(db), "the database is back")
        await due(again)

        async def started() -> bool:
            return bool(await run_ids(again))

        await eventually(started, "the schedule fires")
        await again.close()


async def _connected(db: str) -> Any:
    try:
        return await connect(db, application_name="test")
    except Exception:
        return None


async def test_a_fork_stands_for_the_tick_of_the_run_that_it_was_forked_from(
    db: str, conn: Connection, client: perdure.Client
) -> None:
    await client.schedules.create(schedule())
    [run_id] = await fired(conn)
    async with working(db, registry):
        first = await client.handle(run_id, report).result(20.0)
        forked = await client.fork(run_id, 0, report)
        assert await forked.result(20.0) == first


async def test_outside_of_a_run_there_is_no_tick() -> None:
    with pytest.raises(NotInWorkflow, match="outside a run"):
        perdure.scheduled_tick()


# -- overlap


async def test_skip_starts_nothing_while_a_run_has_not_ended(conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(schedule(overlap="skip"))
    [first] = await fired(conn)
    await conn.execute("UPDATE perdure.workflows SET id = id || '-old'")  # of an earlier tick
    assert await fired(conn) == []
    assert (await row(conn))["skipped"] >= 1
    await end(conn, f"{first}-old")
    assert len(await fired(conn)) == 1


async def test_a_run_that_was_triggered_counts_for_overlap(conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(schedule(overlap="skip"))
    await client.schedules.trigger("s")
    assert await fired(conn) == []


async def test_queue_one_starts_the_tick_when_the_run_before_it_has_ended(
    conn: Connection, client: perdure.Client
) -> None:
    await client.schedules.create(schedule(overlap="queue-one"))
    before = await client.schedules.trigger("s")
    assert await fired(conn) == []
    waiting = (await client.schedules.get("s")).queued_tick
    assert waiting is not None
    assert await fired(conn) == []
    assert (await client.schedules.get("s")).queued_tick == waiting

    await end(conn, before.id)
    [run] = (await fire_due(conn)).runs
    assert run.id == run_id_of_tick("ns", "s", waiting)
    assert (await row(conn))["queued_tick"] is None


async def test_cancel_previous_cancels_and_starts_when_that_has_ended(conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(schedule(overlap="cancel-previous"))
    before = await client.schedules.trigger("s")
    await owned(conn, before.id)
    assert await fired(conn) == []
    old = await conn.fetchrow("SELECT cancel_mode, cancel_reason FROM perdure.workflows WHERE id = $1", before.id)
    assert old is not None
    assert tuple(old) == ("Graceful", "the next tick of its schedule has come")

    await conn.execute("UPDATE perdure.workflows SET status = 70, worker_id = NULL, finished_at = now()")
    assert len((await fire_due(conn)).runs) == 1


async def test_allow_lets_runs_overlap(conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(schedule())
    await client.schedules.trigger("s")
    assert len(await fired(conn)) == 1


# -- pausing


async def test_a_paused_schedule_starts_nothing_and_its_ticks_are_not_made_up_for(
    conn: Connection, client: perdure.Client
) -> None:
    await client.schedules.create(schedule(catch_up="all"))
    await client.schedules.pause("s")
    assert (await client.schedules.get("s")).paused
    assert (await client.schedules.get("s")).next_tick is None
    assert await fired(conn, ticks=3) == []

    await client.schedules.resume("s")
    assert await fire_due(conn) is not None
    assert await run_ids(conn) == []
    assert (await client.schedules.get("s")).next_tick is not None
    assert len(await fired(conn)) == 1


async def test_to_pause_or_resume_twice_changes_nothing(conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(schedule())
    await due(conn)
    before = await row(conn)
    await client.schedules.resume("s")
    assert await row(conn) == before
    await client.schedules.pause("s")
    paused = await row(conn)
    await client.schedules.pause("s")
    assert await row(conn) == paused


async def test_a_pause_gives_up_the_tick_that_waits(conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(schedule(overlap="queue-one"))
    before = await client.schedules.trigger("s")
    await fired(conn)
    await client.schedules.pause("s")
    await client.schedules.resume("s")
    await end(conn, before.id)
    await fire_due(conn)
    assert await run_ids(conn) == [before.id]
