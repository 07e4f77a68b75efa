"""Bulk start, and what a waiting client asks: on rows, under races, twice."""

import asyncio
import dataclasses
import json
from typing import Any

import pytest
from perdure.model.outcome import Cancelled, Ending, ErrorRecord, Failed, Parked, Released, Succeeded
from perdure.model.rows import WaitingFor
from perdure.model.states import CancelMode, RunStatus
from perdure.store import clients, runs, sweeps
from perdure.store.clients import ExistingRun, RunStart
from perdure.store.listen import EndedListener, notify_ended

from tests.store.builders import Connection, add_worker, claim, claimed, everything, let_time_pass, row, write
from tests.support.pgwait import holding, race

EVERYTHING = 1 << 20


def run_start(run_id: str = "r1", **fields: Any) -> RunStart:
    values: dict[str, Any] = {
        "workflow": "x",
        "input": "[1]",
        "pool": "default",
        "queue": "default",
        "priority": 100,
    }
    return RunStart(id=run_id, **{**values, **fields})


async def start(conn: Connection, *starts: RunStart, awaited: bool = False) -> set[str]:
    return await clients.start(conn, "ns", starts, awaited=awaited)


async def watch(conn: Connection, *ids: str, arm: bool = False) -> dict[str, clients.RunSight]:
    return await clients.watch(conn, ids, ids if arm else [], most_bytes=EVERYTHING)


# -- start here


async def start_here(conn: Connection, wanted: RunStart, worker_id: str = "w1", version: str = "") -> Any:
    return await clients.start_here(conn, worker_id, version, "ns", wanted)


CHANGES_WITH_TIME = {"run_at", "deadline_at", "created_at", "started_at", "status_due_at"}


async def test_a_run_started_here_is_as_one_that_was_started_and_claimed(conn: Connection) -> None:
    await add_worker(conn, version="v1")
    await start(conn, run_start("r1", timeout=60.0, priority=7))
    [claimed_run] = await claim(conn, version="v1")
    made = await start_here(conn, run_start("r2", timeout=60.0, priority=7), version="v1")

    assert dataclasses.replace(made, id="r1", deadline_in=claimed_run.deadline_in, ready_seconds=0.0) == (
        dataclasses.replace(claimed_run, ready_seconds=0.0)
    )
    first, second = dict(await row(conn, "r1")), dict(await row(conn, "r2"))
    differ = {key for key in first if first[key] != second[key]}
    assert differ <= {"id", *CHANGES_WITH_TIME}
    assert second["deadline_at"] > second["started_at"]
    # The operator writes no status of it: it has no resource.
    assert second["status_due_at"] is None
    payload = "SELECT input, definition, output, error FROM perdure.workflow_payloads WHERE workflow_id = $1"
    assert await conn.fetchrow(payload, "r1") == await conn.fetchrow(payload, "r2")


async def test_a_run_is_not_started_here_under_an_id_that_is_taken(conn: Connection) -> None:
    await add_worker(conn)
    await start(conn, run_start())
    before = await everything(conn)
    assert await start_here(conn, run_start(input="[2]")) is None
    assert await everything(conn) == before


@pytest.mark.parametrize(
    "ended",
    [
        "UPDATE perdure.workers SET lease_until = clock_timestamp() - interval '1 second'",
        "UPDATE perdure.workers SET state = 20",
        "UPDATE perdure.workers SET state = 40, ended_at = now()",
        "UPDATE perdure.workers SET retired = true",
        "DELETE FROM perdure.workers",
    ],
)
async def test_a_worker_that_takes_no_runs_starts_none(conn: Connection, ended: str) -> None:
    await add_worker(conn)
    await conn.execute(ended)
    assert await start_here(conn, run_start()) is None
    assert await everything(conn) == [[], [], []]


# -- start


async def test_a_started_run_can_be_claimed_with_what_it_was_started_with(conn: Connection) -> None:
    wanted = run_start(priority=7, timeout=60.0, partition_key="tenant", queue="q")
    assert await start(conn, wanted) == {"r1"}

    await add_worker(conn)
    [run] = await claim(conn, queue="q")
    assert (run.id, run.workflow, run.input, run.name, run.namespace) == ("r1", "x", "[1]", None, "ns")
    assert run.deadline_in is not None
    assert 50 < run.deadline_in <= 60
    found = await row(conn)
    assert (found["priority"], found["partition_key"], found["awaited"]) == (7, "tenant", False)
    assert found["requires"] == ["workflow:x"]


