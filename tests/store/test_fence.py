"""Every statement that writes a run under a fence, against a fence that moves while the statement waits for it."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from perdure.model.outcome import (
    Cancelled,
    Ending,
    ErrorRecord,
    Failed,
    Mismatch,
    Parked,
    Released,
    Succeeded,
)
from perdure.model.rows import ClaimedRun, WaitingFor
from perdure.store import backlog, statements, workers

from tests.store.builders import Connection, add_run, claimed, everything, failure, finish, start, write
from tests.support.pgwait import holding, waiting

Statement = Callable[[Connection, ClaimedRun], Awaitable[object]]


def ending(value: Ending) -> Statement:
    return lambda conn, run: write(conn, run, finish(7, 9), ending=value)


UNDER_A_FENCE: dict[str, Statement] = {
    "start": lambda conn, run: write(conn, run, start()),
    "fresh start": lambda conn, run: write(conn, run, start(fresh=True)),
    "finish": lambda conn, run: write(conn, run, finish()),
    "failure": lambda conn, run: write(conn, run, failure()),
    "succeeded": ending(Succeeded("1")),
    "failed": ending(Failed(ErrorRecord("E", "m"))),
    "cancelled": ending(Cancelled("why")),
    "mismatch": ending(Mismatch(ErrorRecord("E", "m"))),
    "parked": ending(Parked(WaitingFor("x"), 1.0)),
    "released": ending(Released("drain")),
    "give back": lambda conn, run: workers.give_back(conn, "w1", [(run.id, run.fence)]),
}

CALLS = {"call_start", "call_send", "call_receive", "call_set_event", "call_await_event"}
"""Tried with all that concerns them in `test_calls`."""

MOVES = {
    "to nobody": "UPDATE perdure.workflows SET status = 10, worker_id = NULL, fence = fence + 1",
    "to another worker": "UPDATE perdure.workflows SET worker_id = 'w2', fence = fence + 1",
    "to the same worker anew": "UPDATE perdure.workflows SET fence = fence + 2",
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
@pytest.mark.parametrize("statement", UNDER_A_FENCE.values(), ids=UNDER_A_FENCE.keys())
async def test_nothing_is_written_once_the_fence_has_moved(
    conn: Connection, observer: Connection, pg_url: str, statement: Statement, move: str
) -> None:
    run = await claimed(conn)
    async with holding(pg_url, (move,)) as mover:
        task = await waiting(observer, statement(conn, run))
        moved = await everything(mover)
    answer = await task

    assert await everything(observer) == moved
    assert not getattr(answer, "owned", answer)


async def test_a_reason_is_not_written_under_another_fence(conn: Connection) -> None:
    await add_run(conn)
    await conn.execute("UPDATE perdure.workflows SET fence = fence + 1")
    before = await everything(conn)

    assert await backlog.set_waiting(conn, [("r1", 0, WaitingFor("x"))]) == []

    assert await everything(conn) == before


def test_every_statement_that_takes_a_fence_is_tried() -> None:
    """Whoever adds one adds it here. Rows of arguments are called sent, r and x."""
    folder = Path(statements.__file__).parent / "sql"
    fenced = {path.stem for path in folder.glob("*.sql") if re.search(r"\b(sent|[rx])\.fence\b", path.read_text())}
    assert fenced == {"journal_commit", "worker_give_back", "backlog_set_waiting", "call_outcomes", *CALLS}
