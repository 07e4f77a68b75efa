"""Waking runs for what others brought about: no wake is lost in any order, and what nobody told of is found."""

from datetime import timedelta

import pytest
from perdure.model.calls import child_key, event_key, message_key
from perdure.model.outcome import Parked, Succeeded
from perdure.model.rows import ClaimedRun, WaitingFor
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs, sweeps, wakes
from perdure.store.pool import connect
from perdure.store.wakes import Child, Event, Message

from tests.store.builders import Connection, add_run, claim, claimed, row, write
from tests.store.callbuilders import await_event, execute, one, send, set_event, start_child
from tests.support.pgwait import holding, race, waiting


def parked(*keys: str, wake_seq: int | None = None, wake_in: float | None = None) -> Parked:
    return Parked(WaitingFor("x", on=keys), wake_in, wake_seq)


T = Message("r1", "t", "k")


async def status(conn: Connection, run_id: str = "r1") -> RunStatus:
    return RunStatus((await row(conn, run_id))["status"])


async def test_a_run_that_waits_for_the_topic_is_woken_at_the_end_of_the_queue(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=parked(message_key("t"), wake_in=60.0))
    await add_run(conn, "r2")
    await conn.execute("UPDATE perdure.workflows SET run_at = run_at - interval '1 hour' WHERE id = 'r1'")

    [woken] = await wakes.announce(conn, [T], [])

    assert (woken.id, woken.namespace, woken.pool, woken.ready) == ("r1", "ns", "default", True)
    stored = await row(conn)
    assert (stored["status"], stored["fence"], stored["wake_seq"]) == (RunStatus.ENQUEUED, run.fence + 2, 1)
    assert (stored["wake_at"], stored["waiting_for"]) == (None, None)
    assert [each.id for each in await claim(conn)] == ["r2", "r1"]


@pytest.mark.parametrize("keys", [(), (message_key("other"),), (child_key("t"),)])
async def test_a_run_that_waits_for_something_else_stays_and_has_heard_of_it(
    conn: Connection, keys: tuple[str, ...]
) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=parked(*keys, wake_in=60.0))
    before = await row(conn)

    [woken] = await wakes.announce(conn, [T], [])

    stored = await row(conn)
    assert not woken.ready
    assert (stored["status"], stored["fence"]) == (RunStatus.WAITING, before["fence"])
    assert (stored["wake_seq"], stored["wake_at"], stored["waiting_for"]) == (
        1,
        before["wake_at"],
        before["waiting_for"],
    )


async def test_a_run_with_many_keys_is_woken_by_any(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=parked("*"))
    [woken] = await wakes.announce(conn, [T], [])
    assert woken.ready


async def test_a_run_that_has_ended_hears_nothing(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=Succeeded("1"))
    before = await row(conn)
    assert await wakes.announce(conn, [T, Message("nobody", "t", "k")], []) == []
    assert await row(conn) == before


async def test_a_run_told_twice_in_one_statement_is_woken_once(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=parked(message_key("t")))
    [woken] = await wakes.announce(conn, [T, Message("r1", "other", "l")], [Child("c", "r1")])
    assert (woken.ready, woken.wake_seq) == (True, 1)


async def test_a_park_behind_a_wake_becomes_claimable(conn: Connection, pg_url: str) -> None:
    """Message sent, wake on its way, park waits for the row: it decides on what the look had seen."""
    run = await claimed(conn)
    wake = ("UPDATE perdure.workflows SET wake_seq = wake_seq + 1 WHERE id = 'r1'",)
    ack = await race(pg_url, wake, write(conn, run, ending=parked(message_key("t"), wake_seq=0)))
    assert ack.ended is RunStatus.ENQUEUED


async def test_a_park_that_waits_for_time_alone_does_not_mind_a_wake(conn: Connection, pg_url: str) -> None:
    run = await claimed(conn)
    wake = ("UPDATE perdure.workflows SET wake_seq = wake_seq + 1 WHERE id = 'r1'",)
    ack = await race(pg_url, wake, write(conn, run, ending=parked(wake_seq=-1, wake_in=60.0)))
    assert ack.ended is RunStatus.WAITING


