"""Streams: values in order without gaps, written once for each call, closed once; readers page by page, and woken."""

import pytest
from perdure.model.outcome import Parked, Succeeded
from perdure.model.rows import ClaimedRun, WaitingFor
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.model.streams import StreamLook, StreamState, stream_key
from perdure.store import calls, events, runs, signals, streams, wakes
from perdure.store.calls import RunCalls
from perdure.store.events import Published
from perdure.store.streams import Page, Reader
from perdure.store.wakes import Stream

from tests.store.builders import Connection, add_run, claimed, row, start, step_rows, write
from tests.store.callbuilders import (
    await_stream,
    close_stream,
    everything,
    execute,
    one,
    set_event,
    write_stream,
)
from tests.support.pgwait import holding, waiting


async def values(conn: Connection, key: str = "s", run_id: str = "r1") -> list[str]:
    rows = await conn.fetch(
        'SELECT "offset", value FROM perdure.stream_values WHERE workflow_id = $1 AND key = $2 ORDER BY 1', run_id, key
    )
    assert [each["offset"] for each in rows] == list(range(len(rows)))
    return [each["value"] for each in rows]


# -- writing


async def test_values_have_offsets_without_gaps_in_the_order_of_the_calls(conn: Connection) -> None:
    run = await claimed(conn)
    await execute(
        conn, run, *(write_stream(n, n + 1, value=str(n)) for n in range(3)), write_stream(3, 4, "other", "x")
    )
    await execute(conn, run, write_stream(4, 5, value="3"), write_stream(5, 6, value="4"))
    assert await values(conn) == ["0", "1", "2", "3", "4"]
    assert await values(conn, "other") == ["x"]
    assert [each["name"] for each in await step_rows(conn)] == ["perdure.write_stream"] * 6
    assert {each["status"] for each in await step_rows(conn)} == {StepStatus.SUCCEEDED}


async def test_runs_that_write_in_one_statement_have_streams_of_their_own(conn: Connection) -> None:
    first, second = await claimed(conn, "r1"), await claimed(conn, "r2")
    batch = [RunCalls(run.id, run.fence, (write_stream(0, 1), write_stream(1, 2))) for run in (first, second)]
    answers = await calls.execute(conn, "w1", batch)
    assert all(answer.done for each in answers.values() for answer in each)
    assert await values(conn, run_id="r1") == await values(conn, run_id="r2") == ["1", "1"]


async def test_a_write_behind_one_in_flight_gets_the_next_offset(
    conn: Connection, pg_url: str, observer: Connection
) -> None:
    """The second has a snapshot from before the first's commit."""
    run = await claimed(conn)
    async with holding(pg_url) as first:
        await one(first, run, write_stream(0, 1, value="1"))
        second = await waiting(observer, one(conn, run, write_stream(1, 2, value="2")))
    assert (await second).done
    assert await values(conn) == ["1", "2"]


async def test_a_closed_stream_takes_nothing_and_a_second_close_is_nothing(conn: Connection) -> None:
    run = await claimed(conn)
    answers = await execute(conn, run, write_stream(0, 1), close_stream(1, 2), write_stream(2, 3), close_stream(3, 4))
    assert answers is not None
    assert [each.done for each in answers] == [True, True, False, True]
    assert await values(conn) == ["1"]
    assert [each["step_index"] for each in await step_rows(conn)] == [0, 1, 3]
    assert await conn.fetchval("SELECT closed_by FROM perdure.streams") == 1


async def test_a_stream_may_be_closed_without_a_value(conn: Connection) -> None:
    run = await claimed(conn)
    await one(conn, run, close_stream())
    assert await streams.pages(conn, [Reader("r1", "s", 0)]) == [Page((), StreamState.CLOSED)]


# -- inside a step


async def test_inside_a_step_a_value_is_written_and_no_step(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, start(0, 1))
    before = await step_rows(conn)
    first = await one(conn, run, write_stream(0, 2, plain=True))
    again = await one(conn, run, write_stream(0, 2, plain=True), again=True)
    assert (first.done, again.done) == (True, True)
    assert (await one(conn, run, write_stream(0, 3, value="2", plain=True))).done
    assert await values(conn) == ["1", "2"]
    assert await step_rows(conn) == before
    await one(conn, run, close_stream(0, 4, plain=True))
    closed = await one(conn, run, write_stream(0, 5, plain=True))
    again = await one(conn, run, write_stream(0, 5, plain=True), again=True)
    assert (closed.done, again.done) == (False, False)


