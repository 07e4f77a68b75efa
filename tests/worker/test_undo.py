"""Undo on real workers: after the last attempt what a run has done is undone, over crashes, cancels and deadlines."""

from collections.abc import AsyncIterator

import perdure
import pytest
from perdure.errors import CompensationFailed, InvalidArgument, WorkflowCancelled, WorkflowNotRewindable
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import runs, sweeps
from perdure.telemetry import names
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import TEST_LEASE, WorkerProcess, effects, open_gate, until_effect, working
from tests.worker import undoflows as flows

SOON = 20.0
BACK = "given back"


@pytest.fixture
async def client(db: str) -> AsyncIterator[perdure.Client]:
    async with perdure.Client(db, "ns") as client:
        yield client


async def given_back(conn: Connection, run_id: str = "r") -> list[str]:
    return [label for label, what in await effects(conn, run_id) if what == BACK]


async def state(conn: Connection, run_id: str = "r") -> tuple[int | None, int | None]:
    row = await conn.fetchrow("SELECT undo, undo_at FROM perdure.workflows WHERE id = $1", run_id)
    return row["undo"], row["undo_at"]


async def shut(client: perdure.Client) -> perdure.Handle[str]:
    handle = await client.start(flows.order.options(id="r"), "g")
    with pytest.raises(ValueError, match="g is shut"):
        await handle.result(SOON)
    return handle


async def first_attempt_over(handle: perdure.Handle[str]) -> None:
    async def delayed() -> bool:
        return await handle.status() is RunStatus.DELAYED

    await eventually(delayed, "the first attempt has failed")


async def test_a_run_that_fails_for_good_undoes_what_it_had_done_the_last_first(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db) as worker:
        handle = await shut(client)
    assert worker.metrics.value(names.RUNS_UNDONE, "ns", "u.order", "complete") == 1
    assert await given_back(conn) == ["b", "a"]
    steps = await client.list_steps("r")
    assert [(step.name, step.status) for step in steps[2:]] == [
        ("u.open", StepStatus.FAILED),
        ("perdure.undo", StepStatus.SUCCEEDED),
        ("u.give_back", StepStatus.SUCCEEDED),
        ("u.give_back", StepStatus.SUCCEEDED),
    ]
    assert await handle.status() is RunStatus.FAILED


async def test_a_run_with_attempts_left_is_tried_again_and_undoes_nothing(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db, run_attempts=2):
        handle = await client.start(flows.order.options(id="r"), "g")
        await first_attempt_over(handle)
        await open_gate(conn, "g")
        await conn.execute("UPDATE perdure.workflows SET wake_at = now()")
        await sweeps.wake_due(conn, 10)
        assert await handle.result(SOON) == "g"
    assert await given_back(conn) == []
    assert await effects(conn, "r") == [("a", "taken"), ("b", "taken")]


