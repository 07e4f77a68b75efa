"""The statements of durable calls: ownership, cancels, late copies, and what each does."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from perdure.model.calls import (
    AwaitEvent,
    CallAnswer,
    EventValue,
    Otherwise,
    OwnCall,
    Receive,
    RunOutcome,
    Send,
    SetEvent,
    Start,
)
from perdure.model.outcome import Succeeded
from perdure.model.rows import ClaimedRun, StepWrite
from perdure.model.start import StartOptions
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import calls, runs
from perdure.store.calls import RunCalls
from perdure.store.pool import connect

from tests.store.builders import Connection, add_run, claim, claimed, row, step_rows, write
from tests.support.pgwait import holding, race, waiting

TABLES = ("workflows", "workflow_payloads", "workflow_steps", "messages", "events", "events_history", "event_waits")


async def everything(conn: Connection) -> list[Any]:
    return [await conn.fetch(f"SELECT * FROM perdure.{table} ORDER BY 1, 2") for table in TABLES]


def step(index: int = 0, seq: int = 1, **fields: Any) -> StepWrite:
    values: dict[str, Any] = {"name": "x", "status": StepStatus.SUCCEEDED, "input": "[]", "output": '"done"'}
    return StepWrite(index, seq, **{**values, **fields})


def start_child(index: int = 0, seq: int = 1, child: str = "", **options: Any) -> Start:
    return Start(step(index, seq), child or f"r1-{index}", "x", "workflow:x", "[1]", StartOptions(**options))


def send(index: int = 0, seq: int = 1, to: str = "r1", topic: str = "t", key: str = "", value: str = '"hi"') -> Send:
    return Send(step(index, seq), to, topic, key or f"r1/{index}", value)


def receive(
    index: int = 0,
    seq: int = 1,
    topic: str = "t",
    otherwise: Otherwise = Otherwise.NOTHING,
    wake_in: float | None = None,
) -> Receive:
    return Receive(step(index, seq, wake_in=wake_in), topic, otherwise)


def set_event(index: int = 0, seq: int = 1, event: str = "e", value: str = "1") -> SetEvent:
    return SetEvent(step(index, seq), event, value)


def await_event(index: int = 0, seq: int = 1, wake_in: float | None = None) -> AwaitEvent:
    return AwaitEvent(step(index, seq, wake_in=wake_in), "setter", "e")


async def execute(
    conn: Connection, run: ClaimedRun, *asked: OwnCall, worker_id: str = "w1", again: bool = False
) -> list[CallAnswer] | None:
    """The answers, None when the run is not this claim's."""
    answers = await calls.execute(conn, worker_id, [RunCalls(run.id, run.fence, asked, again)])
    return answers.get(run.id)


async def one(conn: Connection, run: ClaimedRun, asked: OwnCall, **fields: Any) -> CallAnswer:
    answers = await execute(conn, run, asked, **fields)
    assert answers is not None
    return answers[0]


KINDS: dict[str, Callable[[int, int], OwnCall]] = {
    "start": start_child,
    "send": send,
    "receive": lambda index, seq: receive(index, seq, otherwise=Otherwise.NONE),
    "set event": set_event,
    "await event": await_event,
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())

MOVES = {
    "to nobody": "UPDATE perdure.workflows SET status = 10, worker_id = NULL, fence = fence + 1 WHERE id = 'r1'",
    "to another worker": "UPDATE perdure.workflows SET worker_id = 'w2', fence = fence + 1 WHERE id = 'r1'",
    "to the same worker anew": "UPDATE perdure.workflows SET fence = fence + 2 WHERE id = 'r1'",
}


# -- what holds for each kind


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
@every_kind
async def test_nothing_is_done_once_the_fence_has_moved(
    conn: Connection, observer: Connection, pg_url: str, make: Callable[[int, int], OwnCall], move: str
) -> None:
    run = await claimed(conn)
    async with holding(pg_url, (move,)) as mover:
        task = await waiting(observer, execute(conn, run, make(0, 1)))
        moved = await everything(mover)
    assert await task is None
    assert await everything(observer) == moved


@every_kind
async def test_a_copy_that_comes_after_the_fence_has_moved_does_nothing(
    conn: Connection, make: Callable[[int, int], OwnCall]
) -> None:
    run = await claimed(conn)
    await conn.execute(MOVES["to the same worker anew"])
    before = await everything(conn)
    assert await execute(conn, run, make(0, 1)) is None
    assert await everything(conn) == before