async def test_a_wake_behind_a_park_wakes(conn: Connection, pg_url: str, observer: Connection) -> None:
    run = await claimed(conn)
    async with holding(pg_url) as parking:
        await write(parking, run, ending=parked(message_key("t"), wake_seq=0))
        waking = await waiting(observer, wakes.announce(conn, [T], []))
    assert [each.ready for each in await waking] == [True]
    assert await status(conn) is RunStatus.ENQUEUED


async def test_a_park_that_has_seen_the_wake_sleeps(conn: Connection) -> None:
    run = await claimed(conn)
    await wakes.announce(conn, [T], [])
    assert (await write(conn, run, ending=parked(message_key("t"), wake_seq=1))).ended is RunStatus.WAITING


# -- what nobody told of


async def test_a_message_is_untold_until_it_is_announced_or_taken(conn: Connection) -> None:
    run = await claimed(conn)
    await execute(conn, run, send(0, 1, key="a"), send(1, 2, key="b"))
    messages, _, _ = await wakes.untold(conn, 10, 0.0)
    assert messages == [Message("r1", "t", "a"), Message("r1", "t", "b")]
    assert await wakes.untold(conn, 10, 60.0) == ([], [], [])
    await wakes.announce(conn, messages[:1], [])
    assert (await wakes.untold(conn, 10, 0.0))[0] == messages[1:]
    await conn.execute("UPDATE perdure.messages SET consumed_by = 1, announced = true")
    assert (await wakes.untold(conn, 10, 0.0))[0] == []


async def child_of(conn: Connection) -> ClaimedRun:
    run = await claimed(conn)
    await one(conn, run, start_child())
    [child] = await claim(conn)
    await write(conn, run, ending=parked(child_key("r1-0"), wake_seq=0))
    return child


async def test_an_ended_child_is_untold_however_it_ended(conn: Connection) -> None:
    child = await child_of(conn)
    assert (await wakes.untold(conn, 10, 0.0))[1] == []
    await write(conn, child, ending=Succeeded("1"))
    _, children, _ = await wakes.untold(conn, 10, 0.0)
    assert children == [Child("r1-0", "r1")]
    [woken] = await wakes.announce(conn, [], children)
    assert (woken.id, woken.ready) == ("r1", True)
    assert (await wakes.untold(conn, 10, 0.0))[1] == []


async def test_a_child_without_a_parent_is_told_of_once(conn: Connection) -> None:
    child = await child_of(conn)
    await conn.execute("DELETE FROM perdure.workflows WHERE id = 'r1'")
    await write(conn, child, ending=Succeeded("1"))
    _, children, _ = await wakes.untold(conn, 10, 0.0)
    assert await wakes.announce(conn, [], children) == []
    assert (await wakes.untold(conn, 10, 0.0))[1] == []


async def waits_for_event(conn: Connection, run_id: str) -> None:
    run = await claimed(conn, run_id)
    await one(conn, run, await_event())
    await write(conn, run, ending=parked(event_key("setter", "e"), wake_seq=0))


async def test_an_event_wakes_all_who_wait_page_by_page(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakes, "EVENT_PAGE", 2)
    for n in range(5):
        await waits_for_event(conn, f"w{n}")
    setter = await claimed(conn, "setter")
    await one(conn, setter, set_event())
    _, _, [event] = await wakes.untold(conn, 10, 0.0)
    assert event == Event("setter", "e", setter.fence, 1)

    woken = await wakes.announce_event(conn, event)

    assert sorted(each.id for each in woken if each.ready) == [f"w{n}" for n in range(5)]
    assert await conn.fetchval("SELECT count(*) FROM perdure.event_waits") == 0
    assert (await wakes.untold(conn, 10, 0.0))[2] == []


