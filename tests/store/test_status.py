import pytest
from perdure.model.outcome import ErrorRecord, Failed, Parked, Succeeded
from perdure.model.rows import StatusSource, StepCounts, StepWrite, WaitingFor
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import backlog, runs, status, workers
from perdure.store.statements import sql

from tests.store.builders import (
    Connection,
    add_run,
    claim,
    claimed,
    failure,
    finish,
    let_time_pass,
    new_run,
    row,
    start,
    write,
)
from tests.support.pgwait import holding


async def read(conn: Connection, run_id: str = "r1") -> StatusSource:
    [source] = await status.read(conn, [run_id])
    return source


async def test_read_brings_run_payload_worker_and_steps(conn: Connection) -> None:
    run = await claimed(conn, generation=4, definition="{}")
    await write(conn, run, start(0, 1))
    await write(conn, run, finish(0, 2), start(1, 3))

    source = await read(conn)

    view = source.run
    assert (view.status, view.fence, view.last_seq, view.edits) == (RunStatus.RUNNING, 1, 3, 0)
    assert (view.worker_pod, view.version, view.definition, view.generation) == ("pod-w1", "v1", "{}", 4)
    assert source.counts == StepCounts(succeeded=1, running=1)
    assert [(step.index, step.status, step.output) for step in source.steps] == [
        (0, StepStatus.SUCCEEDED, '"ok"'),
        (1, StepStatus.RUNNING, None),
    ]


async def test_read_keeps_the_order_asked_for_and_leaves_out_what_is_unknown(conn: Connection) -> None:
    for name in ("a", "b"):
        await add_run(conn, name)

    assert [each.run.id for each in await status.read(conn, ["b", "no", "a", "b"])] == ["b", "a"]
    assert await status.read(conn, []) == []


async def test_waiting_and_ended_runs_are_read_whole(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=Parked(WaitingFor("Message", "topic", "send it"), 60.0))
    parked = (await read(conn)).run
    assert parked.waiting_for is not None
    assert (parked.waiting_for.kind, parked.waiting_for.name) == ("Message", "topic")
    assert parked.waiting_for.until == parked.wake_at
    assert parked.worker_pod is None

    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "why")
    ended = (await read(conn)).run
    assert (ended.status, ended.cancel_reason, ended.waiting_for) == (RunStatus.CANCELLED, "why", None)


async def test_at_most_a_hundred_steps_failures_and_live_ones_first(conn: Connection) -> None:
    run = await claimed(conn)
    steps = [finish(n, n + 1) for n in range(150)]
    steps[3] = failure(3, 4)
    steps[5] = start(5, 6)
    steps[7] = StepWrite(7, 8, "s", StepStatus.RETRYING, "[]", attempts=1, wake_in=9.0)
    await write(conn, run, *steps)

    source = await read(conn)

    assert source.counts == StepCounts(succeeded=147, failed=1, running=1, retrying=1)
    indexes = [step.index for step in source.steps]
    assert indexes == [3, 5, 7, *range(53, 150)]
    assert source.steps[0].error is not None
    assert source.steps[2].wake_at is not None


async def test_large_outputs_are_left_out_and_counted(conn: Connection) -> None:
    run = await claimed(conn)
    await write(
        conn,
        run,
        finish(0, 1, output="x" * 1024),
        finish(1, 2, output="x" * 1025),
        ending=Succeeded("y" * 4097),
    )

    source = await read(conn)

    assert [step.output is None for step in source.steps] == [False, True]
    assert (source.run.output, source.run.output_bytes) == (None, 4097)


async def test_an_endless_error_is_cut(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=Failed(ErrorRecord("E", "m" * 100_000)))

    source = await read(conn)

    assert source.run.error is not None
    assert len(source.run.error) == status.ERROR_CHARACTERS


async def test_revision_rises_with_everything_that_shows(conn: Connection) -> None:
    """And equal revisions mean equal content."""
    seen: list[StatusSource] = []

    async def look() -> None:
        source = await read(conn)
        assert await read(conn) == source
        if seen:
            assert source.run.revision > seen[-1].run.revision
        seen.append(source)

    await add_run(conn, generation=1)
    await look()
    await runs.upsert(conn, new_run(generation=2, suspended=True))
    await look()
    await runs.upsert(conn, new_run(generation=3))
    await look()
    await let_time_pass(conn, "waiting_since", 10)
    await backlog.set_waiting(conn, [("r1", 0, WaitingFor("NoFreeSlot"))])
    await look()
    run = await claimed(conn, generation=3)
    await look()
    await write(conn, run, start(0, 1))
    await look()
    await write(conn, run, finish(0, 2), start(1, 3))
    await look()
    await runs.upsert(conn, new_run(generation=4))
    await look()
    await workers.mark_dead(conn, ["uid-w1"])
    await workers.move(conn, ["w1"], 10)
    await look()
    again = await claimed(conn, worker_id="w2", generation=4)
    await look()
    await write(conn, again, finish(1, 1), ending=Succeeded("1"), worker_id="w2")
    await look()
    await runs.upsert(conn, new_run(generation=5))
    await look()


