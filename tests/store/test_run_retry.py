"""How often a run is tried: what the run says, else what the worker says, on rows of any age."""

import asyncpg
import pytest
from perdure.model.outcome import ErrorRecord, Failed
from perdure.model.rows import ClaimedRun
from perdure.model.states import RunStatus
from perdure.store import journal, migrate, runs, sweeps
from perdure.store.journal import DEFAULT_BACKOFF, Backoff, RunWrites

from tests.store.builders import Connection, add_run, claim, claimed, row

DELAYED, FAILED = RunStatus.DELAYED, RunStatus.FAILED
ERROR = ErrorRecord("ValueError", "no")


async def fail(conn: Connection, run: ClaimedRun, backoff: Backoff = DEFAULT_BACKOFF) -> RunStatus | None:
    acks = await journal.commit(conn, "w1", [RunWrites(run.id, run.fence, (), Failed(ERROR))], backoff=backoff)
    return acks[run.id].ended


async def again(conn: Connection) -> ClaimedRun:
    await conn.execute("UPDATE perdure.workflows SET wake_at = now()")
    await sweeps.wake_due(conn, 10)
    [run] = await claim(conn)
    return run


@pytest.mark.parametrize("attempts", [1, 2, 3])
async def test_a_run_that_says_nothing_is_tried_as_often_as_the_worker_says(conn: Connection, attempts: int) -> None:
    run = await claimed(conn, max_run_attempts=None)
    assert run.max_run_attempts is None
    for _ in range(attempts - 1):
        assert await fail(conn, run, Backoff(run_attempts=attempts)) is DELAYED
        run = await again(conn)
    assert await fail(conn, run, Backoff(run_attempts=attempts)) is FAILED
    assert (await row(conn))["run_attempts"] == attempts


async def test_what_the_run_says_wins(conn: Connection) -> None:
    assert await fail(conn, await claimed(conn, max_run_attempts=1), Backoff(run_attempts=100)) is FAILED
    assert await fail(conn, await claimed(conn, "r2", max_run_attempts=2), Backoff(run_attempts=1)) is DELAYED


async def test_by_default_it_is_three_attempts_five_seconds_apart_and_then_ten(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=None)
    waits = []
    for _ in range(2):
        assert await fail(conn, run) is DELAYED
        stored = await row(conn)
        waits.append((stored["wake_at"] - stored["waiting_since"]).total_seconds())
        run = await again(conn)
    assert await fail(conn, run) is FAILED
    assert waits == [pytest.approx(5, abs=0.1), pytest.approx(10, abs=0.1)]


async def test_no_wait_is_longer_than_an_hour(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=100)
    await conn.execute("UPDATE perdure.workflows SET run_attempts = 90")
    assert await fail(conn, run, Backoff(run_retry=3600.0)) is DELAYED
    stored = await row(conn)
    assert (stored["wake_at"] - stored["waiting_since"]).total_seconds() == pytest.approx(3600, abs=0.1)


async def test_the_number_may_be_changed_while_the_run_waits(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=None, generation=1)
    assert await fail(conn, run) is DELAYED
    await add_run(conn, max_run_attempts=2, generation=2)
    assert await fail(conn, await again(conn)) is FAILED


async def test_rows_of_the_first_schema_keep_their_single_attempt(
    empty_pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = migrate.migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: every[:1])
    await migrate.migrate(empty_pg_url)
    connection = await asyncpg.connect(empty_pg_url)
    try:
        await connection.execute(
            "INSERT INTO perdure.workflows (id, namespace, workflow, requires, pool, queue, priority, status, run_at)"
            " VALUES ('r1', 'ns', 'x', '{workflow:x}', 'default', 'default', 1, 10, now())"
        )
        monkeypatch.setattr(migrate, "migrations", lambda: every)
        await migrate.migrate(empty_pg_url)
        assert await connection.fetchval("SELECT max_run_attempts FROM perdure.workflows") == 1
        assert await runs.get_status(connection, "r1") is RunStatus.ENQUEUED
    finally:
        await connection.close()
