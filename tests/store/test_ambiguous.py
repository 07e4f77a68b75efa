"""Commits whose answer was lost: resent unchanged for ever, nothing is written twice and the answer is the truth."""

import pytest
from perdure.model.outcome import Ending, ErrorRecord, Failed, Parked, Released, Succeeded
from perdure.model.rows import WaitingFor
from perdure.model.states import RunStatus, StepStatus
from perdure.store import journal, workers

from tests.store.builders import (
    Connection,
    add_worker,
    claim,
    claimed,
    everything,
    expire,
    finish,
    row,
    start,
    write,
)
from tests.support.pgwait import holding, waiting

ENDINGS: list[tuple[Ending, RunStatus]] = [
    (Succeeded("1"), RunStatus.SUCCEEDED),
    (Failed(ErrorRecord("E", "m")), RunStatus.FAILED),
    (Parked(WaitingFor("x"), None), RunStatus.WAITING),
    (Released("drain"), RunStatus.ENQUEUED),
]


async def test_steps_resent_unchanged_write_nothing_twice(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, start(), finish(1, 2))
    before = await everything(conn)

    ack = await write(conn, run, start(), finish(1, 2))

    assert ack.owned
    assert await everything(conn) == before
    assert await journal.steps_at(conn, "r1", run.fence, [0, 1, 2]) == {
        0: (1, StepStatus.RUNNING),
        1: (2, StepStatus.SUCCEEDED),
    }


@pytest.mark.parametrize(("ending", "status"), ENDINGS)
async def test_an_ending_resent_looks_lost_and_was_mine(conn: Connection, ending: Ending, status: RunStatus) -> None:
    run = await claimed(conn)
    assert (await write(conn, run, finish(), ending=ending)).ended is status
    before = await everything(conn)

    ack = await write(conn, run, finish(), ending=ending)

    assert (ack.owned, ack.ended) == (False, None)
    assert await everything(conn) == before
    assert await journal.was_mine(conn, "w1", "r1", run.fence) is status


async def test_a_claim_lost_to_a_reclaim_was_not_mine(conn: Connection) -> None:
    run = await claimed(conn)
    await expire(conn, "w1")
    await workers.mark_expired(conn, 10)
    await workers.move(conn, ["w1"], 10)

    assert not (await write(conn, run, ending=Succeeded("1"))).owned
    assert await journal.was_mine(conn, "w1", "r1", run.fence) is None
    assert await journal.was_mine(conn, "w1", "unknown", 1) is None


async def test_another_workers_ending_is_not_mine(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=Released("drain"))
    await add_worker(conn, "w2")
    [theirs] = await claim(conn, "w2")
    await write(conn, theirs, ending=Succeeded("1"), worker_id="w2")

    assert await journal.was_mine(conn, "w1", "r1", run.fence) is None
    assert await journal.was_mine(conn, "w2", "r1", theirs.fence) is RunStatus.SUCCEEDED


async def test_the_resent_copy_waits_for_its_twin_and_changes_nothing(
    conn: Connection, observer: Connection, pg_url: str
) -> None:
    """The first copy is still on its way: the second queues behind it on the run's row."""
    run = await claimed(conn)
    async with holding(pg_url) as first:
        await write(first, run, start(), finish(1, 2))
        resent = await waiting(observer, write(conn, run, start(), finish(1, 2)))
    before = await everything(observer)

    assert (await resent).owned
    assert await everything(conn) == before
    assert len(before[2]) == 2


async def test_a_late_ending_does_not_touch_the_next_claim(conn: Connection) -> None:
    """The first copy commits a minute later, when another worker already has the run."""
    run = await claimed(conn)
    await expire(conn, "w1")
    await workers.mark_expired(conn, 10)
    await workers.move(conn, ["w1"], 10)
    await add_worker(conn, "w2")
    await claim(conn, "w2")
    before = await everything(conn)

    for ending, _ in ENDINGS:
        assert not (await write(conn, run, start(), finish(1, 3), ending=ending)).owned

    assert await everything(conn) == before
    assert (await row(conn))["worker_id"] == "w2"
