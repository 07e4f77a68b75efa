"""Every way in which a worker is done with a run is one log record with the run's attempts and their limit."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import structlog
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs
from perdure.telemetry import settles
from perdure.telemetry.logs import configure, get_logger
from perdure.telemetry.settles import LOGGER, NOT_AT_ONCE, TABLE, Settle, tell
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import enqueue, finished, open_gate, until_effect, working
from tests.worker.test_replay import interrupted


class Records:
    """What was logged of runs since the test began."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    def of(self, run_id: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._stream.getvalue().splitlines()]
        return [line for line in lines if line["logger"] == LOGGER and line["run_id"] == run_id]

    async def one(self, run_id: str, how: Settle) -> dict[str, Any]:
        """The record of this kind, once it is there; there must be one alone."""

        async def there() -> bool:
            return any(record["outcome"] == how.value for record in self.of(run_id))

        await eventually(there, f"{run_id} is logged as {how.value}")
        (record,) = [each for each in self.of(run_id) if each["outcome"] == how.value]
        return record


@contextmanager
def logging_at(level: str) -> Iterator[io.StringIO]:
    """Where the records go, in production's form, until the block is left."""
    root = logging.getLogger()
    handlers, before = root.handlers[:], root.level
    stream = io.StringIO()
    configure(level, stream=stream, json=True)
    try:
        yield stream
    finally:
        root.handlers[:] = handlers
        root.setLevel(before)
        logging.getLogger(LOGGER).setLevel(logging.NOTSET)
        structlog.reset_defaults()


@pytest.fixture
def records() -> Iterator[Records]:
    with logging_at("DEBUG") as stream:
        yield Records(stream)


@pytest.fixture
def by_default() -> Iterator[io.StringIO]:
    """The records that are written at the default level."""
    with logging_at("INFO") as stream:
        yield stream


def attempts(record: dict[str, Any]) -> tuple[int, int | None]:
    return record["run_attempts"], record["max_run_attempts"]


async def test_success(db: str, conn: Connection, records: Records) -> None:
    await enqueue(conn, "t.notes", ["a"], run_id="r1")
    async with working(db, run_attempts=5) as worker:
        await finished(conn, "r1")
        record = await records.one("r1", Settle.SUCCEEDED)
        assert (record["worker_id"], record["workflow"]) == (worker.id, "t.notes")
    assert attempts(record) == (0, 5)
    assert record["level"] == "debug"
    assert len(records.of("r1")) == 1


async def test_retries_and_the_last_failure(db: str, conn: Connection, records: Records) -> None:
    await enqueue(conn, "t.fails", "card 4111", run_id="r1", max_run_attempts=2)
    async with working(db, retry_backoff_seconds=0.0):
        await finished(conn, "r1")
        retried, failed = await records.one("r1", Settle.RETRIED), await records.one("r1", Settle.FAILED)
    assert (attempts(retried), attempts(failed)) == ((1, 2), (2, 2))
    assert (failed["error_type"], failed["step"], failed["level"]) == ("ValueError", "failing", "warning")
    assert "4111" not in str(records.of("r1"))
    assert len(records.of("r1")) == 2


async def test_a_success_after_a_failure_is_no_debugging(db: str, conn: Connection, records: Records) -> None:
    await enqueue(conn, "t.notes", ["a"], run_id="r1")
    await conn.execute("UPDATE perdure.workflows SET run_attempts = 1")
    async with working(db):
        await finished(conn, "r1")
        record = await records.one("r1", Settle.SUCCEEDED)
    assert (record["level"], record["message"]) == ("info", NOT_AT_ONCE[1])
    assert record["run_attempts"] == 1


async def test_a_park(db: str, conn: Connection, records: Records) -> None:
    await enqueue(conn, "t.slow_retry", run_id="r1")
    async with working(db):
        record = await records.one("r1", Settle.PARKED)
    assert (record["waits_for"], record["level"]) == ("RetryBackoff", "debug")
    assert attempts(record) == (0, 1)


async def test_a_release(db: str, conn: Connection, records: Records) -> None:
    await enqueue(conn, "t.gated", "g", run_id="r1")
    async with working(db) as worker:
        await until_effect(conn, "r1", "at", "begun")
        worker.drain()
        await open_gate(conn, "g")
    record = await records.one("r1", Settle.RELEASED)
    assert (record["reason"], record["level"]) == ("the worker stops", "info")


async def test_a_release_by_force(db: str, conn: Connection, records: Records) -> None:
    await enqueue(conn, "t.gated", "never", run_id="r1")
    async with working(db) as worker:
        await until_effect(conn, "r1", "at", "begun")
        worker.force()
    assert attempts(await records.one("r1", Settle.FORCED)) == (0, 1)
    assert len(records.of("r1")) == 1


