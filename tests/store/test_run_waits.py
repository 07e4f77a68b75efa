"""Waits for the ends of runs that somebody else has started: however a run ends, whoever waits for it is woken, also
when nobody lives to tell; and a wait is forgotten only by who has told of its end."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from perdure.model.calls import child_key
from perdure.model.outcome import Cancelled, ErrorRecord, Failed, Mismatch, Parked, Succeeded
from perdure.model.rows import ClaimedRun, WaitingFor
from perdure.model.states import CancelMode, RunStatus
from perdure.store import calls, retention, runs, sweeps, wakes, workers
from perdure.store.retention import Place

from tests.store.builders import Connection, add_run, add_worker, claim, claimed, expire, new_run, row, write
from tests.store.callbuilders import await_runs, execute, one, start_child
from tests.support.pgwait import holding, race

ERROR = ErrorRecord("E", "m")


async def waiting_run(conn: Connection, run_id: str = "waiter") -> ClaimedRun:
    """A run of a worker and a queue of its own."""
    if not await conn.fetchval("SELECT count(*) FROM perdure.workers WHERE id = 'w9'"):
        await add_worker(conn, "w9", queues=("waiters",))
    return await claimed(conn, run_id, "w9", queue="waiters")


async def waits_for(conn: Connection, *awaited: str, run_id: str = "waiter") -> ClaimedRun:
    """A run that has said that it waits for these, has looked once more and is parked."""
    run = await waiting_run(conn, run_id)
    await one(conn, run, await_runs(*awaited), worker_id="w9")
    seen = await calls.statuses_of(conn, run.id, awaited)
    keys = tuple(child_key(each) for each in awaited)
    ending = Parked(WaitingFor("Child", on=keys), None, seen.wake_seq)
    assert (await write(conn, run, ending=ending, worker_id="w9")).ended is RunStatus.WAITING
    return run


async def status(conn: Connection, run_id: str = "waiter") -> RunStatus:
    return RunStatus((await row(conn, run_id))["status"])


async def waits(conn: Connection) -> list[tuple[str, str]]:
    rows = await conn.fetch("SELECT run_id, workflow_id FROM perdure.run_waits ORDER BY 1, 2")
    return [tuple(each) for each in rows]


async def a_minute_later(conn: Connection) -> None:
    await conn.execute("UPDATE perdure.workflows SET finished_at = finished_at - interval '1 minute'")


async def sweep(conn: Connection, page: int = 2) -> list[str]:
    """Every page once; who was woken and goes on."""
    woken: list[str] = []
    behind = ""
    while True:
        found, behind = await wakes.announce_ended(conn, behind, page)
        woken += [each.id for each in found if each.ready]
        if not behind:
            return sorted(woken)


# -- every way in which a run ends


def owned(**fields: Any) -> Callable[[Connection], Awaitable[Any]]:
    return lambda conn: claimed(conn, **fields)


async def unowned(conn: Connection) -> None:
    await add_run(conn)


async def past_its_deadline(conn: Connection) -> None:
    await claimed(conn, timeout=timedelta(seconds=60))
    await conn.execute(
        "UPDATE perdure.workflows SET status = 10, worker_id = NULL, fence = fence + 1, deadline_at = now()"
        " WHERE id = 'r1'"
    )


async def child(conn: Connection) -> None:
    await one(conn, await claimed(conn, "parent"), start_child(child="r1"))


async def cancel_owned(conn: Connection, run: ClaimedRun) -> None:
    await runs.cancel(conn, run.id, CancelMode.GRACEFUL, "why")
    await write(conn, run, ending=Cancelled("why"))


async def cancel_unowned(conn: Connection, _: object) -> None:
    assert await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "why") is RunStatus.CANCELLED


async def cancel_by_resource(conn: Connection, _: object) -> None:
    await runs.upsert(conn, new_run(cancel_mode=CancelMode.GRACEFUL, generation=2))


async def lose_resource(conn: Connection, _: object) -> None:
    await runs.resource_gone(conn, ["r1"])


async def remove(conn: Connection, _: object) -> None:
    await runs.resource_gone(conn, ["r1"])
    await runs.purge(conn, 10)
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE id = 'r1'") == 0


async def sweep_overdue(conn: Connection, _: object) -> None:
    assert [each.id for each in await sweeps.cancel_overdue(conn, 10)] == ["r1"]


async def claim_late(conn: Connection, _: object) -> None:
    assert await claim(conn) == []


async def cancel_parent(conn: Connection, _: object) -> None:
    await runs.cancel(conn, "parent", CancelMode.IMMEDIATE, "why")
    assert await wakes.cascade(conn, 10) == 1


async def lose_worker(conn: Connection, _: object) -> None:
    await expire(conn, "w1")
    await workers.mark_expired(conn, 10)
    assert len(await workers.move(conn, ["w1"], 10)) == 1


async def lose_worker_when_cancelled(conn: Connection, run: ClaimedRun) -> None:
    await runs.cancel(conn, run.id, CancelMode.GRACEFUL, "why")
    await lose_worker(conn, run)


Make = Callable[[Connection], Awaitable[Any]]
End = Callable[[Connection, Any], Awaitable[object]]

WAYS: dict[str, tuple[Make, End]] = {
    "it succeeds": (owned(), lambda conn, run: write(conn, run, ending=Succeeded("1"))),
    "it fails": (owned(), lambda conn, run: write(conn, run, ending=Failed(ERROR))),
    "it is cancelled by its owner": (owned(), cancel_owned),
    "it mismatches too often": (owned(max_recoveries=0), lambda conn, run: write(conn, run, ending=Mismatch(ERROR))),
    "it is cancelled while nobody owns it": (unowned, cancel_unowned),
    "its resource says so": (unowned, cancel_by_resource),
    "its resource is deleted": (unowned, lose_resource),
    "it is removed": (unowned, remove),
    "the sweep finds its deadline passed": (past_its_deadline, sweep_overdue),
    "a claim finds its deadline passed": (past_its_deadline, claim_late),
    "its parent is cancelled": (child, cancel_parent),
    "it loses too many workers": (owned(max_recoveries=0), lose_worker),
    "it loses its worker and is cancelled": (owned(), lose_worker_when_cancelled),
}


@pytest.mark.parametrize(("make", "end"), WAYS.values(), ids=WAYS.keys())
async def test_however_a_run_ends_the_sweep_wakes_who_waits_for_it(conn: Connection, make: Make, end: End) -> None:
    made = await make(conn)
    await waits_for(conn, "r1")
    await a_minute_later(conn)
    assert await sweep(conn) == [], "it has not ended yet"
    await end(conn, made)
    await a_minute_later(conn)
    assert await sweep(conn) == ["waiter"]
    assert await status(conn) is RunStatus.ENQUEUED
    assert await waits(conn) == []


async def test_the_sweep_leaves_the_worker_that_ended_a_run_time_to_tell(conn: Connection) -> None:
    run = await claimed(conn)
    await waits_for(conn, "r1")
    await write(conn, run, ending=Succeeded("1"))
    assert await sweep(conn) == []
    assert await waits(conn) == [("r1", "waiter")]


async def test_the_sweep_looks_page_by_page_and_begins_again(conn: Connection) -> None:
    for n in range(5):
        await add_run(conn, f"r{n}")
    await waits_for(conn, *(f"r{n}" for n in range(5)))
    await runs.cancel(conn, "r3", CancelMode.IMMEDIATE, "why")
    await a_minute_later(conn)
    places = []
    behind = ""
    for _ in range(4):
        _, behind = await wakes.announce_ended(conn, behind, 2)
        places.append(behind)
    assert places == ["r1", "r3", "", "r1"]
    assert await status(conn) is RunStatus.ENQUEUED
    assert [run for run, _ in await waits(conn)] == ["r0", "r1", "r2", "r4"]


# -- telling at once


async def test_who_ends_a_run_hears_that_another_waits_for_it(conn: Connection) -> None:
    run, other = await claimed(conn), await claimed(conn, "other")
    await waits_for(conn, "r1")
    await calls.ask_for_news(conn, ["r1"])
    assert (await write(conn, run, ending=Succeeded("1"))).waited
    assert not (await write(conn, other, ending=Succeeded("1"))).waited


async def test_a_run_that_is_tried_again_is_not_told_of(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=2)
    await waits_for(conn, "r1")
    await calls.ask_for_news(conn, ["r1"])
    ack = await write(conn, run, ending=Failed(ERROR))
    assert (ack.ended, ack.waited) == (RunStatus.DELAYED, False)


async def test_a_request_for_news_behind_the_end_is_seen_by_it_or_sees_it(conn: Connection, pg_url: str) -> None:
    """The row is held while the end waits for it: the end finds the request."""
    run = await claimed(conn)
    held = ("UPDATE perdure.workflows SET waited = true WHERE id = 'r1'",)
    assert (await race(pg_url, held, write(conn, run, ending=Succeeded("1")))).waited


async def test_news_of_a_run_that_others_hold_or_that_has_ended_is_left_to_the_sweep(
    conn: Connection, pg_url: str
) -> None:
    for n in range(2):
        await add_run(conn, f"r{n}")
    await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "why")
    async with holding(pg_url, ("SELECT FROM perdure.workflows WHERE id = 'r0' FOR NO KEY UPDATE",)):
        await calls.ask_for_news(conn, ["r0", "r1"])
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE waited") == 0


async def test_all_who_wait_are_woken_page_by_page(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakes, "PAGE", 2)
    for n in range(2):
        await add_run(conn, f"r{n}")
    for n in range(5):
        await waits_for(conn, f"r{n % 2}", run_id=f"waiter{n}")
    woken = await wakes.announce_ends(conn, ["r0", "r1", "nobody"])
    assert sorted(each.id for each in woken if each.ready) == [f"waiter{n}" for n in range(5)]
    assert await waits(conn) == []


async def test_a_run_that_waits_for_several_is_woken_once_by_all_that_have_ended(conn: Connection) -> None:
    for n in range(3):
        await add_run(conn, f"r{n}")
    await waits_for(conn, "r0", "r1", "r2")
    [woken] = await wakes.announce_ends(conn, ["r0", "r1"])
    assert (woken.id, woken.ready, woken.wake_seq) == ("waiter", True, 1)
    assert await waits(conn) == [("r2", "waiter")]


async def test_a_wait_that_was_written_anew_is_not_forgotten_with_the_old_one(conn: Connection) -> None:
    """The awaited run has ended and was set going again while its end was being told."""
    await add_run(conn)
    run = await waiting_run(conn)
    await one(conn, run, await_runs("r1"), worker_id="w9")
    [old] = await conn.fetch("SELECT * FROM perdure.run_waits")
    await execute(conn, run, await_runs("r1", index=1, seq=2), worker_id="w9")
    columns = [[old[name]] for name in ("run_id", "workflow_id", "fence", "seq")]
    assert await conn.fetch(wakes.sql("wake_run_forget"), *columns) == []
    assert await waits(conn) == [("r1", "waiter")]


async def test_a_park_behind_the_wake_of_an_end_becomes_claimable(conn: Connection, pg_url: str) -> None:
    await add_run(conn)
    run = await waiting_run(conn)
    await one(conn, run, await_runs("r1"), worker_id="w9")
    park = Parked(WaitingFor("Child", on=(child_key("r1"),)), None, 0)
    wake = ("UPDATE perdure.workflows SET wake_seq = wake_seq + 1 WHERE id = 'waiter'",)
    assert (await race(pg_url, wake, write(conn, run, ending=park, worker_id="w9"))).ended is RunStatus.ENQUEUED


async def test_the_wait_touches_no_row_but_its_own(conn: Connection, pg_url: str) -> None:
    """R15: it is written while somebody holds the awaited run's row."""
    await add_run(conn)
    run = await waiting_run(conn)
    before = await row(conn, "r1")
    async with holding(pg_url, ("SELECT FROM perdure.workflows WHERE id = 'r1' FOR UPDATE",)):
        await one(conn, run, await_runs("r1"), worker_id="w9")
    assert await row(conn, "r1") == before
    assert await waits(conn) == [("r1", "waiter")]


