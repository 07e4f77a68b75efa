"""A value that cannot be stored fails its whole batch with a SQLSTATE that says whose fault it is, and nothing is
written: the worker splits the batch until the culprit stands alone."""

import asyncpg
import pytest
from perdure.model.outcome import Cancelled, Ending, ErrorRecord, Failed, Mismatch, Parked, Succeeded
from perdure.model.rows import StepWrite, WaitingFor
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import journal, runs
from perdure.store.journal import RunWrites
from perdure.store.pool import is_bad_row

from tests.store.builders import Connection, claimed, everything, start, write

BAD = {
    "NUL in an output": StepWrite(0, 1, "s", StepStatus.SUCCEEDED, "[]", "\x00"),
    "NUL in a name": StepWrite(0, 1, "s\x00", StepStatus.RUNNING, "[]"),
    "lone surrogate": StepWrite(0, 1, "s", StepStatus.SUCCEEDED, "[]", "\ud800"),
    "index below zero": StepWrite(-1, 1, "s", StepStatus.RUNNING, "[]"),
    "index too large": StepWrite(2**31, 1, "s", StepStatus.RUNNING, "[]"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_one_bad_step_fails_the_batch_and_writes_nothing(conn: Connection, bad: StepWrite) -> None:
    good, culprit = await claimed(conn, "good"), await claimed(conn, "culprit")
    before = await everything(conn)
    batch = [
        RunWrites("good", good.fence, (start(),), Succeeded("1")),
        RunWrites("culprit", culprit.fence, (bad,)),
    ]

    with pytest.raises(asyncpg.PostgresError) as caught:
        await journal.commit(conn, "w1", batch)

    assert is_bad_row(caught.value)
    assert await everything(conn) == before
    assert (await journal.commit(conn, "w1", batch[:1]))["good"].owned


async def test_a_bad_outcome_fails_the_batch_too(conn: Connection) -> None:
    run = await claimed(conn)

    with pytest.raises(asyncpg.CharacterNotInRepertoireError):
        await write(conn, run, ending=Succeeded("\x00"))
    # Errors are stored as ASCII JSON, in which a NUL is an escape.
    assert (await write(conn, run, ending=Failed(ErrorRecord("E", "\x00\ud800")))).ended is RunStatus.FAILED


@pytest.mark.parametrize(
    "ending",
    [
        Cancelled("a\x00b\ud800"),
        Mismatch(ErrorRecord("E", "a\x00b\ud800", step="\x00")),
        Parked(WaitingFor("x", "\ud800", "a\x00b" * 1000), None),
    ],
)
async def test_sentences_for_people_are_always_stored(conn: Connection, ending: Ending) -> None:
    """What an exception's message holds is the user's, and no reason to fail a second time."""
    run = await claimed(conn)

    assert (await write(conn, run, ending=ending)).ended is not None


async def test_a_reason_of_a_cancel_is_always_stored(conn: Connection) -> None:
    await claimed(conn)

    assert await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "a\x00b\ud800") is RunStatus.RUNNING


async def test_the_same_step_twice_in_a_batch_is_the_callers_mistake(conn: Connection) -> None:
    """Writes are folded per step before they are sent."""
    run = await claimed(conn)
    before = await everything(conn)

    with pytest.raises(asyncpg.CardinalityViolationError):
        await write(conn, run, start(0, 1), start(0, 2))

    assert await everything(conn) == before
