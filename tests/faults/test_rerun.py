"""Which bodies are said to have begun although their step was final, by the statement that looks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from tests.faults.database import Database, database
from tests.support.postgres import PostgresServer

RACE_LOST = 45
SUCCEEDED = 30


@pytest.fixture
async def traces(pg_server: PostgresServer) -> AsyncIterator[Database]:
    async with database(pg_server) as made:
        yield made


async def rerun(traces: Database, *, status: int, asked: float, step_fence: int = 1) -> int:
    """How many are said when a body that asked at `asked` under fence 1 finds its step so, written at second 100."""

    async def write(connection: Any) -> None:
        await connection.execute(
            "INSERT INTO faults.effects (id, run, step_index, key, fence, attempt, worker, asked, run_fence, "
            "step_status, step_fence) VALUES ($1, 'r', 1, 'k', 1, 1, 'w', $2, 1, $3, $4) ON CONFLICT DO NOTHING",
            uuid4(),
            asked,
            status,
            step_fence,
        )
        await connection.execute(
            "INSERT INTO faults.step_writes (at, app, run, step_index, status, fence) "
            "VALUES (to_timestamp(100), 'w', 'r', 1, $1, $2)",
            status,
            step_fence,
        )

    await traces.ask(write)
    return len(await traces.rows("rerun", 0.0))


async def test_a_body_of_a_finished_step_is_said(traces: Database) -> None:
    assert await rerun(traces, status=SUCCEEDED, asked=99.0) == 1


async def test_the_loser_of_a_race_may_tell_of_its_beginning_after_it_has_lost(traces: Database) -> None:
    assert await rerun(traces, status=RACE_LOST, asked=99.9) == 0


async def test_a_loser_that_begins_after_the_race_is_said(traces: Database) -> None:
    assert await rerun(traces, status=RACE_LOST, asked=101.0) == 1


async def test_a_loser_of_an_earlier_claim_is_said(traces: Database) -> None:
    assert await rerun(traces, status=RACE_LOST, asked=99.0, step_fence=0) == 1
