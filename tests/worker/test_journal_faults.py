"""The journal and a database that does not answer: cuts, restarts, locks, unknown outcomes, too much work."""

import asyncio
from typing import Any

import pytest
from perdure.errors import OwnershipLost
from perdure.model.outcome import Cancelled, ErrorRecord, Failed, Parked, Released, Succeeded
from perdure.model.rows import WaitingFor
from perdure.model.states import RunStatus
from perdure.store import runs
from perdure.telemetry import names
from perdure.worker import journal as journal_module
from perdure.worker.journal import RunJournal
from perdure.worker.link import Connection

from tests.support.journalbench import ME, RUNNING, SUCCEEDED, Bench, CutsInFlight, bench, recorded, steal, step
from tests.support.pgwait import eventually, holding, until_waiting
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy


async def test_a_locked_run_does_not_hold_up_the_others(here: Bench) -> None:
    locked, *others = await here.claim("a", "b", "c", "d")
    async with holding(here.conn_url, ("SELECT 1 FROM perdure.workflows WHERE id = 'a' FOR UPDATE",)):
        waiting = asyncio.ensure_future(locked.start(step(0, 1, RUNNING)))
        await asyncio.gather(*(run.start(step(0, 1, RUNNING)) for run in others))
        assert not waiting.done()
    await waiting
    assert [await recorded(here.conn, run.run_id) for run in (locked, *others)] == [[(0, 10, 1, None)]] * 4


async def test_a_run_known_as_locked_is_looked_at_and_not_waited_for(here: Bench) -> None:
    locked, other = await here.claim("a", "b")
    in_vain = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'"
    async with holding(here.conn_url, ("SELECT 1 FROM perdure.workflows WHERE id = 'a' FOR UPDATE",)):
        waiting = asyncio.ensure_future(locked.start(step(0, 1, RUNNING)))
        index = 0
        while here.metrics.value(names.JOURNAL_RETRIES, "timeout") < 3:
            if here.metrics.value(names.JOURNAL_RETRIES, "timeout") >= 1:
                assert await here.conn.fetchval(in_vain, ME) == 0
            await other.start(step(index, index + 1, RUNNING))
            index += 1
        assert not waiting.done()
    await waiting
    assert await recorded(here.conn, "a") == [(0, 10, 1, None)]


async def test_what_cannot_be_made_into_a_statement_holds_up_no_other_run(here: Bench) -> None:
    odd, *others = await here.claim("odd", "b", "c")
    waiting = asyncio.ensure_future(odd.end(Failed(ErrorRecord("E", "m", code=object()))))  # type: ignore[arg-type]
    await asyncio.gather(*(run.start(step(0, 1, RUNNING)) for run in others))
    for run in others:
        assert (await run.end(Succeeded("1"))).status is RunStatus.SUCCEEDED
    assert not waiting.done()
    here.journal.abandon()
    with pytest.raises(OwnershipLost):
        await waiting


@pytest.mark.parametrize("ending", [False, True])
async def test_cut_sessions_lose_nothing_and_write_nothing_twice(here: Bench, ending: bool) -> None:
    """The bodies go on until enough of what they wrote was cut in its flight."""
    journals = await here.claim(*(f"r{number}" for number in range(20)))
    hits = CutsInFlight(here, wanted=200)

    async def live(run: RunJournal) -> int:
        steps = 0
        while not hits.enough:
            await run.start(step(steps, 2 * steps + 1, RUNNING))
            run.record(step(steps, 2 * steps + 2, SUCCEEDED, str(steps)))
            steps += 1
        if ending:
            await run.end(Succeeded("1"))
        return steps

    lived, _ = await asyncio.gather(asyncio.gather(*(live(run) for run in journals)), hits.made())
    assert all(one.lost == 0 for one in here.heard.values())
    for run, steps in zip(journals, lived, strict=True):
        expected = [(index, 30, 2 * index + 2, str(index)) for index in range(steps)]

        async def complete(run_id: str = run.run_id, expected: list[Any] = expected) -> bool:
            return await recorded(here.conn, run_id) == expected

        await eventually(complete, "all steps are recorded")


async def test_a_restarted_server_loses_nothing(here: Bench, pg_server: PostgresServer) -> None:
    (run,) = await here.claim("r")
    await run.start(step(0, 1, RUNNING))
    pg_server.stop()
    run.record(step(0, 2, SUCCEEDED, "1"))
    waiting = asyncio.ensure_future(run.start(step(1, 3, RUNNING)))

    async def tried() -> bool:
        return here.metrics.value(names.JOURNAL_RETRIES, "connection") >= 2

    await eventually(tried, "the journal tries")
    pg_server.start()
    await waiting
    assert here.heard["r"].lost == 0