# -- what the looks say


async def test_a_look_says_which_runs_are_there_how_they_stand_and_which_are_the_own_children(conn: Connection) -> None:
    run = await claimed(conn)
    await one(conn, run, start_child(child="child"))
    await add_run(conn, "ended")
    await runs.cancel(conn, "ended", CancelMode.IMMEDIATE, "why")
    ids = ["child", "ended", "nobody"]

    seen = await calls.statuses_of(conn, "r1", ids)
    assert seen.runs == {"child": RunStatus.ENQUEUED, "ended": RunStatus.CANCELLED}
    assert (seen.own, seen.wake_seq) == (frozenset({"child"}), 0)

    found = await calls.look_at_runs(conn, "r1", ids)
    assert {run_id: (each.status, each.own, each.workflow) for run_id, each in found.runs.items()} == {
        "child": (RunStatus.ENQUEUED, True, "x"),
        "ended": (RunStatus.CANCELLED, False, "x"),
    }


# -- removal


async def test_a_run_that_a_live_run_waits_for_is_not_marked_as_old(conn: Connection) -> None:
    run = await claimed(conn, name=None)
    await waits_for(conn, "r1")
    await write(conn, run, ending=Succeeded("1"))
    await conn.execute("UPDATE perdure.workflows SET finished_at = now() - interval '40 days' WHERE id = 'r1'")

    async def marked() -> int:
        return (await retention.mark(conn, "ns", "default", age=86400.0, place=Place(), limit=10)).marked

    assert await marked() == 0
    await runs.cancel(conn, "waiter", CancelMode.IMMEDIATE, "why")
    assert await marked() == 1


async def test_waits_go_with_the_run_that_waited(conn: Connection) -> None:
    await add_run(conn)
    await waits_for(conn, "r1")
    await runs.resource_gone(conn, ["waiter"])
    assert (await runs.purge(conn, 10)).runs == 1
    assert await waits(conn) == []