async def test_inside_a_step_that_a_cancel_lets_finish_values_are_written(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, start(0, 1))
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "why")
    answer = await one(conn, run, write_stream(0, 2, plain=True))
    assert (answer.done, answer.flags.cancel_mode) == (True, CancelMode.GRACEFUL)
    assert await values(conn) == ["1"]
    refused = await one(conn, run, write_stream(1, 3))
    assert not refused.done


# -- reading


async def test_a_look_says_how_stream_and_run_stand(conn: Connection) -> None:
    reader, writer = await claimed(conn, "r1"), await claimed(conn, "writer")

    async def look(offset: int, run_id: str = "writer") -> StreamLook:
        return await streams.look(conn, reader.id, run_id, "s", offset)

    assert await look(0, "nobody") == StreamLook(None, StreamState.NO_RUN, 0, 0)
    assert await look(0) == StreamLook(None, StreamState.OPEN, 0, 0)
    await one(conn, writer, write_stream(value='"a"'))
    assert await look(0) == StreamLook('"a"', StreamState.OPEN, 1, 0)
    await write(conn, writer, ending=Succeeded("1"))
    assert await look(1) == StreamLook(None, StreamState.RUN_ENDED, 1, 0)
    await conn.execute("UPDATE perdure.workflows SET wake_seq = 4 WHERE id = 'r1'")
    assert await look(0) == StreamLook('"a"', StreamState.RUN_ENDED, 1, 4)


async def test_many_readers_get_what_is_theirs_in_one_question(conn: Connection) -> None:
    first, second = await claimed(conn, "r1"), await claimed(conn, "r2")
    await execute(conn, first, *(write_stream(n, n + 1, value=str(n)) for n in range(4)), close_stream(4, 5))
    await execute(conn, second, write_stream(0, 1, value="9"))
    wanted = [
        Reader("r1", "s", 2),
        Reader("r2", "s", 0),
        Reader("r1", "s", 4),
        Reader("r2", "t", 0),
        Reader("x", "s", 0),
    ]
    assert await streams.pages(conn, [*wanted, wanted[0]]) == [
        Page(("2", "3"), StreamState.CLOSED),
        Page(("9",), StreamState.OPEN),
        Page((), StreamState.CLOSED),
        Page((), StreamState.OPEN),
        Page((), StreamState.NO_RUN),
        Page(("2", "3"), StreamState.CLOSED),
    ]


