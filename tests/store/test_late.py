"""Each write of a claim as it comes late, at every later state of its run: it waited for the lock while the run went on
(a session may outlive its process by minutes), and then changes nothing. With and without a first copy that came
through in time."""

from collections.abc import Awaitable, Callable

import pytest
from perdure.model.outcome import Cancelled, Ending, Failed, Mismatch, Parked, Released, Succeeded
from perdure.model.rows import ClaimedRun, WaitingFor
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs, sweeps, workers

from tests.store.builders import Connection, add_worker, claim, claimed, finish, start, write
from tests.store.fenced import ERROR, FENCED, LATE, contents, empty
from tests.support.pgwait import holding, waiting

Later = Callable[[Connection, ClaimedRun], Awaitable[object]]


def ending(value: Ending) -> Later:
    return lambda conn, run: write(conn, run, ending=value)


async def go_on(conn: Connection, run: ClaimedRun, worker_id: str) -> None:
    """Another claim, which has written more than the old one."""
    [again] = [each for each in await claim(conn, worker_id) if each.id == run.id]
    await write(conn, again, start(0, LATE + 5), start(1, LATE + 6), worker_id=worker_id)
    await write(conn, again, finish(0, LATE + 7), worker_id=worker_id)


async def released_and_claimed_anew(conn: Connection, run: ClaimedRun) -> None:
    await ending(Released("drain"))(conn, run)
    await go_on(conn, run, "w1")


async def reclaimed(conn: Connection, run: ClaimedRun) -> None:
    await workers.mark_dead(conn, ["uid-w1"])
    await workers.move(conn, ["w1"], 100)


async def reclaimed_and_going_on(conn: Connection, run: ClaimedRun) -> None:
    await reclaimed(conn, run)
    await add_worker(conn, "w2")
    await go_on(conn, run, "w2")


async def woken(conn: Connection, run: ClaimedRun) -> None:
    await ending(Parked(WaitingFor("x"), 0.0))(conn, run)
    await conn.execute("UPDATE perdure.workflows SET wake_at = now() WHERE id = $1", run.id)
    await sweeps.wake_due(conn, 10)


async def cancelled(conn: Connection, run: ClaimedRun) -> None:
    await runs.cancel(conn, run.id, CancelMode.GRACEFUL, "why")
    await ending(Cancelled("why"))(conn, run)


async def removed(conn: Connection, run: ClaimedRun) -> None:
    await ending(Succeeded("1"))(conn, run)
    await runs.resource_gone(conn, [run.id])
    while await runs.purge_gone(conn, 100):
        pass


STATES: dict[str, Later] = {
    "released": ending(Released("drain")),
    "released and claimed anew": released_and_claimed_anew,
    "reclaimed": reclaimed,
    "reclaimed and going on": reclaimed_and_going_on,
    "parked": ending(Parked(WaitingFor("x"), 60.0)),
    "woken": woken,
    "succeeded": ending(Succeeded("1")),
    "failed": ending(Failed(ERROR)),
    "held by a mismatch": ending(Mismatch(ERROR)),
    "cancelled": cancelled,
    "removed": removed,
}


@pytest.mark.parametrize("first_copy", [False, True], ids=["lost", "came through"])
@pytest.mark.parametrize("later", STATES.values(), ids=STATES.keys())
async def test_a_late_write_changes_nothing(
    conn: Connection, observer: Connection, pg_url: str, later: Later, first_copy: bool
) -> None:
    for name, case in FENCED.items():
        await empty(conn)
        run = await claimed(conn)
        if case.before is not None:
            await case.before(conn, run)
        if first_copy:
            await case.send(conn, run)
        owned = await runs.get_status(conn, run.id) is RunStatus.RUNNING
        async with holding(pg_url) as holder:
            if owned:
                await later(holder, run)
                task = await waiting(observer, case.send(conn, run))
            then = await contents(holder)
        answer = await task if owned else await case.send(conn, run)

        assert await contents(observer) == then, name
        assert not getattr(answer, "owned", answer), name
