"""Messages out of the bodies of steps: under the fence, once for each key, and nothing recorded of them."""

from perdure.model.calls import PlainSend
from perdure.model.rows import ClaimedRun
from perdure.model.states import CancelMode
from perdure.store import plain, runs
from perdure.store.transaction import Claim

from tests.store.builders import Connection, add_run, claimed, row, step_rows


async def send(conn: Connection, run: ClaimedRun, to: str = "r1", key: str = "k", value: str = "1") -> bool | None:
    return await plain.send(conn, Claim(run.id, "w1", run.fence), PlainSend(to, "t", key, value))


async def inbox(conn: Connection) -> list[tuple[str, str]]:
    rows = await conn.fetch("SELECT workflow_id, value FROM perdure.messages ORDER BY id")
    return [(found["workflow_id"], found["value"]) for found in rows]


async def test_it_is_there_once_for_each_key_and_neither_run_nor_step_is_written(conn: Connection) -> None:
    run = await claimed(conn)
    before = await row(conn, run.id)
    assert [await send(conn, run, key=key, value=value) for key, value in (("a", "1"), ("b", "2"), ("a", "3"))] == [
        True
    ] * 3
    assert await inbox(conn) == [("r1", "1"), ("r1", "2")]
    assert await row(conn, run.id) == before
    assert await step_rows(conn, run.id) == []


async def test_to_nobody_it_is_not_done(conn: Connection) -> None:
    run = await claimed(conn)
    assert await send(conn, run, to="nobody") is False
    assert await inbox(conn) == []


async def test_a_graceful_cancel_lets_the_step_send(conn: Connection) -> None:
    run = await claimed(conn)
    await runs.cancel(conn, run.id, CancelMode.GRACEFUL, "enough")
    assert await send(conn, run) is True


async def test_under_another_fence_or_by_another_worker_nothing_is_sent(conn: Connection) -> None:
    run = await claimed(conn)
    await add_run(conn, "other")
    assert await plain.send(conn, Claim(run.id, "w2", run.fence), PlainSend("other", "t", "k", "1")) is None
    await conn.execute("UPDATE perdure.workflows SET fence = fence + 2 WHERE id = $1", run.id)
    assert await send(conn, run, to="other") is None
    assert await inbox(conn) == []