async def test_an_event_set_anew_meanwhile_stays_untold(conn: Connection) -> None:
    setter = await claimed(conn, "setter")
    await one(conn, setter, set_event(0, 1))
    _, _, [first] = await wakes.untold(conn, 10, 0.0)
    await one(conn, setter, set_event(1, 2))
    await wakes.announce_event(conn, first)
    assert (await wakes.untold(conn, 10, 0.0))[2] == [Event("setter", "e", setter.fence, 2)]


async def test_two_who_announce_the_same_do_no_harm(conn: Connection, pg_url: str, observer: Connection) -> None:
    for n in range(3):
        await waits_for_event(conn, f"w{n}")
    setter = await claimed(conn, "setter")
    await one(conn, setter, set_event())
    event = Event("setter", "e", setter.fence, 1)
    other = await connect(pg_url, application_name="other")
    try:
        async with holding(pg_url) as first:
            await wakes.announce_event(first, event)
            second = await waiting(observer, wakes.announce_event(other, event))
        assert [each.ready for each in await second] == [False] * 3
    finally:
        await other.close()
    for n in range(3):
        assert await status(conn, f"w{n}") is RunStatus.ENQUEUED


# -- cancels of parents


async def family(conn: Connection) -> ClaimedRun:
    """r1 with children r1-0 (running) and r1-1 (ready), and a grandchild r1-0-0."""
    run = await claimed(conn)
    await execute(conn, run, start_child(0, 1), start_child(1, 2))
    [child] = await claim(conn, limit=1)
    await one(conn, child, start_child(0, 1, child="r1-0-0"))
    return run


async def test_a_cancel_goes_down_level_by_level(conn: Connection) -> None:
    await family(conn)
    assert await wakes.cascade(conn, 10) == 0
    await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "why")

    assert await wakes.cascade(conn, 10) == 2
    assert (await row(conn, "r1-0"))["cancel_mode"] == CancelMode.IMMEDIATE
    assert await status(conn, "r1-0") is RunStatus.RUNNING
    assert await status(conn, "r1-1") is RunStatus.CANCELLED
    assert (await row(conn, "r1-0-0"))["cancel_mode"] is None
    assert await wakes.cascade(conn, 10) == 1
    assert await status(conn, "r1-0-0") is RunStatus.CANCELLED
    assert await wakes.cascade(conn, 10) == 0
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE cascades") == 0


async def test_a_child_that_somebody_holds_is_cancelled_later(conn: Connection, pg_url: str) -> None:
    await family(conn)
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "why")
    async with holding(pg_url, ("SELECT FROM perdure.workflows WHERE id = 'r1-0' FOR NO KEY UPDATE",)):
        assert await wakes.cascade(conn, 10) == 1
        assert (await row(conn))["cascades"]
    assert await wakes.cascade(conn, 10) == 1
    assert not (await row(conn))["cascades"]


async def test_more_children_than_one_statement_cancels_are_all_cancelled(conn: Connection) -> None:
    run = await claimed(conn)
    await execute(conn, run, *(start_child(n, n + 1) for n in range(5)))
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "why")
    assert [await wakes.cascade(conn, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE cancel_mode IS NULL") == 0


async def test_children_of_a_run_that_ended_well_go_on(conn: Connection) -> None:
    run = await family(conn)
    await write(conn, run, ending=Succeeded("1"))
    assert await wakes.cascade(conn, 10) == 0
    assert await status(conn, "r1-1") is RunStatus.ENQUEUED


async def test_a_deadline_ends_the_children_that_have_it_and_no_others(conn: Connection) -> None:
    run = await claimed(conn, timeout=timedelta(seconds=60))
    await execute(conn, run, start_child(0, 1), start_child(1, 2, timeout=3600))
    await conn.execute("UPDATE perdure.workflows SET deadline_at = now() WHERE id = 'r1'")
    assert [each.id for each in await sweeps.cancel_overdue(conn, 10)] == ["r1"]
    assert await wakes.cascade(conn, 10) == 1
    assert await status(conn, "r1-0") is RunStatus.CANCELLED
    assert await status(conn, "r1-1") is RunStatus.ENQUEUED
    assert not (await row(conn))["cascades"]
