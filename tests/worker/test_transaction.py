"""`perdure.transaction`: the user's rows and the checkpoint are committed together, or neither is."""

import json
from typing import Any

import perdure
import pytest
from perdure.engine import transaction as engine
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs
from perdure.telemetry import names
from perdure.worker.link import Connection

from tests.support.journalbench import steal
from tests.support.pgwait import eventually
from tests.support.workerproc import effects, enqueue, finished, open_gate, until_effect, working
from tests.worker import sqlflows


@pytest.fixture(autouse=True)
async def tables(conn: Connection) -> None:
    await conn.execute(sqlflows.TABLES)


async def value(conn: Connection, name: str = "a") -> int:
    return int(await conn.fetchval("SELECT value FROM public.counters WHERE name = $1", name))


async def result(conn: Connection, run_id: str = "r1") -> Any:
    return await conn.fetchval("SELECT output FROM perdure.workflow_payloads WHERE workflow_id = $1", run_id)


async def call(conn: Connection, name: str, *args: Any) -> str:
    """What the body of a run catches when it calls that transaction; empty if nothing."""
    await enqueue(conn, "sql.caught", name, list(args), run_id="r1")
    assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    return str(json.loads(await result(conn)))


async def test_rows_and_outcome_are_committed_together(db: str, conn: Connection) -> None:
    await enqueue(conn, "sql.add", 3, run_id="r1")
    async with working(db) as worker:
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
        assert worker.metrics.value(names.STEPS, "sql.add", "add", "succeeded") == 3
    assert await result(conn) == "[1,2,3]"
    assert await value(conn) == 3
    steps = await conn.fetch("SELECT xmin::text, status, output FROM perdure.workflow_steps ORDER BY step_index")
    assert [(step["status"], step["output"]) for step in steps] == [(30, "1"), (30, "2"), (30, "3")]
    # The last step's row was written by the very transaction that wrote the user's.
    assert await conn.fetchval("SELECT xmin::text FROM public.counters WHERE name = 'a'") == steps[2]["xmin"]


async def test_a_body_whose_run_was_taken_leaves_nothing(db: str, conn: Connection) -> None:
    await enqueue(conn, "sql.gated", "g", run_id="r1")
    async with working(db) as worker:
        await until_effect(conn, "r1", "g", "written")
        await steal(conn, "r1")
        await until_effect(conn, "r1", "g", "written", 2)
        await open_gate(conn, "g")
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
        assert worker.metrics.value(names.OWNERSHIP_LOST) == 1
    assert await value(conn) == 1
    assert await result(conn) == '["before",1,"after"]'


@pytest.mark.parametrize("mode", CancelMode)
async def test_a_cancel_does_not_wait_for_the_body(db: str, conn: Connection, mode: CancelMode) -> None:
    """An immediate one leaves nothing, the others let it end and keep what it did."""
    await enqueue(conn, "sql.gated", "g", run_id="r1")
    async with working(db):
        await until_effect(conn, "r1", "g", "written")
        await runs.cancel(conn, "r1", mode, "why")
        if mode is not CancelMode.IMMEDIATE:
            await open_gate(conn, "g")
        assert await finished(conn, "r1") is RunStatus.CANCELLED
    assert await value(conn) == (0 if mode is CancelMode.IMMEDIATE else 1)
    assert ("after", "done") not in await effects(conn, "r1")


async def test_a_suspend_lets_the_body_end(db: str, conn: Connection) -> None:
    await enqueue(conn, "sql.gated", "g", run_id="r1")
    async with working(db):
        await until_effect(conn, "r1", "g", "written")
        await conn.execute("UPDATE perdure.workflows SET suspended = true")
        await open_gate(conn, "g")

        async def ended() -> bool:
            return await runs.get_status(conn, "r1") is RunStatus.ENQUEUED

        await eventually(ended, "the run is given back")
        assert await value(conn) == 1
        await conn.execute("UPDATE perdure.workflows SET suspended = false")
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await value(conn) == 1


async def test_a_stop_lets_the_body_end(db: str, conn: Connection) -> None:
    await enqueue(conn, "sql.gated", "g", run_id="r1")
    async with working(db) as worker:
        await until_effect(conn, "r1", "g", "written")
        worker.drain()
        await open_gate(conn, "g")
        await worker.wait()
        assert worker.clean
    assert await value(conn) == 1
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await value(conn) == 1


