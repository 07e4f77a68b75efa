"""The journal on a real database: what is durable when, and every way in which a commit can go wrong.

No engine here: the tests play it. Each owns a claimed run or several of a worker that is registered in the database.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from perdure.errors import EncodingFailed, OwnershipLost
from perdure.model.outcome import ErrorRecord, Failed, Parked, Released, Succeeded
from perdure.model.rows import ClaimedRun, OwnedFlags, StepWrite, WaitingFor, WorkerRow
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import claims, runs, workers
from perdure.telemetry import names
from perdure.worker import journal as journal_module
from perdure.worker.journal import Journal, Observer, RunJournal
from perdure.worker.lease import LocalLease, lease_clock
from perdure.worker.link import Connection, Link
from perdure.worker.worker import new_metrics

from tests.support.pgwait import eventually, holding, until_waiting
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy
from tests.support.workerproc import enqueue

ME = "me-1"
RUNNING, SUCCEEDED, RETRYING = StepStatus.RUNNING, StepStatus.SUCCEEDED, StepStatus.RETRYING


@dataclass
class Heard:
    lost: int = 0
    refused: int = 0
    flags: list[OwnedFlags] = field(default_factory=list)
    committed: list[RunStatus | None] = field(default_factory=list)


class Bench:
    """A registered worker with a journal, and runs that it claimed."""

    def __init__(self, conn: Connection, url: str, direct: str, connections: int) -> None:
        self.conn = conn
        self.conn_url = direct
        self.metrics = new_metrics()
        self.lease = LocalLease(60.0)
        self.lease.extend(lease_clock())
        links = [Link(url, application_name=ME, statement_timeout=3.0) for _ in range(connections)]
        self._links = links
        self.journal = Journal(ME, links, self.lease, self.metrics)
        self.heard: dict[str, Heard] = {}

    async def claim(self, *ids: str) -> list[RunJournal]:
        for run_id in ids:
            await enqueue(self.conn, "t.x", run_id=run_id)
        claimed = await self.claim_again(len(ids))
        return [self.open(run) for run in sorted(claimed, key=lambda run: ids.index(run.id))]

    async def claim_again(self, limit: int = 10) -> list[ClaimedRun]:
        return await claims.claim(
            self.conn,
            worker_id=ME,
            namespace="ns",
            pool="default",
            queue="default",
            manifest=["workflow:t.x"],
            version="1",
            limit=limit,
        )

    def open(self, run: ClaimedRun) -> RunJournal:
        heard = self.heard[run.id] = Heard()

        def lost() -> None:
            heard.lost += 1

        def refused() -> None:
            heard.refused += 1

        return self.journal.open(run, Observer(lost, refused, heard.flags.append, heard.committed.append))

    async def close(self) -> None:
        await self.journal.stop()
        for link in self._links:
            await link.close()


@asynccontextmanager
async def bench(conn: Connection, url: str, *, direct: str = "", connections: int = 1) -> AsyncIterator[Bench]:
    row = WorkerRow(ME, "ns", "default", "pod", "", "1", ("default",), ("workflow:t.x",), 4)
    await workers.register(conn, row, 60.0)
    made = Bench(conn, url, direct or url, connections)
    made.journal.start()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def here(conn: Connection, db: str) -> AsyncIterator[Bench]:
    async with bench(conn, db) as made:
        yield made


def step(index: int, seq: int, status: StepStatus, output: str | None = None) -> StepWrite:
    final = status is not RUNNING
    return StepWrite(
        index=index, seq=seq, name=f"s{index}", status=status, input=None if final else "[]", output=output
    )


async def recorded(conn: Connection, run_id: str) -> list[tuple[int, int, int, str | None]]:
    rows = await conn.fetch(
        "SELECT step_index, status, seq, output FROM perdure.workflow_steps WHERE workflow_id = $1 ORDER BY 1", run_id
    )
    return [tuple(row) for row in rows]


async def steal(conn: Connection, run_id: str) -> None:
    """As if the worker had been marked dead and the run moved."""
    await conn.execute(
        "UPDATE perdure.workflows SET status = 10, worker_id = NULL, fence = fence + 1 WHERE id = $1", run_id
    )


# -- what is durable when


async def test_a_start_is_durable_on_return_with_everything_before_it(here: Bench) -> None:
    (run,) = await here.claim("r")
    flags = await run.start(step(0, 1, RUNNING))
    assert (flags.cancel_mode, flags.suspended) == (None, False)
    assert await recorded(here.conn, "r") == [(0, 10, 1, None)]
    run.record(step(0, 2, SUCCEEDED, "1"))
    await run.start(step(1, 3, RUNNING))
    assert await recorded(here.conn, "r") == [(0, 30, 2, "1"), (1, 10, 3, None)]
    assert here.metrics.value(names.JOURNAL_FLUSH_ROWS) == 2


async def test_an_outcome_without_a_successor_is_written_alone(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.start(step(0, 1, RUNNING))
    run.record(step(0, 2, SUCCEEDED, "1"))

    async def there() -> bool:
        return await recorded(here.conn, "r") == [(0, 30, 2, "1")]

    await eventually(there, "the finish is written")


async def test_writes_of_many_runs_travel_in_one_statement(here: Bench) -> None:
    journals = await here.claim(*(f"r{number}" for number in range(50)))
    await asyncio.gather(*(run.start(step(0, 1, RUNNING)) for run in journals))
    assert here.metrics.value(names.JOURNAL_FLUSH_ROWS) <= 2
    assert await here.conn.fetchval("SELECT count(*) FROM perdure.workflow_steps") == 50


async def test_the_ending_takes_along_what_is_pending(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.start(step(0, 1, RUNNING))
    run.record(step(0, 2, SUCCEEDED, "1"))
    settled = await run.end(Succeeded("7"))
    assert settled.status is RunStatus.SUCCEEDED
    assert await recorded(here.conn, "r") == [(0, 30, 2, "1")]
    result = await runs.result(here.conn, "r")
    assert result is not None
    assert (result.status, result.output) == (RunStatus.SUCCEEDED, "7")
    assert here.heard["r"].committed[-1] is RunStatus.SUCCEEDED


async def test_nothing_is_written_after_the_ending(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.end(Released("enough"))
    run.record(step(0, 1, SUCCEEDED, "1"))
    with pytest.raises(OwnershipLost):
        await run.start(step(1, 2, RUNNING))
    assert not run.admitted()
    assert await recorded(here.conn, "r") == []


async def test_statements_hold_a_bounded_number_of_rows(here: Bench) -> None:
    (run,) = await here.claim("r")
    writes = [run.start(step(index, index + 1, RUNNING)) for index in range(100)]
    others = await here.claim(*(f"o{number}" for number in range(400)))
    await asyncio.gather(*writes, *(other.start(step(0, 1, RUNNING)) for other in others))
    largest = here.metrics.registry.get_sample_value("perdure_journal_flush_rows_bucket", {"le": "300.0"})
    assert largest == here.metrics.value(names.JOURNAL_FLUSH_ROWS)


# -- flags


async def test_a_cancel_comes_back_with_the_next_write(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.start(step(0, 1, RUNNING))
    await runs.cancel(here.conn, "r", CancelMode.GRACEFUL, "no")
    flags = await run.start(step(1, 2, RUNNING))
    assert flags.cancel_mode is CancelMode.GRACEFUL
    assert [row[0] for row in await recorded(here.conn, "r")] == [0], "a start is refused once a cancel is set"
    refused = await run.end(Succeeded("1"))
    assert refused.status is None
    assert refused.flags.cancel_mode is CancelMode.GRACEFUL


async def test_a_cancel_comes_back_with_an_outcome_written_alone(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.start(step(0, 1, RUNNING))
    await runs.cancel(here.conn, "r", CancelMode.IMMEDIATE, "no")
    run.record(step(0, 2, SUCCEEDED, "1"))

    async def told() -> bool:
        return bool(here.heard["r"].flags)

    await eventually(told, "the cancel is heard")
    assert here.heard["r"].flags[0].cancel_mode is CancelMode.IMMEDIATE


async def test_a_park_that_missed_a_wake_becomes_claimable(here: Bench) -> None:
    (run,) = await here.claim("r")
    await here.conn.execute("UPDATE perdure.workflows SET wake_seq = wake_seq + 1 WHERE id = 'r'")
    settled = await run.end(Parked(WaitingFor("RetryBackoff"), 60.0))
    assert settled.status is RunStatus.ENQUEUED


# -- lost


async def test_ownership_lost_is_told_once_and_writes_nothing(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.start(step(0, 1, RUNNING))
    await steal(here.conn, "r")
    run.record(step(0, 2, SUCCEEDED, "1"))
    with pytest.raises(OwnershipLost):
        await run.start(step(1, 3, RUNNING))
    with pytest.raises(OwnershipLost):
        await run.start(step(2, 4, RUNNING))
    with pytest.raises(OwnershipLost):
        await run.end(Succeeded("1"))
    assert here.heard["r"].lost == 1
    assert await recorded(here.conn, "r") == [(0, 10, 1, None)]


async def test_an_old_body_writes_nothing_while_the_run_is_claimed_anew_here(here: Bench) -> None:
    (old,) = await here.claim("r")
    await steal(here.conn, "r")
    (again,) = await here.claim_again()
    new = here.open(again)
    starts = [old.start(step(0, 9, RUNNING)), new.start(step(0, 1, RUNNING))]
    outcomes = await asyncio.gather(*starts, return_exceptions=True)
    assert isinstance(outcomes[0], OwnershipLost)
    assert isinstance(outcomes[1], OwnedFlags)
    fence = await here.conn.fetchval("SELECT fence FROM perdure.workflow_steps WHERE workflow_id = 'r'")
    assert fence == again.fence


async def test_an_abandoned_journal_lets_everybody_go(here: Bench) -> None:
    (run,) = await here.claim("r")
    async with holding(here.conn_url, ("SELECT 1 FROM perdure.workflows WHERE id = 'r' FOR UPDATE",)):
        waiting = asyncio.ensure_future(run.start(step(0, 1, RUNNING)))
        await until_waiting(here.conn)
        here.journal.abandon()
        with pytest.raises(OwnershipLost):
            await waiting
    with pytest.raises(OwnershipLost):
        await run.start(step(1, 2, RUNNING))
    assert here.heard["r"].lost == 0, "whoever abandons has already said it"


async def test_without_a_lease_nothing_is_sent(here: Bench) -> None:
    (run,) = await here.claim("r")
    here.lease.extend(lease_clock() - 61.0)
    assert not run.admitted()
    waiting = asyncio.ensure_future(run.start(step(0, 1, RUNNING)))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    assert await recorded(here.conn, "r") == []
    here.lease.extend(lease_clock())
    await waiting
    assert run.admitted()


# -- data that cannot be stored


async def test_a_row_that_cannot_be_stored_fails_its_own_run_only(here: Bench) -> None:
    journals = await here.claim("a", "bad", "c", "d", "e")
    for run in journals:
        await run.start(step(0, 1, RUNNING))
    for run in journals:
        run.record(step(0, 2, SUCCEEDED, "\x00" if run.run_id == "bad" else "1"))
    good = [run for run in journals if run.run_id != "bad"]
    bad = journals[1]
    await asyncio.gather(*(run.start(step(1, 3, RUNNING)) for run in good))
    with pytest.raises(EncodingFailed, match=r"step 0 \(s0\)"):
        await bad.start(step(1, 3, RUNNING))
    assert here.heard["bad"].refused == 1
    assert bad.refused is not None
    assert bad.refused.code == "PRD-401"
    settled = await bad.end(Failed(bad.refused))
    assert settled.status is RunStatus.FAILED
    assert [here.heard[run.run_id].refused for run in good] == [0, 0, 0, 0]
    assert await recorded(here.conn, "a") == [(0, 30, 2, "1"), (1, 10, 3, None)]


async def test_an_ending_that_cannot_be_stored_becomes_a_failure(here: Bench) -> None:
    run, other = await here.claim("bad", "good")
    endings = await asyncio.gather(run.end(Succeeded("\x00")), other.end(Succeeded("1")))
    assert [one.status for one in endings] == [RunStatus.FAILED, RunStatus.SUCCEEDED]
    result = await runs.result(here.conn, "bad")
    assert result is not None
    assert "the run's outcome" in ErrorRecord.from_json(result.error or "").message


async def test_what_the_client_cannot_encode_fails_its_own_run_only(here: Bench) -> None:
    run, other = await here.claim("bad", "good")
    broken = StepWrite(index=0, seq=1, name="s", status=RUNNING, input="\ud800")
    outcomes = await asyncio.gather(run.start(broken), other.start(step(0, 1, RUNNING)), return_exceptions=True)
    assert isinstance(outcomes[0], EncodingFailed)
    assert isinstance(outcomes[1], OwnedFlags)


# -- a database that does not answer


async def test_a_locked_run_does_not_hold_up_the_others(here: Bench) -> None:
    locked, *others = await here.claim("a", "b", "c", "d")
    async with holding(here.conn_url, ("SELECT 1 FROM perdure.workflows WHERE id = 'a' FOR UPDATE",)):
        waiting = asyncio.ensure_future(locked.start(step(0, 1, RUNNING)))
        await asyncio.gather(*(run.start(step(0, 1, RUNNING)) for run in others))
        assert not waiting.done()
    await waiting
    assert here.metrics.value(names.JOURNAL_RETRIES, "split") >= 4


@pytest.mark.parametrize("ending", [False, True])
async def test_cut_sessions_lose_nothing_and_write_nothing_twice(here: Bench, ending: bool) -> None:
    journals = await here.claim(*(f"r{number}" for number in range(20)))

    async def live(run: RunJournal) -> None:
        for index in range(20):
            await run.start(step(index, 2 * index + 1, RUNNING))
            run.record(step(index, 2 * index + 2, SUCCEEDED, str(index)))
        if ending:
            await run.end(Succeeded("1"))

    bodies = asyncio.gather(*(live(run) for run in journals))
    while not bodies.done():
        await here.conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", ME
        )
        await asyncio.sleep(0.01)
        if here.metrics.value(names.JOURNAL_RETRIES, "connection") >= 40:
            break
    await bodies
    assert all(one.lost == 0 for one in here.heard.values())
    expected = [(index, 30, 2 * index + 2, str(index)) for index in range(20)]
    for run in journals:

        async def complete(run_id: str = run.run_id) -> bool:
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
        lanes = {run_id: here.journal.lane_of(run_id) for run_id in ids}
        assert len(set(lanes.values())) == 4
        assert all(here.journal.lane_of(run_id) is lane for run_id, lane in lanes.items())
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
