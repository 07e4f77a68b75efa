"""Which bodies are said to have begun although their step was final, and which writes nobody was entitled to, by the
statements that look for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from perdure.model.outcome import Succeeded

from tests.faults.database import Database, database
from tests.store.builders import claimed, finish
from tests.store.builders import write as store_write
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


async def taken_away(traces: Database, prepare: str = "SELECT 1") -> list[str]:
    """What is said of a run that has ended well, whose steps and whose row somebody removes after this statement."""

    async def write(connection: Any) -> None:
        run = await claimed(connection, "r")
        await store_write(connection, run, finish(0, 1), ending=Succeeded("1"))
        await connection.execute(prepare)
        await connection.execute("TRUNCATE faults.step_writes, faults.run_writes")
        await connection.execute("DELETE FROM perdure.workflow_steps")
        await connection.execute("DELETE FROM perdure.workflows")

    await traces.ask(write)
    return sorted(row["what"] for row in await traces.rows("zombies"))


async def test_what_is_to_be_removed_may_go_once_it_has_ended(traces: Database) -> None:
    assert await taken_away(traces, "UPDATE perdure.workflows SET deleted = true") == []


async def test_a_run_that_nobody_wants_removed_may_not_go(traces: Database) -> None:
    assert await taken_away(traces) == ["run", "step 0"]


async def test_a_run_that_has_ended_well_is_claimable_again_only_by_a_rewind(traces: Database) -> None:
    async def write(connection: Any) -> None:
        for name in ("rewound", "changed"):
            run = await claimed(connection, name)
            await store_write(connection, run, ending=Succeeded("1"))
        await connection.execute("TRUNCATE faults.step_writes, faults.run_writes")
        again = "UPDATE perdure.workflows SET status = 10, fence = fence + 1, finished_at = NULL"
        await connection.execute(f"{again}, rewinds = rewinds + 1 WHERE id = 'rewound'")
        await connection.execute(f"{again} WHERE id = 'changed'")

    await traces.ask(write)
    assert [row["run"] for row in await traces.rows("zombies")] == ["changed"]