async def test_an_id_that_is_taken_is_left_as_it_is(conn: Connection) -> None:
    await start(conn, run_start())
    before = await everything(conn)

    assert await start(conn, run_start(workflow="other", input="[2]"), awaited=True) == set()

    assert await everything(conn) == before


async def test_of_a_list_those_are_created_whose_ids_are_free(conn: Connection) -> None:
    await start(conn, run_start("b"))
    assert await start(conn, run_start("c"), run_start("b"), run_start("a")) == {"a", "c"}
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflow_payloads") == 3


async def test_what_an_earlier_run_of_the_id_left_behind_is_not_taken_for_this_one(conn: Connection) -> None:
    await conn.execute("INSERT INTO perdure.workflow_payloads VALUES ('r1', '[9]', '{}', '1', '{}')")
    assert await start(conn, run_start()) == {"r1"}
    found = await conn.fetchrow("SELECT input, definition, output, error FROM perdure.workflow_payloads")
    assert tuple(found or ()) == ("[1]", None, None, None)


async def test_runs_of_one_list_are_claimed_in_its_order(conn: Connection) -> None:
    order = [f"{number * 7919 % 100:03}" for number in range(100)]
    await start(conn, *map(run_start, order))

    await add_worker(conn)
    assert [run.id for run in await claim(conn, limit=100)] == order


async def test_a_delayed_run_becomes_claimable_when_its_time_comes(conn: Connection) -> None:
    await start(conn, run_start(delay=60.0))
    found = await row(conn)
    assert RunStatus(found["status"]) is RunStatus.DELAYED
    assert json.loads(found["waiting_for"])["kind"] == "StartDelayed"
    await add_worker(conn)
    assert await claim(conn) == []
    await sweeps.wake_due(conn, 10)
    assert await claim(conn) == []

    await let_time_pass(conn, "wake_at", 60.0)
    await sweeps.wake_due(conn, 10)

    assert [run.id for run in await claim(conn)] == ["r1"]


async def test_a_delayed_run_can_be_cancelled(conn: Connection) -> None:
    await start(conn, run_start(delay=60.0))
    assert await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "no") is RunStatus.CANCELLED


async def test_two_starts_of_one_id_at_once_create_one_run(conn: Connection, pg_url: str) -> None:
    """The second waits for the first to commit and then finds it there; so does a bulk start in another order."""
    insert = (
        "INSERT INTO perdure.workflows (id, namespace, workflow, requires, pool, queue, priority, status)"
        " VALUES ('r2', 'ns', 'x', '{workflow:x}', 'default', 'default', 100, 10)"
    )
    created = await race(pg_url, (insert,), start(conn, run_start("r3"), run_start("r2"), run_start("r1")))
    assert created == {"r1", "r3"}


async def test_what_an_id_belongs_to_is_seen_with_its_input(conn: Connection) -> None:
    await start(conn, run_start())
    found = await clients.existing(conn, ["r1", "nobody"])
    assert found == {"r1": ExistingRun("r1", "ns", "x", "[1]")}


# -- watch


async def test_how_runs_stand_is_told_for_those_that_exist(conn: Connection) -> None:
    run = await claimed(conn, "b")
    await write(conn, run, ending=Succeeded('"done"'))
    await start(conn, run_start("a"))

    seen = await watch(conn, "a", "b", "nobody")

    assert set(seen) == {"a", "b"}
    assert (seen["a"].status, seen["a"].output, seen["a"].complete) == (RunStatus.ENQUEUED, None, True)
    assert (seen["b"].status, seen["b"].output, seen["b"].workflow) == (RunStatus.SUCCEEDED, '"done"', "x")


async def test_a_large_outcome_is_left_out_and_said_to_be(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=Succeeded('"0123456789"'))

    [short] = (await clients.watch(conn, ["r1"], [], most_bytes=11)).values()
    [whole] = (await clients.watch(conn, ["r1"], [], most_bytes=12)).values()

    assert (short.output, short.complete) == (None, False)
    assert (whole.output, whole.complete) == ('"0123456789"', True)


async def test_the_reason_of_a_cancel_and_an_error_come_along(conn: Connection) -> None:
    await start(conn, run_start("a"))
    await runs.cancel(conn, "a", CancelMode.IMMEDIATE, "not wanted")
    run = await claimed(conn, "b", max_run_attempts=1)
    await write(conn, run, ending=Failed(ErrorRecord("ValueError", "no")))

    seen = await watch(conn, "a", "b")

    assert seen["a"].cancel_reason == "not wanted"
    assert json.loads(seen["b"].error or "")["message"] == "no"