@every_kind
async def test_nothing_is_done_behind_a_cancel(
    conn: Connection, pg_url: str, make: Callable[[int, int], OwnCall]
) -> None:
    run = await claimed(conn)
    cancel = ("UPDATE perdure.workflows SET cancel_mode = 'Graceful' WHERE id = 'r1'",)
    answer = await race(pg_url, cancel, one(conn, run, make(0, 1)))
    assert (answer.done, answer.flags.cancel_mode) == (False, CancelMode.GRACEFUL)
    assert await step_rows(conn) == []
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 1


@every_kind
async def test_sent_twice_it_is_done_once(conn: Connection, make: Callable[[int, int], OwnCall]) -> None:
    run = await claimed(conn)
    first = await one(conn, run, make(0, 1))
    before = await everything(conn)
    second = await one(conn, run, make(0, 1), again=True)
    assert await everything(conn) == before
    assert (second.done, second.output) == (first.done, first.output)


@every_kind
async def test_a_copy_in_flight_is_waited_for(
    conn: Connection, pg_url: str, make: Callable[[int, int], OwnCall]
) -> None:
    """The second has a snapshot from before the first's commit; the locked row tells it all the same."""
    run = await claimed(conn)
    observer = await connect(pg_url, application_name="observer")
    try:
        async with holding(pg_url) as twin:
            first = await one(twin, run, make(0, 1))
            task = await waiting(observer, one(conn, run, make(0, 1), again=True))
            done = await everything(twin)
        second = await task
        assert await everything(conn) == done
        assert (second.done, second.output) == (first.done, first.output)
    finally:
        await observer.close()


@every_kind
async def test_a_late_copy_does_nothing_behind_later_calls(
    conn: Connection, make: Callable[[int, int], OwnCall]
) -> None:
    run = await claimed(conn)
    await execute(conn, run, make(0, 1), make(1, 2))
    before = await everything(conn)
    await execute(conn, run, make(0, 1))
    assert await everything(conn) == before


@every_kind
async def test_a_final_step_stays_as_it_is(conn: Connection, make: Callable[[int, int], OwnCall]) -> None:
    run = await claimed(conn)
    await one(conn, run, set_event(0, 1, "first"))
    await one(conn, run, make(0, 2))
    [stored] = await step_rows(conn)
    assert (stored["name"], stored["seq"]) == ("perdure.set_event", 1)


@every_kind
async def test_each_call_makes_the_revision_rise(conn: Connection, make: Callable[[int, int], OwnCall]) -> None:
    """A step with a higher number may have been written before: `edits` is what rises then."""
    run = await claimed(conn)
    await one(conn, run, make(0, 1))
    assert (await row(conn))["edits"] == 1


async def test_calls_of_many_runs_and_kinds_are_answered_in_their_order(conn: Connection) -> None:
    found = [await claimed(conn, f"r{n}") for n in range(3)]
    asked = (set_event(0, 1), send(1, 2, to="r0", key="a"), send(2, 3, to="nobody"), receive(3, 4), set_event(4, 5))
    batch = [RunCalls(run.id, run.fence, asked) for run in found]
    batch.append(RunCalls("r9", 1, asked))
    answers = await calls.execute(conn, "w1", batch)
    assert {run_id: [each.done for each in each_run] for run_id, each_run in answers.items()} == {
        "r0": [True, True, False, True, True],
        "r1": [True, True, False, False, True],
        "r2": [True, True, False, False, True],
    }


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
    options = {"queue": "q", "pool": "p", "priority": 3, "timeout": 5, "delay": timedelta(seconds=60)}
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


# -- messages


async def inbox(conn: Connection, run_id: str = "r1") -> list[tuple[str, str, int | None]]:
    rows = await conn.fetch(
        "SELECT topic, value, consumed_by FROM perdure.messages WHERE workflow_id = $1 ORDER BY id", run_id
    )
    return [(each["topic"], each["value"], each["consumed_by"]) for each in rows]


async def test_messages_are_taken_in_order_by_topic_and_once(conn: Connection) -> None:
    run = await claimed(conn)
    sent = [send(n, n + 1, topic="ab"[n % 2], value=f'"{n}"') for n in range(4)]
    await execute(conn, run, *sent)
    answers = await execute(conn, run, *(receive(10 + n, 10 + n, topic) for n, topic in enumerate("aabba")))
    assert answers is not None
    assert [each.output for each in answers] == ['"0"', '"2"', '"1"', '"3"', None]
    assert [consumed for _, _, consumed in await inbox(conn)] == [10, 12, 11, 13]