async def test_an_unknown_outcome_that_committed_is_a_success(conn: Connection, db: str, pg_server: Any) -> None:
    async with Proxy(pg_server.port) as proxy, bench(conn, proxy.through(db)) as here:
        (run,) = await here.claim("r")
        await run.start(step(0, 1, RUNNING))
        proxy.hold_answers()
        run.record(step(0, 2, SUCCEEDED, "1"))
        waiting = asyncio.ensure_future(run.start(step(1, 3, RUNNING)))

        async def committed() -> bool:
            return len(await recorded(conn, "r")) == 2

        await eventually(committed, "the first copy commits")
        assert not waiting.done()
        proxy.cut()
        await waiting
        assert await recorded(conn, "r") == [(0, 30, 2, "1"), (1, 10, 3, None)]
        assert here.heard["r"].lost == 0


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        (Succeeded("1"), RunStatus.SUCCEEDED),
        (Released("drain"), RunStatus.ENQUEUED),
        (Parked(WaitingFor("RetryBackoff"), 60.0), RunStatus.WAITING),
    ],
)
async def test_an_ending_whose_answer_was_lost_is_known_as_our_own(
    conn: Connection, db: str, pg_server: Any, ending: Any, status: RunStatus
) -> None:
    async with Proxy(pg_server.port) as proxy, bench(conn, proxy.through(db)) as here:
        # The connection knows the statements of endings from here on: it needs no answer before it sends one.
        before, another = await here.claim("before", "another")
        await before.end(Succeeded("1"))
        await another.end(Cancelled("by the test"))
        (run,) = await here.claim("r")
        await run.start(step(0, 1, RUNNING))
        proxy.hold_answers()
        waiting = asyncio.ensure_future(run.end(ending))

        async def committed() -> bool:
            return await runs.get_status(conn, "r") is status

        await eventually(committed, "the first copy commits")
        proxy.cut()
        assert (await waiting).status is status
        assert here.heard["r"].lost == 0
        assert await runs.get_status(conn, "r") is status


async def test_an_ending_that_never_arrived_on_a_run_that_was_taken_is_lost(
    conn: Connection, db: str, pg_server: Any
) -> None:
    async with Proxy(pg_server.port) as proxy, bench(conn, proxy.through(db)) as here:
        (run,) = await here.claim("r")
        await run.start(step(0, 1, RUNNING))
        proxy.hold_questions()
        waiting = asyncio.ensure_future(run.end(Succeeded("1")))
        await asyncio.sleep(0)
        await steal(conn, "r")
        proxy.cut()
        with pytest.raises(OwnershipLost):
            await waiting
        assert here.heard["r"].lost == 1
        assert await runs.get_status(conn, "r") is RunStatus.ENQUEUED


# -- back-pressure and connections


async def test_new_steps_wait_while_too_much_is_pending(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "MAX_PENDING_BYTES", 10_000)
    run, other = await here.claim("a", "b")
    await run.start(step(0, 1, RUNNING))
    async with holding(here.conn_url, ("SELECT 1 FROM perdure.workflows WHERE id IN ('a', 'b') FOR UPDATE",)):
        run.record(step(0, 2, SUCCEEDED, "x" * 20_000))
        assert here.journal.full
        waiting = asyncio.ensure_future(other.start(step(0, 1, RUNNING)))
        await until_waiting(here.conn)
        assert here.metrics.value(names.JOURNAL_PENDING_ROWS) == 1, "the new step is not even queued"
    await waiting
    assert not here.journal.full
    assert here.metrics.value(names.JOURNAL_PENDING_ROWS) == 0


async def test_one_run_stays_on_one_connection(conn: Connection, db: str) -> None:
    async with bench(conn, db, connections=4) as here:
        ids = [f"r{number}" for number in range(40)]
        outboxes = {run_id: here.journal.outbox_of(run_id) for run_id in ids}
        assert len(set(outboxes.values())) == 4
        assert all(here.journal.outbox_of(run_id) is outbox for run_id, outbox in outboxes.items())
        journals = await here.claim(*ids)
        await asyncio.gather(*(run.start(step(0, 1, RUNNING)) for run in journals))
        assert await conn.fetchval("SELECT count(*) FROM perdure.workflow_steps") == 40


async def test_a_deadlock_is_sent_again(here: Bench) -> None:
    """Two sessions in opposite order: Postgres ends one; if it is ours, nobody notices."""
    first, second = await here.claim("a", "b")
    async with holding(here.conn_url, ("SELECT 1 FROM perdure.workflows WHERE id = 'b' FOR UPDATE",)) as rival:
        both = asyncio.gather(first.start(step(0, 1, RUNNING)), second.start(step(0, 1, RUNNING)))
        await until_waiting(here.conn)
        taking = asyncio.ensure_future(rival.execute("SELECT 1 FROM perdure.workflows WHERE id = 'a' FOR UPDATE"))
        await asyncio.wait([taking])
        taking.exception()
        await rival.execute("ROLLBACK")
        await both