async def test_the_revision_rises_with_a_commit_that_others_have_overtaken(db: str, conn: Connection) -> None:
    revision = "SELECT edits + (SELECT max(seq) FROM perdure.workflow_steps) FROM perdure.workflows"
    await enqueue(conn, "sql.beside", "g", run_id="r1")
    async with working(db):
        await until_effect(conn, "r1", "g", "written")
        await until_effect(conn, "r1", "n2", "done")

        async def others_have_ended() -> bool:
            return bool(await conn.fetchval("SELECT count(*) = 3 FROM perdure.workflow_steps WHERE status = 30"))

        await eventually(others_have_ended, "the steps beside it have ended")
        before = await conn.fetchval(revision)
        await open_gate(conn, "g")

        async def committed() -> bool:
            return await value(conn) == 1

        await eventually(committed, "the transaction is committed")
        assert await conn.fetchval(revision) > before
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED


# -- bodies that fail


async def test_a_body_that_raises_leaves_nothing_and_is_tried_again(db: str, conn: Connection) -> None:
    await enqueue(conn, "sql.call", "flaky_add", ["a"], run_id="r1")
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await value(conn) == 1
    assert await result(conn) == "3"


async def test_a_broken_constraint_fails_the_step(db: str, conn: Connection) -> None:
    async with working(db):
        assert (await call(conn, "add_many", "a", 1000)).startswith("CheckViolationError: ")
    assert await value(conn) == 0


async def test_a_constraint_that_is_broken_at_commit_fails_the_step(db: str, conn: Connection) -> None:
    async with working(db):
        assert (await call(conn, "own", "me")).startswith("UniqueViolationError: ")
    assert await conn.fetchval("SELECT count(owner) FROM public.counters") == 0


@pytest.mark.parametrize(
    ("name", "args", "error"),
    [
        ("unstorable", [0], "EncodingFailed: PRD-401: "),
        ("unstorable", [0xD800], "EncodingFailed: "),
        ("giving", ["x", 2_000_000], "PayloadTooLarge: "),
    ],
)
async def test_an_outcome_that_cannot_be_stored_leaves_nothing(
    db: str, conn: Connection, name: str, args: list[Any], error: str
) -> None:
    async with working(db):
        assert (await call(conn, name, *args)).startswith(error)
    assert await value(conn) == 0


async def test_a_large_outcome_is_stored(db: str, conn: Connection) -> None:
    async with working(db):
        assert await call(conn, "giving", "x", 1_000_000) == ""
    assert await value(conn) == 1
    assert await conn.fetchval("SELECT length(output) FROM perdure.workflow_steps") == 1_000_002


async def test_a_timeout_leaves_nothing(db: str, conn: Connection) -> None:
    async with working(db, transaction_connections=1):
        assert (await call(conn, "slow", "a")).startswith("StepTimeout: ")
        await enqueue(conn, "sql.add", 1, run_id="r2")
        assert await finished(conn, "r2") is RunStatus.SUCCEEDED
    assert await value(conn) == 1


@pytest.mark.parametrize("statement", ["COMMIT", " /* x */ rollback;", "begin", "END", "START  TRANSACTION"])
async def test_a_body_may_not_end_its_transaction(db: str, conn: Connection, statement: str) -> None:
    async with working(db):
        assert (await call(conn, "saying", [statement])).startswith(
            "TransactionMisused: PRD-531: the body of a transaction says"
        )
    assert await value(conn) == 0
    assert len(await effects(conn, "r1")) == 1


@pytest.mark.parametrize("statement", ["SELECT 1; ROLLBACK", "SELECT 1; COMMIT", "SELECT 1; COMMIT; BEGIN"])
async def test_a_body_that_has_ended_its_transaction_is_found_out(db: str, conn: Connection, statement: str) -> None:
    """What it committed cannot be taken back; but it is not done again, and the step does not claim to have done it."""
    async with working(db):
        assert (await call(conn, "saying", [statement])).startswith("TransactionMisused: PRD-531: the body has ended")
    assert await value(conn) == ("COMMIT" in statement)
    assert len(await effects(conn, "r1")) == 1


