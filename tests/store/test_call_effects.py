"""What the calls do that start runs, set events and look at others."""

from datetime import timedelta
from typing import Any

from perdure.model.calls import EventValue, RunOutcome
from perdure.model.outcome import Succeeded
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import calls, runs
from perdure.store.pool import connect

from tests.store.builders import Connection, add_run, claim, claimed, row, step_rows, write
from tests.store.callbuilders import await_event, execute, one, set_event, start_child
from tests.support.pgwait import holding, waiting

# -- starts


async def test_a_child_takes_after_its_parent(conn: Connection) -> None:
    run = await claimed(conn, timeout=timedelta(hours=1), priority=7, partition_key="acme")
    assert (await one(conn, run, start_child())).output == '"done"'
    parent, child = await row(conn), await row(conn, "r1-0")
    for column in ("namespace", "pool", "queue", "priority", "partition_key", "deadline_at"):
        assert child[column] == parent[column], column
    for column in ("name", "version", "timeout", "worker_id"):
        assert child[column] is None, column
    assert (child["status"], child["parent_id"], child["parent_step"]) == (RunStatus.ENQUEUED, "r1", 0)
    assert parent["cascades"]
    [got] = await claim(conn)
    assert (got.id, got.input, got.parent_id) == ("r1-0", "[1]", "r1")
    assert got.deadline_in is not None
    assert 3500 < got.deadline_in <= 3600


async def test_options_are_instead_of_what_it_takes_after(conn: Connection) -> None:
    run = await claimed(conn, timeout=timedelta(hours=1))
    options: dict[str, Any] = {"queue": "q", "pool": "p", "priority": 3, "timeout": 5, "delay": timedelta(seconds=60)}
    await one(conn, run, start_child(partition_key="k", **options))
    child = await row(conn, "r1-0")
    assert (child["queue"], child["pool"], child["priority"], child["partition_key"]) == ("q", "p", 3, "k")
    assert (child["timeout"], child["deadline_at"]) == (timedelta(seconds=5), None)
    assert (child["status"], child["wake_at"] is not None) == (RunStatus.DELAYED, True)


async def test_a_taken_id_starts_nothing_and_records_nothing(conn: Connection) -> None:
    run = await claimed(conn)
    await add_run(conn, "taken", workflow="other")
    before = await row(conn, "taken")
    assert not (await one(conn, run, start_child(child="taken"))).done
    assert await row(conn, "taken") == before
    assert await step_rows(conn) == []


async def test_of_two_parents_that_want_one_id_the_second_waits_and_finds_it_taken(
    conn: Connection, pg_url: str
) -> None:
    first, second = await claimed(conn, "r1"), await claimed(conn, "r2")
    observer = await connect(pg_url, application_name="observer")
    try:
        async with holding(pg_url) as other:
            assert (await one(other, first, start_child(child="same"))).done
            task = await waiting(observer, one(conn, second, start_child(child="same")))
        assert not (await task).done
        assert (await row(conn, "same"))["parent_id"] == "r1"
    finally:
        await observer.close()


async def test_two_starts_of_one_id_in_one_statement_make_one_child(conn: Connection) -> None:
    run = await claimed(conn)
    answers = await execute(conn, run, start_child(0, 1, child="same"), start_child(1, 2, child="same"))
    assert answers is not None
    assert sorted(each.done for each in answers) == [False, True]


async def test_a_cancel_waits_for_a_child_that_is_being_started_and_then_reaches_it(
    conn: Connection, pg_url: str
) -> None:
    run = await claimed(conn)
    observer, canceller = [await connect(pg_url, application_name="x") for _ in range(2)]
    try:
        async with holding(pg_url) as starting:
            assert (await one(starting, run, start_child())).done
            cancelling = await waiting(observer, runs.cancel(canceller, "r1", CancelMode.GRACEFUL, "why"))
        await cancelling
        parent = await row(conn)
        assert (parent["cancel_mode"], parent["cascades"]) == (CancelMode.GRACEFUL, True)
    finally:
        await observer.close()
        await canceller.close()


# -- events


async def events(conn: Connection) -> list[tuple[str, str]]:
    return [(each["name"], each["value"]) for each in await conn.fetch("SELECT * FROM perdure.events ORDER BY name")]


async def test_an_event_has_its_latest_value_and_all_of_its_history(conn: Connection) -> None:
    run = await claimed(conn)
    await execute(conn, run, set_event(0, 1, "e", "1"), set_event(1, 2, "e", "2"), set_event(2, 3, "f", "3"))
    await one(conn, run, set_event(3, 4, "e", "4"))
    assert await events(conn) == [("e", "4"), ("f", "3")]
    history = await conn.fetch("SELECT step_index, value FROM perdure.events_history ORDER BY 1")
    assert [tuple(each) for each in history] == [(0, "1"), (1, "2"), (2, "3"), (3, "4")]


async def test_a_wait_is_written_and_an_event_is_looked_for(conn: Connection) -> None:
    run = await claimed(conn)
    await one(conn, run, await_event(0, 1, wake_in=60.0))
    await one(conn, run, await_event(0, 2, wake_in=5.0))
    [stored] = await step_rows(conn)
    assert (stored["status"], stored["name"]) == (StepStatus.WAITING, "perdure.get_event")
    left = await conn.fetchval("SELECT extract(epoch FROM wake_at - now()) FROM perdure.workflow_steps")
    assert left > 50
    waits = await conn.fetch("SELECT * FROM perdure.event_waits")
    assert [tuple(each) for each in waits] == [("setter", "e", "r1", 0)]
    assert await calls.look_at_event(conn, "r1", "setter", "e") == EventValue(None, 0)
    setter = await claimed(conn, "setter")
    await one(conn, setter, set_event(value="7"))
    assert await calls.look_at_event(conn, "r1", "setter", "e") == EventValue("7", 0)


# -- looks


async def test_how_other_runs_stand_comes_with_the_count_of_wakes(conn: Connection) -> None:
    await claimed(conn)
    done = await claimed(conn, "done")
    await write(conn, done, ending=Succeeded('"out"'))
    await conn.execute("UPDATE perdure.workflows SET wake_seq = 4 WHERE id = 'r1'")
    seen = await calls.look_at_runs(conn, "r1", ["done", "r1", "nobody"])
    assert seen.wake_seq == 4
    assert seen.runs == {
        "done": RunOutcome(RunStatus.SUCCEEDED, '"out"', workflow="x", own=False),
        "r1": RunOutcome(RunStatus.RUNNING, workflow="x", own=False),
    }