async def test_reported_runs_are_due_no_more_until_they_move_on(conn: Connection) -> None:
    await add_run(conn, generation=1)
    assert await status.due(conn, 10) == ["r1"]

    await status.mark_reported(conn, [("r1", (await read(conn)).run.revision)])

    assert await status.due(conn, 10) == []
    await runs.upsert(conn, new_run(generation=2))
    assert await status.due(conn, 10) == ["r1"]


async def test_what_moved_on_while_it_was_reported_stays_due(conn: Connection) -> None:
    await add_run(conn, generation=1)
    reported = (await read(conn)).run.revision
    await runs.upsert(conn, new_run(generation=2))

    await status.mark_reported(conn, [("r1", reported)])

    assert await status.due(conn, 10) == ["r1"]
    assert (await row(conn))["reported_revision"] == reported


async def test_reported_revision_only_rises(conn: Connection) -> None:
    run = await claimed(conn)
    await write(conn, run, ending=Succeeded("1"))
    revision = (await read(conn)).run.revision
    await status.mark_reported(conn, [("r1", revision), ("r1", revision - 1)])

    await status.mark_reported(conn, [("r1", revision - 5), ("unknown", 1)])

    stored = await row(conn)
    assert (stored["reported_revision"], stored["status_due_at"]) == (revision, None)


async def test_a_report_behind_an_edit_does_not_clear_it(conn: Connection, pg_url: str) -> None:
    """The edit is committed between the read and the note."""
    await add_run(conn, generation=1)
    reported = (await read(conn)).run.revision
    async with holding(pg_url) as editing:
        await runs.upsert(editing, new_run(generation=2))
        await editing.execute("COMMIT")
        await status.mark_reported(conn, [("r1", reported)])

    assert await status.due(conn, 10) == ["r1"]


async def test_due_leaves_owned_gone_and_unnamed_runs_and_what_is_not_due_yet(conn: Connection) -> None:
    await claimed(conn, "owned")
    await add_run(conn, "gone")
    await runs.resource_gone(conn, ["gone"])
    await add_run(conn, "unnamed", name=None)
    await add_run(conn, "fresh")
    ended = await claimed(conn, "ended", worker_id="w2", queue="q")
    await write(conn, ended, ending=Succeeded("1"), worker_id="w2")

    assert await status.due(conn, 10) == ["fresh"]
    # The worker that ended it has a few seconds to say so itself.
    await let_time_pass(conn, "status_due_at", 5)
    assert await status.due(conn, 10) == ["fresh", "ended"]
    assert await status.due(conn, 1) == ["fresh"]


async def test_what_could_not_be_written_holds_up_no_others(conn: Connection) -> None:
    await add_run(conn, "a")
    await add_run(conn, "b")

    await status.postpone(conn, ["a"], 60.0)

    assert await status.due(conn, 10) == ["b"]


async def test_runs_taken_from_the_dead_are_due_at_once(conn: Connection) -> None:
    run = await claimed(conn)
    await status.mark_reported(conn, [("r1", run.fence << 20)])
    assert (await row(conn))["status_due_at"] is None
    await workers.mark_dead(conn, ["uid-w1"])
    await workers.move(conn, ["w1"], 10)

    assert await status.due(conn, 10) == ["r1"]


async def test_read_is_one_snapshot(conn: Connection, observer: Connection) -> None:
    """Run and steps in one statement: a step written in between cannot show with the older revision."""
    assert sql("status_read").count(";") == 0
    run = await claimed(conn)
    async with observer.transaction(isolation="repeatable_read"):
        before = await read(observer)
        await write(conn, run, start())
        assert await read(observer) == before
    assert (await read(observer)).run.revision == before.run.revision + 1


@pytest.mark.parametrize("seq", [1, (1 << 20) + 5])
async def test_the_database_computes_the_same_revision(conn: Connection, seq: int) -> None:
    run = await claimed(conn)
    await write(conn, run, start(0, seq))

    await status.mark_reported(conn, [("r1", (await read(conn)).run.revision)])

    assert (await row(conn))["status_due_at"] is None
    assert len(await claim(conn)) == 0