async def test_a_key_that_the_receiver_has_is_sent_already(conn: Connection) -> None:
    run = await claimed(conn)
    answers = await execute(conn, run, send(0, 1, key="k", value="1"), send(1, 2, key="k", value="2"))
    assert answers is not None
    assert [each.done for each in answers] == [True, True]
    assert await inbox(conn) == [("t", "1", None)]


async def test_a_message_to_nobody_is_not_sent(conn: Connection) -> None:
    run = await claimed(conn)
    assert not (await one(conn, run, send(to="nobody"))).done
    assert await inbox(conn, "nobody") == []
    assert await step_rows(conn) == []


async def test_a_run_that_has_ended_keeps_the_message(conn: Connection) -> None:
    run = await claimed(conn)
    await add_run(conn, "ended")
    await runs.cancel(conn, "ended", CancelMode.IMMEDIATE, "why")
    assert (await one(conn, run, send(to="ended"))).done
    assert len(await inbox(conn, "ended")) == 1


@pytest.mark.parametrize("otherwise", [Otherwise.NOTHING, Otherwise.WAITING])
async def test_a_late_copy_of_a_look_that_found_nothing_takes_nothing(conn: Connection, otherwise: Otherwise) -> None:
    """R16: the receiver has been told that there is nothing, and parks."""
    run = await claimed(conn)
    looks = receive(0, 1, otherwise=otherwise)
    assert not (await one(conn, run, looks)).done
    await add_run(conn, "other")
    sender = next(each for each in await claim(conn) if each.id == "other")
    assert (await one(conn, sender, send(to="r1"))).done
    await execute(conn, run, looks)
    assert [consumed for _, _, consumed in await inbox(conn)] == [None]


async def test_an_end_that_is_recorded_stays(conn: Connection) -> None:
    run = await claimed(conn)
    await one(conn, run, receive(0, 1, otherwise=Otherwise.WAITING, wake_in=60.0))
    [first] = await step_rows(conn)
    assert (first["status"], first["name"]) == (StepStatus.WAITING, "perdure.recv")
    await one(conn, run, receive(0, 2, otherwise=Otherwise.WAITING, wake_in=5.0))
    [second] = await step_rows(conn)
    assert (second["wake_at"], second["seq"]) == (first["wake_at"], 2)
    assert (await one(conn, run, receive(0, 3, otherwise=Otherwise.NONE))).output == "null"
    [third] = await step_rows(conn)
    assert (third["status"], third["wake_at"], third["output"]) == (StepStatus.SUCCEEDED, None, "null")


async def test_the_count_of_wakes_is_that_of_the_look_and_not_of_the_lock(conn: Connection, pg_url: str) -> None:
    """A message and its wake come while the receive waits for the row: it may not have seen them, so it must not say
    that it has."""
    run = await claimed(conn)
    await add_run(conn, "other")
    async with holding(pg_url, ("UPDATE perdure.workflows SET wake_seq = wake_seq + 1 WHERE id = 'r1'",)) as waking:
        observer = await connect(pg_url, application_name="observer")
        task = await waiting(observer, one(conn, run, receive()))
        await observer.close()
        await waking.execute(
            "INSERT INTO perdure.messages (workflow_id, topic, key, value) VALUES ('r1', 't', 'k', '1')"
        )
    answer = await task
    assert (answer.done, answer.flags.wake_seq) == (False, 0)


async def test_two_receives_of_one_claim_never_take_the_same_message(conn: Connection, pg_url: str) -> None:
    """Each on its own connection, the second waiting for the first: it goes on to the next message."""
    run = await claimed(conn)
    await execute(conn, run, send(0, 1, value='"a"'), send(1, 2, value='"b"'))
    observer = await connect(pg_url, application_name="observer")
    try:
        async with holding(pg_url) as first:
            assert (await one(first, run, receive(5, 5))).output == '"a"'
            task = await waiting(observer, one(conn, run, receive(6, 6)))
        assert (await task).output == '"b"'
    finally:
        await observer.close()


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
        "done": RunOutcome(RunStatus.SUCCEEDED, '"out"'),
        "r1": RunOutcome(RunStatus.RUNNING),
    }