# -- ask to be told


ENDINGS: dict[str, Ending] = {
    "succeeded": Succeeded("1"),
    "failed": Failed(ErrorRecord("E", "m")),
    "cancelled": Cancelled("why"),
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
async def test_the_statement_that_ends_an_awaited_run_says_so(conn: Connection, ending: Ending) -> None:
    run = await claimed(conn, max_run_attempts=1)
    assert (await watch(conn, "r1", arm=True))["r1"].armed

    assert (await write(conn, run, ending=ending)).awaited is True


async def test_nothing_is_said_of_a_run_that_nobody_awaits_or_that_goes_on(conn: Connection) -> None:
    alone = await claimed(conn, "alone")
    assert not (await write(conn, alone, ending=Succeeded("1"))).awaited
    for ending in (Released("drain"), Parked(WaitingFor("x"), 60.0)):
        await conn.execute("DELETE FROM perdure.workflows WHERE id = 'r1'")
        await conn.execute("DELETE FROM perdure.workflow_payloads WHERE workflow_id = 'r1'")
        run = await claimed(conn, "r1")
        await watch(conn, "r1", arm=True)
        assert not (await write(conn, run, ending=ending)).awaited


async def test_a_run_started_by_who_waits_for_it_is_marked_from_the_beginning(conn: Connection) -> None:
    await start(conn, run_start(), awaited=True)
    await add_worker(conn)
    [run] = await claim(conn)
    assert (await write(conn, run, ending=Succeeded("1"))).awaited is True


async def test_a_run_that_has_ended_is_not_marked(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=Succeeded("1"))
    before = await everything(conn)

    assert not (await watch(conn, "r1", arm=True))["r1"].armed

    assert await everything(conn) == before


async def test_a_mark_changes_nothing_that_others_look_at(conn: Connection) -> None:
    await start(conn, run_start())
    before = dict(await row(conn))
    await watch(conn, "r1", arm=True)
    assert dict(await row(conn)) == {**before, "awaited": True}


async def test_a_locked_run_is_read_but_not_waited_for_nor_marked(conn: Connection, pg_url: str) -> None:
    await start(conn, run_start("a"), run_start("b"))
    async with holding(pg_url, ("SELECT FROM perdure.workflows WHERE id = 'a' FOR NO KEY UPDATE",)):
        seen = await watch(conn, "a", "b", arm=True)
    assert {run_id: (sight.status, sight.armed) for run_id, sight in seen.items()} == {
        "a": (RunStatus.ENQUEUED, False),
        "b": (RunStatus.ENQUEUED, True),
    }


async def test_a_run_that_ends_beside_the_mark_is_either_marked_before_or_seen_as_ended_by_the_next_look(
    conn: Connection, pg_url: str
) -> None:
    """The order that could lose the news: the look is older than the end, and the mark comes too late for it."""
    run = await claimed(conn)
    async with holding(pg_url) as worker:
        await write(worker, run, ending=Succeeded("1"))
        sight = (await watch(conn, "r1", arm=True))["r1"]
        assert (sight.status, sight.armed) == (RunStatus.RUNNING, False)
    assert (await watch(conn, "r1", arm=True))["r1"].status is RunStatus.SUCCEEDED


async def test_marking_waits_for_no_disk(conn: Connection) -> None:
    """And the setting for it ends with the statement."""
    await start(conn, run_start())
    await watch(conn, "r1", arm=True)
    assert await conn.fetchval("SHOW synchronous_commit") == "on"


# -- being told


async def test_ends_are_told_in_as_few_notifications_as_they_fit(conn: Connection, pg_url: str) -> None:
    told: asyncio.Queue[list[str]] = asyncio.Queue()
    listening = asyncio.Event()
    listener = EndedListener(pg_url, told.put_nowait, listening.set, application_name="ear", on_lost=lambda _: None)
    task = asyncio.create_task(listener.run())
    await listening.wait()
    ids = [f"{number:036}" for number in range(500)]

    await notify_ended(conn, [*ids, "x" * 8000])
    await notify_ended(conn, ["straße"])

    heard = [await told.get() for _ in range(4)]
    assert [len(each) for each in heard] == [213, 213, 74, 1]
    assert [run_id for each in heard for run_id in each] == [*ids, "straße"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
