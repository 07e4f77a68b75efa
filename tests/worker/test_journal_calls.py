"""Calls with an effect outside, through the journal: after what was recorded, once, and answered all the same."""

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest
from perdure.errors import EncodingFailed, OwnershipLost
from perdure.model.calls import Otherwise, OwnCall, Receive, Send, SetEvent
from perdure.model.outcome import Parked, Succeeded
from perdure.model.rows import WaitingFor
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs
from perdure.worker.link import Connection

from tests.support.journalbench import RUNNING, SUCCEEDED, Bench, CutsInFlight, bench, recorded, steal, step
from tests.support.pgwait import eventually, holding, until_waiting
from tests.support.proxy import Proxy


def send(index: int, seq: int, to: str, value: str = "1", key: str = "") -> Send:
    return Send(replace(step(index, seq, SUCCEEDED, "null"), input="[]"), to, "t", key or f"k{index}", value)


def receive(index: int, seq: int, otherwise: Otherwise = Otherwise.NOTHING) -> Receive:
    return Receive(replace(step(index, seq, SUCCEEDED), input="[]"), "t", otherwise)


def set_event(index: int, seq: int, value: str = "1") -> SetEvent:
    return SetEvent(replace(step(index, seq, SUCCEEDED, "null"), input="[]"), "e", value)


async def sent(conn: Connection) -> list[tuple[str, int | None]]:
    rows = await conn.fetch("SELECT value, consumed_by FROM perdure.messages ORDER BY id")
    return [(row["value"], row["consumed_by"]) for row in rows]


