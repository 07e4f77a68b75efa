"""`perdure.transaction`: the user's rows and the checkpoint are committed together, or neither is."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from perdure.model.states import RunStatus
from perdure.store import runs
from perdure.store.pool import connect
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import effects, enqueue, finished, open_gate, until_effect, working
from tests.worker import sqlflows


@pytest.fixture(autouse=True)
async def tables(conn: Connection) -> None:
    await conn.execute(sqlflows.TABLES)


async def value(conn: Connection, name: str = "a") -> int:
    return int(await conn.fetchval("SELECT value FROM public.counters WHERE name = $1", name))


async def result(conn: Connection, run_id: str = "r1") -> Any:
    return await conn.fetchval("SELECT output::jsonb FROM perdure.workflow_payloads WHERE workflow_id = $1", run_id)


async def test_rows_and_outcome_are_committed_together(db: str, conn: Connection) -> None:
    await enqueue(conn, "sql.add", 3, run_id="r1")
    async with working(db):
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    assert await result(conn) == "[1, 2, 3]"
    assert await value(conn) == 3
    steps = await conn.fetch("SELECT xmin::text, status, output, seq FROM perdure.workflow_steps ORDER BY step_index")
    assert [(step["status"], step["output"]) for step in steps] == [(30, "1"), (30, "2"), (30, "3")]
    # The last step's row was written by the very transaction that wrote the user's.
    assert await conn.fetchval("SELECT xmin::text FROM public.counters WHERE name = 'a'") == steps[2]["xmin"]
