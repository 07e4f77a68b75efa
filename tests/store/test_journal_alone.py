"""What a run alone writes from step to step has statements of its own: they do what the large ones do."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from perdure.model.outcome import Ending, Failed, Succeeded
from perdure.model.rows import ClaimedRun, StepWrite
from perdure.model.states import CancelMode, RunStatus
from perdure.store import clients, journal, runs
from perdure.store.journal import RunWrites, alone_of

from tests.store.builders import Connection, add_run, add_worker, claim, failure, finish, row, start, step_rows, write
from tests.store.fenced import ERROR

BEGUN = start(0, 1, fresh=True)
DONE = finish(0, 2, input=None)
NEXT = start(1, 3, fresh=True)


@dataclass(frozen=True)
class Case:
    steps: Sequence[StepWrite]
    ending: Ending | None = None


ALONE = {
    "a start": Case([BEGUN]),
    "a finish": Case([DONE]),
    "a finish and the next start": Case([DONE, NEXT]),
    "the next start, then a finish": Case([NEXT, DONE]),
    "a success": Case([], Succeeded('"out"')),
    "a finish and a success": Case([DONE], Succeeded('"out"')),
}

OTHERWISE = {
    "sent before": RunWrites("r1", 1, [DONE], resent=True),
    "nothing": RunWrites("r1", 1),
    "two starts": RunWrites("r1", 1, [BEGUN, NEXT]),
    "two finishes": RunWrites("r1", 1, [DONE, finish(1, 4, input=None)]),
    "a failure": RunWrites("r1", 1, [failure()]),
    "a success after failures": RunWrites("r1", 1, [replace(DONE, attempts=1, attempt_errors="[]")]),
    "a start where something may be": RunWrites("r1", 1, [start()]),
    "a finish that comes with its start": RunWrites("r1", 1, [finish()]),
    "a start and a success": RunWrites("r1", 1, [NEXT], Succeeded("1")),
    "a failed run": RunWrites("r1", 1, [DONE], Failed(ERROR)),
}

TIMES = {"created_at", "started_at", "finished_at", "run_at", "status_due_at", "waiting_since"}


async def two_runs(conn: Connection, *before: StepWrite) -> list[ClaimedRun]:
    """Claimed, in the same state."""
    await add_worker(conn)
    for run_id in ("r1", "r2"):
        await add_run(conn, run_id, name="n")
    claimed = sorted(await claim(conn), key=lambda run: run.id)
    for run in claimed:
        if before:
            await write(conn, run, *before)
    return claimed


async def state(conn: Connection, run_id: str) -> list[dict[str, Any]]:
    """All that is there of a run, but for its id and the times; of these whether they are set."""
    payload = await conn.fetchrow("SELECT * FROM perdure.workflow_payloads WHERE workflow_id = $1", run_id)
    rows = [await row(conn, run_id), payload, *await step_rows(conn, run_id)]
    return [
        {
            key: value is None if key in TIMES else value
            for key, value in dict(each).items()
            if key not in {"id", "workflow_id"}
        }
        for each in rows
    ]


@pytest.mark.parametrize("case", ALONE.values(), ids=ALONE)
@pytest.mark.parametrize("flag", ["", "cancelled", "suspended", "awaited"])
async def test_alone_it_is_written_as_with_others(conn: Connection, case: Case, flag: str) -> None:
    one, other = await two_runs(conn, *([] if BEGUN in case.steps else [BEGUN]))
    for run in (one, other):
        if flag == "cancelled":
            await runs.cancel(conn, run.id, CancelMode.GRACEFUL, "why")
        elif flag == "suspended":
            await conn.execute("UPDATE perdure.workflows SET suspended = true WHERE id = $1", run.id)
        elif flag == "awaited":
            await clients.watch(conn, [run.id], [run.id], most_bytes=100)
    wanted = RunWrites(one.id, one.fence, case.steps, case.ending)
    assert alone_of(wanted) is not None
    alone = (await journal.commit(conn, "w1", [wanted]))[one.id]
    resent = RunWrites(other.id, other.fence, case.steps, case.ending, resent=True)
    with_others = (await journal.commit(conn, "w1", [resent]))[other.id]
    assert alone == with_others
    assert await state(conn, one.id) == await state(conn, other.id)


@pytest.mark.parametrize("writes", OTHERWISE.values(), ids=OTHERWISE)
def test_what_is_not_the_usual_course_is_left_to_the_large_statements(writes: RunWrites) -> None:
    assert alone_of(writes) is None


@pytest.mark.parametrize("ending", [None, Succeeded("1")], ids=["goes on", "ends"])
async def test_a_finish_without_a_row_is_written_the_other_way(conn: Connection, ending: Ending | None) -> None:
    """It cannot happen while starts are answered before bodies begin; a lost write would be worse than a slow one."""
    run, _ = await two_runs(conn)
    ack = await write(conn, run, DONE, ending=ending)
    assert ack.ended is (None if ending is None else RunStatus.SUCCEEDED)
    assert [(each["step_index"], each["output"]) for each in await step_rows(conn, run.id)] == [(0, '"ok"')]


async def test_a_finish_that_is_there_already_changes_nothing(conn: Connection) -> None:
    run, _ = await two_runs(conn, BEGUN)
    await write(conn, run, DONE)
    before = await step_rows(conn, run.id)
    assert (await write(conn, run, replace(DONE, output='"other"'))).owned
    assert await step_rows(conn, run.id) == before


async def test_a_start_that_is_there_already_is_told_apart(conn: Connection) -> None:
    run, _ = await two_runs(conn, BEGUN)
    with pytest.raises(Exception, match="workflow_steps_pkey") as caught:
        await write(conn, run, BEGUN)
    assert journal.is_not_fresh(caught.value)