async def test_a_call_is_durable_on_return_with_everything_recorded_before_it(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.start(step(0, 1, RUNNING))
    run.record(step(0, 2, SUCCEEDED, "1"))
    answer = await run.call(send(1, 3, "r"))
    assert (answer.done, answer.flags.cancel_mode) == (True, None)
    assert await recorded(here.conn, "r") == [(0, 30, 2, "1"), (1, 30, 3, "null")]
    assert await sent(here.conn) == [("1", None)]
    assert here.heard["r"].committed == [None, None, None]


async def test_calls_made_at_once_take_effect_in_the_order_of_their_numbers(here: Bench) -> None:
    (run,) = await here.claim("r")
    made: list[OwnCall] = [send(0, 1, "r", "1"), set_event(1, 2), send(2, 3, "r", "2"), receive(3, 4), receive(4, 5)]
    answers = await asyncio.gather(*(run.call(call) for call in made))
    assert [answer.output for answer in answers] == ["null", "null", "null", "1", "2"]
    assert await sent(here.conn) == [("1", 3), ("2", 4)]


async def test_calls_of_many_runs_travel_together(here: Bench) -> None:
    journals = await here.claim(*(f"r{number}" for number in range(30)))
    answers = await asyncio.gather(*(run.call(send(0, 1, run.run_id)) for run in journals))
    assert all(answer.done for answer in answers)
    assert len(await sent(here.conn)) == 30


async def test_more_calls_than_one_statement_takes_are_all_done_in_order(here: Bench) -> None:
    run, other = await here.claim("r", "other")
    made = [send(index, index + 1, "r", str(index)) for index in range(700)]
    calls = asyncio.gather(*(run.call(call) for call in made))
    beside = await other.call(set_event(0, 1))
    assert beside.done
    assert all(answer.done for answer in await calls)
    assert await sent(here.conn) == [(str(index), None) for index in range(700)]


async def test_what_was_done_before_a_call_that_waits_for_a_lock_is_answered_as_done(here: Bench, db: str) -> None:
    """Calls of several kinds are several statements: when a later one fails, the earlier ones are committed."""
    free = await here.claim(*(f"r{number}" for number in range(6)))
    locked = await here.claim(*(f"s{number}" for number in range(6)))
    async with holding(db, ("SELECT FROM perdure.workflows WHERE id LIKE 's%' FOR UPDATE",)):
        waiting = [asyncio.ensure_future(run.call(set_event(0, 1))) for run in locked]
        answers = await asyncio.gather(*(run.call(send(0, 1, run.run_id)) for run in free))
        assert [answer.done for answer in answers] == [True] * 6
    assert all(answer.done for answer in await asyncio.gather(*waiting))
    assert len(await sent(here.conn)) == 6


async def test_a_cancel_refuses_a_call_and_is_told(here: Bench) -> None:
    (run,) = await here.claim("r")
    await runs.cancel(here.conn, "r", CancelMode.IMMEDIATE, "why")
    answer = await run.call(send(0, 1, "r"))
    assert (answer.done, answer.flags.cancel_mode) == (False, CancelMode.IMMEDIATE)
    assert await sent(here.conn) == []
    assert [flags.cancel_mode for flags in here.heard["r"].flags] == [CancelMode.IMMEDIATE]


async def test_a_call_of_a_run_that_was_taken_away_does_nothing(here: Bench) -> None:
    (run,) = await here.claim("r")
    await steal(here.conn, "r")
    with pytest.raises(OwnershipLost):
        await run.call(send(0, 1, "r"))
    assert await sent(here.conn) == []
    assert here.heard["r"].lost == 1
    with pytest.raises(OwnershipLost):
        await run.call(send(1, 2, "r"))


async def test_an_ending_overtakes_no_call_and_leaves_none_waiting(here: Bench) -> None:
    """The lane is held: call and ending go out together, and then the run has ended."""
    (run,) = await here.claim("r")
    async with holding(here.conn_url, ("SELECT FROM perdure.workflows WHERE id = 'r' FOR UPDATE",)):
        started = asyncio.ensure_future(run.start(step(0, 1, RUNNING)))
        await until_waiting(here.conn)
        call = asyncio.ensure_future(run.call(send(1, 2, "r")))
        await asyncio.sleep(0)
        ending = asyncio.ensure_future(run.end(Succeeded("1")))
        await asyncio.sleep(0)
    await started
    assert (await ending).status is RunStatus.SUCCEEDED
    with pytest.raises(OwnershipLost):
        await call
    assert await sent(here.conn) == []


async def test_a_call_that_cannot_be_stored_fails_its_own_run_only(here: Bench) -> None:
    bad, good = await here.claim("bad", "good")
    answers = await asyncio.gather(
        bad.call(send(0, 1, "good", "\x00")), good.call(send(0, 1, "good")), return_exceptions=True
    )
    assert isinstance(answers[0], EncodingFailed)
    assert "step 0 (s0)" in str(answers[0])
    assert not isinstance(answers[1], BaseException)
    assert answers[1].done
    assert here.heard["bad"].refused == 1
    assert await sent(here.conn) == [("1", None)]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_lost_answer_doubles_nothing_and_is_made_up_for(
    conn: Connection, db: str, pg_server: Any, committed: bool
) -> None:
    """Two messages are there; the receive whose answer is lost takes one of them, whichever copy of it counts."""
    async with Proxy(pg_server.port) as proxy, bench(conn, proxy.through(db), direct=db) as here:
        (run,) = await here.claim("r")
        await run.call(receive(0, 1))  # from now on it is prepared, so that all of it is sent in one go
        await asyncio.gather(run.call(send(0, 2, "r", '"a"')), run.call(send(1, 3, "r", '"b"')))
        if committed:
            proxy.hold_answers()
        else:
            proxy.hold_questions()
        call = asyncio.ensure_future(run.call(receive(2, 4)))
        if committed:

            async def taken() -> bool:
                return bool(await conn.fetchval("SELECT count(*) FROM perdure.messages WHERE consumed_by IS NOT NULL"))

            await eventually(taken, "the first copy is committed")
        proxy.cut()
        proxy.release()
        answer = await call
        assert (answer.done, answer.output) == (True, '"a"')
        assert await sent(conn) == [('"a"', 2), ('"b"', None)]
        assert (await run.call(receive(3, 5))).output == '"b"'


async def test_cut_sessions_lose_no_call_and_do_none_twice(here: Bench) -> None:
    """The bodies go on until enough of what they wrote was cut in its flight."""
    journals = await here.claim(*(f"r{number}" for number in range(5)))
    hits = CutsInFlight(here, wanted=100)

    async def live(run: Any) -> int:
        for round_number in itertools.count():
            if hits.enough:
                return round_number
            seq = 3 * round_number + 1
            await run.call(send(2 * round_number, seq, run.run_id, str(round_number)))
            run.record(replace(step(100_000, seq + 1, RUNNING), input="[]"))
            assert (await run.call(receive(2 * round_number + 1, seq + 2))).output == str(round_number)
        raise AssertionError("never ends")

    rounds, _ = await asyncio.gather(asyncio.gather(*(live(run) for run in journals)), hits.made())
    assert len(await sent(here.conn)) == sum(rounds)
    assert all(consumed is not None for _, consumed in await sent(here.conn))
    assert all(one.lost == 0 for one in here.heard.values())


async def test_a_park_that_missed_a_message_becomes_claimable(here: Bench) -> None:
    (run,) = await here.claim("r")
    answer = await run.call(receive(0, 1, Otherwise.WAITING))
    await here.conn.execute("UPDATE perdure.workflows SET wake_seq = wake_seq + 1 WHERE id = 'r'")
    settled = await run.end(Parked(WaitingFor("Message", on=("message:t",)), None, answer.flags.wake_seq))
    assert settled.status is RunStatus.ENQUEUED
