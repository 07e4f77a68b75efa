"""The statements of durable calls: ownership, cancels, late copies; and messages, which are taken once."""

from collections.abc import Callable

import pytest
from perdure.model.calls import Otherwise, OwnCall
from perdure.model.states import CancelMode, StepStatus
from perdure.store import calls, runs
from perdure.store.calls import RunCalls
from perdure.store.pool import connect

from tests.store.builders import Connection, add_run, claim, claimed, row, step_rows
from tests.store.callbuilders import (
    await_event,
    await_runs,
    await_stream,
    close_stream,
    everything,
    execute,
    one,
    receive,
    send,
    set_event,
    start_child,
    write_stream,
)
from tests.support.pgwait import holding, race, waiting

KINDS: dict[str, Callable[[int, int], OwnCall]] = {
    "start": start_child,
    "send": send,
    "receive": lambda index, seq: receive(index, seq, otherwise=Otherwise.NONE),
    "set event": set_event,
    "await event": await_event,
    "await runs": lambda index, seq: await_runs("r9", index=index, seq=seq),
    "write stream": write_stream,
    "close stream": close_stream,
    "await stream": await_stream,
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