async def test_a_cancel(db: str, conn: Connection, records: Records) -> None:
    await enqueue(conn, "t.gated", "never", run_id="r1")
    async with working(db):
        await until_effect(conn, "r1", "at", "begun")
        await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "enough")
        assert await finished(conn, "r1") is RunStatus.CANCELLED
        assert (await records.one("r1", Settle.CANCELLED))["level"] == "info"


async def test_a_mismatch_and_its_end(db: str, conn: Connection, records: Records) -> None:
    await interrupted(db, conn, "r1", max_recoveries=1)
    await conn.execute("UPDATE perdure.workflow_steps SET name = 'charge_card' WHERE step_index = 0")
    async with working(db):
        first = await records.one("r1", Settle.MISMATCHED)
        await conn.execute("UPDATE perdure.workflows SET wake_at = now() WHERE id = 'r1'")
        last = await records.one("r1", Settle.GIVEN_UP)
    assert first["code"] == last["code"] == "PRD-301"


async def test_a_run_that_killed_its_workers_too_often(db: str, conn: Connection, records: Records) -> None:
    await interrupted(db, conn, "r1", max_recoveries=0)
    await conn.execute(
        """
        INSERT INTO perdure.workers (id, namespace, pool, pod, pod_uid, version, queues, manifest, slots, state,
                                     lease_until, ended_at)
        VALUES ('gone', 'ns', 'default', 'p', 'u', 'v', '{}', '{}', 1, 40, now(), now());
        UPDATE perdure.workflows SET status = 30, worker_id = 'gone', recovered_at_step = 99 WHERE id = 'r1'
        """
    )
    async with working(db):
        record = await records.one("r1", Settle.GIVEN_UP)
    assert (record["recoveries"], record["worker_id"], record["workflow"]) == (1, None, "t.gated")


async def test_a_run_that_another_worker_has(db: str, conn: Connection, records: Records) -> None:
    await enqueue(conn, "t.gated", "g", run_id="r1")
    async with working(db):
        await until_effect(conn, "r1", "at", "begun")
        await conn.execute("UPDATE perdure.workflows SET fence = fence + 1 WHERE id = 'r1'")
        await open_gate(conn, "g")
        record = await records.one("r1", Settle.LOST)
        assert record["level"] == "warning"


def tell_all(**changes: Any) -> None:
    """Tell of one run for every way, named after it."""
    said = {"worker_id": "w", "workflow": "x", "run_attempts": 0, "max_run_attempts": 3, **changes}
    for how in Settle:
        tell(how, run_id=how.value, **said)


def told(stream: io.StringIO) -> dict[str, dict[str, Any]]:
    """The records by outcome."""
    return {record["outcome"]: record for record in map(json.loads, stream.getvalue().splitlines())}


NOBODY_USED_A_BUDGET = {Settle.SUCCEEDED, Settle.PARKED, Settle.WOKEN}


def test_by_default_what_used_no_budget_is_not_told(by_default: io.StringIO) -> None:
    tell_all()
    assert set(Settle) - set(told(by_default)) == NOBODY_USED_A_BUDGET


@pytest.mark.parametrize("used", [{"run_attempts": 1}, {"recoveries": 2}], ids=["attempts", "recoveries"])
def test_by_default_a_success_that_used_a_budget_is_told(by_default: io.StringIO, used: dict[str, int]) -> None:
    tell_all(**used)
    record = told(by_default)[Settle.SUCCEEDED]
    assert (record["level"], record["message"]) == ("info", NOT_AT_ONCE[1])
    assert used.items() <= record.items()


def test_a_record_has_the_message_of_its_way(by_default: io.StringIO) -> None:
    tell_all()
    assert {how: record["message"] for how, record in told(by_default).items()} == {
        how.value: TABLE[how][1] for how in set(Settle) - NOBODY_USED_A_BUDGET
    }


def test_the_level_of_the_one_logger_shows_all_of_them_and_nothing_else(by_default: io.StringIO) -> None:
    logging.getLogger(LOGGER).setLevel(logging.DEBUG)
    get_logger("perdure.elsewhere").debug("noise", outcome="noise")
    tell_all()
    assert set(told(by_default)) == set(Settle)


def test_nothing_is_built_where_nobody_reads_it(by_default: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    class Untouchable:
        def log(self, *_: object, **__: object) -> None:
            raise AssertionError("a record was built")

    monkeypatch.setattr(settles, "log", Untouchable())
    for how in NOBODY_USED_A_BUDGET:
        tell(how, worker_id="w", run_id="r1", workflow="x", run_attempts=0, max_run_attempts=3)