async def test_savepoints_are_the_body_s_own(db: str, conn: Connection) -> None:
    async with working(db):
        assert await call(conn, "saying", ["SAVEPOINT s", sqlflows.ADD.replace("$1", "'b'"), "ROLLBACK TO s"]) == ""
    assert (await value(conn, "a"), await value(conn, "b")) == (1, 0)


async def test_a_swallowed_error_of_sql_is_named(db: str, conn: Connection) -> None:
    async with working(db):
        assert (await call(conn, "swallowing", False)).startswith(
            "TransactionAborted: PRD-532: the body has passed over"
        )
    assert await value(conn) == 0


async def test_an_error_inside_a_savepoint_may_be_swallowed(db: str, conn: Connection) -> None:
    async with working(db):
        assert await call(conn, "swallowing", True) == ""
    assert await value(conn) == 1


# -- transactions that give way


async def test_a_serialization_failure_is_no_failure_of_the_step(db: str, conn: Connection) -> None:
    for run_id in ("r1", "r2"):
        await enqueue(conn, "sql.call", "add_serializable", ["a", "g"], run_id=run_id)
    async with working(db):
        for run_id in ("r1", "r2"):
            await until_effect(conn, run_id, "a", "read")
        await open_gate(conn, "g")
        for run_id in ("r1", "r2"):
            assert await finished(conn, run_id) is RunStatus.SUCCEEDED
    assert await value(conn) == 2
    assert sorted([await result(conn, "r1"), await result(conn, "r2")]) == ["1", "2"]
    assert await conn.fetchval("SELECT sum(attempts) FROM perdure.workflow_steps") == 0
    read = [await effects(conn, run_id) for run_id in ("r1", "r2")]
    assert sorted(map(len, read)) == [1, 2]


async def test_a_deadlock_is_no_failure_of_the_step(db: str, conn: Connection) -> None:
    await enqueue(conn, "sql.call", "both", ["a", "b", "g"], run_id="r1")
    await enqueue(conn, "sql.call", "both", ["b", "a", "g"], run_id="r2")
    async with working(db):
        await until_effect(conn, "r1", "a", "written")
        await until_effect(conn, "r2", "b", "written")
        await open_gate(conn, "g")
        for run_id in ("r1", "r2"):
            assert await finished(conn, run_id) is RunStatus.SUCCEEDED
    assert (await value(conn, "a"), await value(conn, "b")) == (2, 2)
    assert await conn.fetchval("SELECT sum(attempts) FROM perdure.workflow_steps") == 0


async def test_a_transaction_that_always_gives_way_fails_in_the_end(
    db: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MAX_TRIES", 3)
    async with working(db):
        assert (await call(conn, "giving_way", "a")).startswith("SerializationError: not now")
    assert len(await effects(conn, "r1")) == 3
    assert await value(conn) == 0


# -- other places


async def test_a_transaction_in_a_transaction_is_a_savepoint(db: str, conn: Connection) -> None:
    await enqueue(conn, "sql.call", "nested", [], run_id="r1")
    async with working(db, transaction_connections=1):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await result(conn) == "[1,2]"
    assert (await value(conn, "a"), await value(conn, "b")) == (2, 0)


async def test_in_a_plain_step_it_is_part_of_that_step(db: str, conn: Connection) -> None:
    await enqueue(conn, "sql.call", "adding_step", ["a"], run_id="r1")
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await value(conn) == 1
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflow_steps") == 1


async def test_outside_a_run_it_is_a_plain_transaction(db: str, conn: Connection) -> None:
    assert await sqlflows.add("a") == 1
    with pytest.raises(ValueError, match="a"):
        await sqlflows.add_then_fail("a")
    with pytest.raises(perdure.TransactionMisused):
        await sqlflows.commits()
    assert await value(conn) == 1


async def test_as_many_run_at_once_as_there_are_connections(db: str, conn: Connection) -> None:
    for number in range(6):
        await enqueue(conn, "sql.add", 3, run_id=f"r{number}")
    async with working(db, slots=6, transaction_connections=2):
        for number in range(6):
            assert await finished(conn, f"r{number}") is RunStatus.SUCCEEDED
        # What the pool says last to a session that it takes back.
        held = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE query ~ 'UNLISTEN' AND pid <> pg_backend_pid() AND datname = current_database()"
        )
        assert 1 <= await conn.fetchval(held) <= 2
    assert await value(conn) == 18