async def test_a_page_is_bounded_and_says_that_there_is_more(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await claimed(conn)
    await execute(conn, run, *(write_stream(n, n + 1, value="123456") for n in range(5)), close_stream(5, 6))
    monkeypatch.setattr(streams, "PAGE_VALUES", 2)
    assert await streams.pages(conn, [Reader("r1", "s", 1)]) == [Page(("123456",) * 2, StreamState.OPEN)]
    monkeypatch.setattr(streams, "PAGE_CHARACTERS", 5)
    assert await streams.pages(conn, [Reader("r1", "s", 4)]) == [Page(("123456",), StreamState.CLOSED)]
    assert await streams.pages(conn, [Reader("r1", "s", 3)]) == [Page(("123456",), StreamState.OPEN)]


async def test_events_of_many_runs_are_read_in_one_question(conn: Connection) -> None:
    run = await claimed(conn)
    await execute(conn, run, set_event(0, 1, "e", "1"), set_event(1, 2, "f", "2"))
    wanted = [
        Published("r1", "f"),
        Published("r1", "g"),
        Published("r2", "e"),
        Published("r1", "e"),
        Published("r1", "f"),
    ]
    assert await events.read(conn, wanted) == ["2", None, None, "1", "2"]


# -- waking


async def waits(conn: Connection, run_id: str, offset: int = 0) -> None:
    run = await claimed(conn, run_id)
    await one(conn, run, await_stream(offset=offset))
    on = (stream_key("writer", "s"),)
    await write(conn, run, ending=Parked(WaitingFor("Stream", "s", "m", on=on), None, 0))


async def untold(conn: Connection) -> list[Stream]:
    return await wakes.untold_streams(conn, 10, 0.0)


async def test_a_value_wakes_those_who_wait_for_it_and_no_others(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakes, "PAGE", 2)
    for n in range(5):
        await waits(conn, f"w{n}")
    await waits(conn, "later", offset=1)
    writer = await claimed(conn, "writer")
    await one(conn, writer, write_stream())
    assert await untold(conn) == [Stream("writer", "s")]
    woken = await wakes.announce_streams(conn, [Stream("writer", "s")])
    assert sorted(each.id for each in woken if each.ready) == [f"w{n}" for n in range(5)]
    assert await untold(conn) == []
    assert await conn.fetchval("SELECT workflow_id FROM perdure.stream_waits") == "later"
    await one(conn, writer, close_stream(1, 2))
    assert [each.id for each in await wakes.announce_streams(conn, await untold(conn))] == ["later"]


async def test_a_wait_is_a_row_and_keeps_its_end(conn: Connection) -> None:
    run = await claimed(conn)
    await one(conn, run, await_stream(0, 1, wake_in=60.0))
    await one(conn, run, await_stream(0, 2, wake_in=5.0))
    [stored] = await step_rows(conn)
    assert (stored["status"], stored["name"]) == (StepStatus.WAITING, "perdure.read_stream")
    assert await conn.fetchval("SELECT extract(epoch FROM wake_at - now()) FROM perdure.workflow_steps") > 50
    assert [tuple(each) for each in await conn.fetch("SELECT * FROM perdure.stream_waits")] == [
        ("writer", "s", "r1", 0, 0)
    ]


async def test_what_was_written_after_the_look_stays_untold(
    conn: Connection, pg_url: str, observer: Connection
) -> None:
    await waits(conn, "w0")
    writer = await claimed(conn, "writer")
    await one(conn, writer, write_stream(0, 1))
    async with holding(pg_url, ("SELECT FROM perdure.workflows WHERE id = 'w0' FOR UPDATE",)) as holder:
        telling = await waiting(observer, wakes.announce_streams(conn, [Stream("writer", "s")]))
        await one(observer, writer, write_stream(1, 2))
        assert holder is not None
    await telling
    assert await untold(conn) == [Stream("writer", "s")]


async def test_a_stream_whose_teller_died_is_found(conn: Connection) -> None:
    await waits(conn, "w0")
    writer = await claimed(conn, "writer")
    await one(conn, writer, write_stream())
    await conn.execute("UPDATE perdure.streams SET untold_since = untold_since - interval '1 minute'")
    assert [each.id for each in await wakes.announce_untold(conn, 10)] == ["w0"]
    assert (await row(conn, "w0"))["status"] == RunStatus.ENQUEUED


# -- the end


async def test_streams_and_their_waits_go_with_their_runs(conn: Connection) -> None:
    writer = await claimed(conn, "writer")
    await execute(conn, writer, write_stream(0, 1), write_stream(1, 2), close_stream(2, 3))
    await waits(conn, "w0")
    reader: ClaimedRun = await claimed(conn, "r1")
    await one(conn, reader, await_stream())
    for run in (writer, reader):
        await write(conn, run, ending=Succeeded("1"))
    await runs.resource_gone(conn, ["writer", "r1"])
    while await runs.purge_gone(conn, 100):
        pass
    for table in ("streams", "stream_values", "stream_waits"):
        assert await conn.fetchval(f"SELECT count(*) FROM perdure.{table}") == 0, table


# -- signals


async def test_a_signal_is_for_a_run_that_may_still_take_it(conn: Connection) -> None:
    assert await signals.send(conn, "nobody", "t", "k", "1") == signals.Sent(None, has_it=False)
    run = await claimed(conn)
    for _ in range(2):
        assert await signals.send(conn, "r1", "t", "k", "1") == signals.Sent(RunStatus.RUNNING, has_it=True)
    await write(conn, run, ending=Succeeded("1"))
    assert await signals.send(conn, "r1", "t", "k", "1") == signals.Sent(RunStatus.SUCCEEDED, has_it=True)
    assert await signals.send(conn, "r1", "t", "other", "1") == signals.Sent(RunStatus.SUCCEEDED, has_it=False)
    assert await conn.fetchval("SELECT count(*) FROM perdure.messages") == 1


async def test_a_twin_of_a_signal_in_flight_is_waited_for_and_is_no_second_message(
    conn: Connection, pg_url: str, observer: Connection
) -> None:
    await add_run(conn)
    async with holding(pg_url) as twin:
        await signals.send(twin, "r1", "t", "k", "1")
        second = await waiting(observer, signals.send(conn, "r1", "t", "k", "1"))
    assert (await second).has_it
    assert await conn.fetchval("SELECT count(*) FROM perdure.messages") == 1
    assert await everything(conn)