async def test_killed_while_it_undoes_another_worker_goes_on_from_there(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    with WorkerProcess(db, modules="tests.worker.undoflows") as first:
        await first.works()
        await client.start(flows.slow.options(id="r"), "g", "until")
        await until_effect(conn, "r", "b", "begun")
        first.process.kill()
        first.process.wait()
    await open_gate(conn, "until")
    await open_gate(conn, "g")  # the body is not asked again
    async with working(db):
        with pytest.raises(ValueError, match="g is shut"):
            await client.handle("r").result(TEST_LEASE + SOON)
    done = await effects(conn, "r")
    assert [each for each in done if each[1] == BACK] == [("b", BACK), ("a", BACK)]
    assert done.count(("b", "begun")) == 2


async def test_what_cannot_be_undone_is_told_with_the_failure_and_a_resume_tries_it_again(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db) as worker:
        handle = await client.start(flows.half.options(id="r"), "g", "fixed")
        with pytest.raises(CompensationFailed, match="1 of 3 steps could not be undone") as told:
            await handle.result(SOON)
        assert (type(told.value.error), str(told.value.error)) == (ValueError, "g is shut")
        assert [str(each) for each in told.value.failures] == ["fixed is shut"]
        assert worker.metrics.value(names.RUNS_UNDONE, "ns", "u.half", "incomplete") == 1
        assert await given_back(conn) == ["c", "a"]
        await open_gate(conn, "fixed")
        await client.resume("r")
        with pytest.raises(ValueError, match="g is shut"):
            await handle.result(SOON)
    assert await given_back(conn) == ["c", "a", "b"]


async def test_a_transaction_is_undone_by_another_one(client: perdure.Client, db: str, conn: Connection) -> None:
    async with working(db):
        handle = await client.start(flows.books.options(id="r"), "g")
        with pytest.raises(ValueError, match="g is shut"):
            await handle.result(SOON)
    assert [row["name"] for row in await conn.fetch("SELECT name FROM public.gates")] == ["seat: too late"]


async def test_a_run_that_waits_for_its_next_attempt_is_undone_when_it_is_cancelled_so(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db, run_attempts=2):
        handle = await client.start(flows.order.options(id="r"), "g")
        await first_attempt_over(handle)
        assert await handle.cancel(mode=CancelMode.COMPENSATE) is RunStatus.ENQUEUED
        with pytest.raises(WorkflowCancelled):
            await handle.result(SOON)
    assert await given_back(conn) == ["b", "a"]


async def test_a_deadline_and_a_cancel_have_no_say_while_a_run_undoes(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        handle = await client.start(flows.slow.options(id="r", timeout=60), "g", "until")
        await until_effect(conn, "r", "b", "begun")
        assert (await handle.details()).undoes
        await conn.execute("UPDATE perdure.workflows SET deadline_at = now()")
        assert await sweeps.cancel_overdue(conn, 10) == []
        for mode in CancelMode:
            assert await handle.cancel(mode=mode) is RunStatus.RUNNING
        await open_gate(conn, "until")
        with pytest.raises(ValueError, match="g is shut"):
            await handle.result(SOON)
        assert not (await handle.details()).undoes
    assert await given_back(conn) == ["b", "a"]


async def test_a_delete_comes_before_what_is_not_undone_yet(client: perdure.Client, db: str, conn: Connection) -> None:
    async with working(db):
        await client.start(flows.slow.options(id="r"), "g", "until")
        await until_effect(conn, "r", "b", "begun")
        await client.delete("r")

        async def ended() -> bool:
            status = await conn.fetchval("SELECT status FROM perdure.workflows WHERE id = 'r'")
            return status in {None, RunStatus.CANCELLED}

        await eventually(ended, "the run ends", SOON)
    assert await given_back(conn) == []


async def test_a_run_that_was_undone_goes_on_from_before_that_and_from_nowhere_behind(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        handle = await shut(client)
        await open_gate(conn, "g")
        for cut in (1, 2, 3):
            with pytest.raises(WorkflowNotRewindable, match="an index up to 0 can be"):
                await client.rewind("r", cut)
        with pytest.raises(InvalidArgument, match="an index up to 0 can be"):
            await client.fork("r", 2)
        await client.rewind("r", 0)
        assert await handle.result(SOON) == "g"
    assert await state(conn) == (0, None)
    assert [label for label, what in await effects(conn, "r") if what == "taken"] == ["a", "b", "a", "b"]


async def test_what_is_undone_once_more_is_undone_from_a_step_of_it_on(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        handle = await shut(client)
        await client.rewind("r", 5)
        with pytest.raises(ValueError, match="g is shut"):
            await handle.result(SOON)
    assert await given_back(conn) == ["b", "a", "a"]


async def test_a_fork_undoes_nothing_that_another_run_has_done(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    await open_gate(conn, "g")
    async with working(db):
        assert await client.run(flows.order.options(id="r"), "g") == "g"
        await conn.execute("DELETE FROM public.gates")
        fork = await client.fork("r", 1, id="f")
        with pytest.raises(ValueError, match="g is shut"):
            await fork.result(SOON)
    assert await given_back(conn, "f") == ["b"]
    assert await given_back(conn) == []


async def test_a_run_that_was_undone_and_is_started_again_does_all_of_that_again(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        handle = await shut(client)
        await open_gate(conn, "g")
        await client.start(flows.order.options(id="r", reuse="rerun-failed"), "g")
        assert await handle.result(SOON) == "g"
    assert [label for label, what in await effects(conn, "r") if what == "taken"] == ["a", "b", "a", "b"]


async def test_between_two_attempts_of_what_undoes_the_run_waits_without_a_slot(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        handle = await client.start(flows.later.options(id="r"), "g")

        async def waiting() -> bool:
            return await handle.status() is RunStatus.WAITING

        await eventually(waiting, "the run waits", SOON)
        assert await handle.cancel(mode=CancelMode.IMMEDIATE) is RunStatus.WAITING
        await conn.execute("UPDATE perdure.workflows SET wake_at = now()")
        await conn.execute("UPDATE perdure.workflow_steps SET wake_at = now() WHERE status = 20")
        with pytest.raises(CompensationFailed):
            await handle.result(SOON)
    assert (await state(conn))[0] == 2


async def test_the_run_is_removed_with_what_it_had_promised(client: perdure.Client, db: str, conn: Connection) -> None:
    async with working(db):
        await shut(client)
        assert await conn.fetchval("SELECT count(*) FROM perdure.undos") == 2
        await client.delete("r")

        async def gone() -> bool:
            await runs.purge(conn, 10)
            return await conn.fetchval("SELECT count(*) FROM perdure.undos") == 0

        await eventually(gone, "all of it is removed", SOON)


# -- a cancel that compensates


async def test_a_waiting_run_is_taken_up_to_be_undone_and_is_cancelled(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        handle = await client.start(flows.waits.options(id="r"))

        async def waiting() -> bool:
            return await handle.status() is RunStatus.WAITING

        await eventually(waiting, "the run waits", SOON)
        assert await handle.cancel("changed my mind", mode=CancelMode.COMPENSATE) is RunStatus.ENQUEUED
        with pytest.raises(WorkflowCancelled, match="changed my mind"):
            await handle.result(SOON)
    assert await given_back(conn) == ["b", "a"]
    assert (await state(conn))[0] == 3


async def test_a_step_in_progress_finishes_before_the_others_are_undone(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        handle = await client.start(flows.holds.options(id="r"), "g")
        await until_effect(conn, "r", "held", "begun")
        assert await handle.cancel(mode=CancelMode.COMPENSATE) is RunStatus.RUNNING
        assert await handle.cancel(mode=CancelMode.IMMEDIATE) is RunStatus.RUNNING
        await open_gate(conn, "g")
        with pytest.raises(WorkflowCancelled):
            await handle.result(SOON)
    assert await effects(conn, "r") == [("a", "taken"), ("held", "begun"), ("held", "ended"), ("a", BACK)]


async def test_a_run_without_undo_is_cancelled_at_once(client: perdure.Client, db: str, conn: Connection) -> None:
    async with working(db):
        handle = await client.start(flows.plain.options(id="r"))

        async def waiting() -> bool:
            return await handle.status() is RunStatus.WAITING

        await eventually(waiting, "the run waits", SOON)
        assert await handle.cancel(mode=CancelMode.COMPENSATE) is RunStatus.CANCELLED


async def test_the_children_of_a_run_are_undone_with_it(client: perdure.Client, db: str, conn: Connection) -> None:
    async with working(db):
        handle = await client.start(flows.parent.options(id="r"))
        child = client.handle("child")

        async def both() -> bool:
            rows = await conn.fetch("SELECT status FROM perdure.workflows")
            return [row["status"] for row in rows] == [RunStatus.WAITING, RunStatus.WAITING]

        await eventually(both, "both wait", SOON)
        await handle.cancel(mode=CancelMode.COMPENSATE)
        with pytest.raises(WorkflowCancelled):
            await handle.result(SOON)
        with pytest.raises(WorkflowCancelled, match="run r, which started it, was cancelled"):
            await child.result(SOON)
    assert await given_back(conn) == ["p"]
    assert await given_back(conn, "child") == ["b", "a"]


async def test_another_run_can_ask_for_it(client: perdure.Client, db: str, conn: Connection) -> None:
    async with working(db):
        handle = await client.start(flows.waits.options(id="r"))

        async def waiting() -> bool:
            return await handle.status() is RunStatus.WAITING

        await eventually(waiting, "the run waits", SOON)
        assert await client.run(flows.cancels, "r") == str(RunStatus.ENQUEUED)
        with pytest.raises(WorkflowCancelled):
            await handle.result(SOON)
    assert await given_back(conn) == ["b", "a"]


async def test_a_worker_that_dies_with_a_run_to_be_undone_leaves_it_to_another(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    with WorkerProcess(db, modules="tests.worker.undoflows") as first:
        await first.works()
        handle = await client.start(flows.holds.options(id="r"), "g")
        await until_effect(conn, "r", "held", "begun")
        await handle.cancel(mode=CancelMode.COMPENSATE)
        first.process.kill()
        first.process.wait()
    async with working(db):
        with pytest.raises(WorkflowCancelled):
            await handle.result(TEST_LEASE + SOON)
    assert await given_back(conn) == ["a"]


async def test_a_parked_run_is_resumed_and_cancelled_to_be_undone(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        handle = await client.start(flows.waits.options(id="r"))

        async def waiting() -> bool:
            return await handle.status() is RunStatus.WAITING

        await eventually(waiting, "the run waits", SOON)
    await conn.execute("UPDATE perdure.workflows SET status = 80, finished_at = now(), wake_at = NULL")
    assert await handle.cancel(mode=CancelMode.COMPENSATE) is RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED
    await client.resume("r")
    await handle.cancel(mode=CancelMode.COMPENSATE)
    async with working(db):
        with pytest.raises(WorkflowCancelled):
            await handle.result(SOON)
    assert await given_back(conn) == ["b", "a"]


async def test_a_resume_takes_the_cancel_back_as_long_as_nothing_is_undone(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        handle = await client.start(flows.waits.options(id="r"))

        async def waiting() -> bool:
            return await handle.status() is RunStatus.WAITING

        await eventually(waiting, "the run waits", SOON)
    await handle.cancel(mode=CancelMode.COMPENSATE)
    assert await state(conn) == (1, None)
    await client.resume("r")
    assert await state(conn) == (0, None)
    await client.send("r", "go on", "never")
    async with working(db):
        assert await handle.result(SOON) == "go on"
    assert await given_back(conn) == []
