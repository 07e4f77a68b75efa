"""Every statement that writes for a claim, against a fence that moves while the statement waits for it."""

import pytest
from perdure.model.rows import WaitingFor
from perdure.store import backlog

from tests.store.builders import Connection, add_run, claimed, everything
from tests.store.fenced import FENCED, UNFENCED, Fenced, contents, writing
from tests.support.pgwait import holding, waiting

MOVES = {
    "to nobody": "UPDATE perdure.workflows SET status = 10, worker_id = NULL, fence = fence + 1",
    "to another worker": "UPDATE perdure.workflows SET worker_id = 'w2', fence = fence + 1",
    "to the same worker anew": "UPDATE perdure.workflows SET fence = fence + 2",
    # The fence rises with the owner, always. Each half of the test must do if the other is missing (R1, R2).
    "to nobody under the same fence": "UPDATE perdure.workflows SET status = 10, worker_id = NULL",
    "to another worker under the same fence": "UPDATE perdure.workflows SET worker_id = 'w2'",
}

every_statement = pytest.mark.parametrize("case", FENCED.values(), ids=FENCED.keys())


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
@every_statement
async def test_nothing_is_written_once_the_fence_has_moved(
    conn: Connection, observer: Connection, pg_url: str, case: Fenced, move: str
) -> None:
    run = await claimed(conn)
    if case.before is not None:
        await case.before(conn, run)
    async with holding(pg_url, (move,)) as mover:
        task = await waiting(observer, case.send(conn, run))
        moved = await contents(mover)
    answer = await task

    assert await contents(observer) == moved
    assert not getattr(answer, "owned", answer)


@every_statement
async def test_something_is_written_while_it_has_not(conn: Connection, case: Fenced) -> None:
    """Else the test above would say nothing."""
    run = await claimed(conn)
    if case.before is not None:
        await case.before(conn, run)
    before = await contents(conn)
    answer = await case.send(conn, run)

    assert await contents(conn) != before
    assert getattr(answer, "owned", answer)


async def test_a_reason_is_not_written_under_another_fence(conn: Connection) -> None:
    await add_run(conn)
    await conn.execute("UPDATE perdure.workflows SET fence = fence + 1")
    before = await everything(conn)

    assert await backlog.set_waiting(conn, [("r1", 0, WaitingFor("x"))]) == []

    assert await everything(conn) == before


def test_of_every_statement_that_writes_it_is_known_whether_a_claim_sends_it() -> None:
    fenced = {case.statement for case in FENCED.values()}
    others = [name for names in UNFENCED.values() for name in names]
    assert len(others) == len(set(others))
    assert not fenced & set(others)
    assert writing() == fenced | set(others)
