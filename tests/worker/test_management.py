"""Runs that are taken up, forked, rewound, removed and listed, by clients and by other runs, on real workers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import perdure
import pytest
from perdure.errors import NonExistentWorkflow, WorkflowCancelled, WorkflowConflict, WorkflowNotRewindable
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import management as store
from perdure.store import runs
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import effects, open_gate, until_effect, working
from tests.worker.manageflows import (
    child,
    forks,
    manager,
    needs,
    parent,
    refused,
    relies,
    runs_child,
    stale_run,
    steps_cancel,
    waits,
)

SOON = 20.0


@pytest.fixture
async def client(db: str) -> AsyncIterator[perdure.Client]:
    async with perdure.Client(db, "ns") as client:
        yield client


async def failed(client: perdure.Client, name: str = "g", run_id: str = "r") -> perdure.Handle[list[str]]:
    handle = await client.start(needs.options(id=run_id), name)
    with pytest.raises(ValueError, match="is shut"):
        await handle.result(SOON)
    return handle


async def test_a_failed_run_is_taken_up_where_it_failed(client: perdure.Client, db: str, conn: Connection) -> None:
    async with working(db):
        handle = await failed(client)
        await open_gate(conn, "g")
        assert await client.resume("r", needs) == handle
        assert await handle.result(SOON) == ["before", "g", "after"]
        assert await effects(conn, "r") == [("before", "done"), ("after", "done")]
        assert await (await handle.resume()).status() is RunStatus.SUCCEEDED


async def test_a_cancelled_run_is_taken_up_and_its_owner_of_before_adopts_nothing(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        handle = await client.start(waits.options(id="r"), "g")
        await until_effect(conn, "r", "held", "begun")
        await handle.cancel(mode=CancelMode.IMMEDIATE)
        with pytest.raises(WorkflowCancelled):
            await handle.result(SOON)
        await handle.resume()
        await until_effect(conn, "r", "held", "begun", 2)
        await open_gate(conn, "g")
        assert await handle.result(SOON) == "held"
        assert (await effects(conn, "r")).count(("held", "ended")) == 1


async def test_whoever_waits_for_a_stale_execution_gets_the_outcome_of_the_new_one(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    """The run is taken away from its worker, which does not know yet: what its step asks for is refused."""
    other = await client.start(child.options(id="other", queue="nobody"), "x")
    async with working(db, lease_seconds=60.0, slots=1):
        handle = await client.start(stale_run.options(id="r"), "g", "other")
        await until_effect(conn, "r", "stale", "begun")
        await conn.execute("UPDATE perdure.workflows SET cancel_mode = 'Graceful' WHERE id = 'r'")
        await handle.resume()
        async with working(db, slots=1):
            await until_effect(conn, "r", "stale", "begun", 2)
            await open_gate(conn, "g")
            assert await handle.result(SOON) == "done"

            async def told() -> bool:
                return [type(error) for error in refused] == [WorkflowConflict]

            await eventually(told, "the stale step is refused what it asks for")
    assert await other.status() is RunStatus.CANCELLED


async def test_a_fork_goes_on_from_the_cut_under_an_id_of_its_own(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        handle = await failed(client)
        await open_gate(conn, "g")
        forked = await handle.fork(perdure.Cut.LAST_FAILURE, id="f")
        assert await forked.result(SOON) == ["before", "g", "after"]
        assert await effects(conn, "f") == [("after", "done")]
        assert (await forked.details()).forked_from == "r"
        assert await client.fork("r", perdure.Cut.LAST_FAILURE, needs, id="f") == forked
        fresh = await client.fork("r", workflow=needs)
        assert await fresh.result(SOON) == ["before", "g", "after"]
        assert await handle.status() is RunStatus.FAILED
        listed = await client.list_workflows(forked_from="r", newest_first=False)
        assert [run.id for run in listed.runs] == ["f", fresh.id]


async def test_a_fork_with_another_child_waits_for_that_one(client: perdure.Client, db: str, conn: Connection) -> None:
    async with working(db):
        await open_gate(conn, "g")
        handle = await client.start(parent.options(id="p"), "g")
        await client.send("p", "hello", "orders")
        assert await handle.result(SOON) == ["first", "hello", "second", "g"]
        better = await client.start(child.options(id="better"), "better")
        await better.wait(SOON)
        started = [step.index for step in await handle.steps() if step.name == "perdure.start"]
        forked = await handle.fork(started[1], children={f"p-{started[0]}": "better"})
        assert await forked.result(SOON) == ["better", "hello", "second", "g"]


async def test_forks_and_rewinds_keep_a_child_that_was_run_in_one_call(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    """The wait is recorded with the id of the child of before, not with that which the fork would give."""
    async with working(db):
        handle = await client.start(runs_child.options(id="r"), "g")
        with pytest.raises(ValueError, match="is shut"):
            await handle.result(SOON)
        await open_gate(conn, "g")
        at_failure = await handle.fork(perdure.Cut.LAST_FAILURE, id="f")
        before_the_wait = await handle.fork(1, id="w")
        assert await at_failure.result(SOON) == await before_the_wait.result(SOON) == ["first", "g"]
        assert await (await before_the_wait.fork(perdure.Cut.LAST_STEP)).result(SOON) == ["first", "g"]
        await handle.rewind(perdure.Cut.LAST_STEP)
        assert await handle.result(SOON) == ["first", "g"]
        other = await client.start(child.options(id="other"), "other")
        replaced = await handle.fork(2, children={"r-0": other.id})
        assert await replaced.result(SOON) == ["other", "g"]
        assert await effects(conn, "r-0") == [("first", "done")]


async def test_a_rewound_run_gets_its_message_again_and_starts_a_new_child(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        handle = await client.start(parent.options(id="p"), "g")
        await handle.send("hello", "orders")
        with pytest.raises(ValueError, match="is shut"):
            await handle.result(SOON)
        await open_gate(conn, "g")
        await handle.rewind("perdure.recv")
        assert await handle.result(SOON) == ["first", "hello", "second", "g"]
        assert await client.get_event("p", "state", 0) == "hello"
        children = [run.id for run in (await client.list_workflows(parent_id="p", newest_first=False)).runs]
        steps = {step.index for step in await handle.steps() if step.name == "perdure.start"}
        first, second = sorted(steps)
        assert children == [f"p-{first}", f"p-{second}", f"p~1-{second}"]
        assert await effects(conn, f"p-{first}") == [("first", "done")]


async def test_a_run_that_goes_on_cannot_be_rewound(client: perdure.Client) -> None:
    handle = await client.start(child, "x")
    with pytest.raises(WorkflowNotRewindable, match="ENQUEUED"):
        await handle.rewind(0)


async def test_a_run_that_is_deleted_while_it_runs_ends_and_is_not_there(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db, retention_seconds=3600.0):
        handle = await client.start(waits.options(id="r"), "never")
        await until_effect(conn, "r", "held", "begun")
        waiting = asyncio.ensure_future(handle.result())
        await handle.delete()
        with pytest.raises(NonExistentWorkflow):
            await asyncio.wait_for(waiting, SOON)
        for question in (handle.status(), handle.details(), handle.steps(), handle.cancel(), handle.resume()):
            with pytest.raises(NonExistentWorkflow):
                await question

        async def gone() -> bool:
            return bool(await conn.fetchval("SELECT status = 70 FROM perdure.workflows WHERE id = 'r'"))

        await eventually(gone, "its worker has ended it")
        assert ("held", "ended") not in await effects(conn, "r")


async def test_a_parent_that_waits_for_a_child_which_is_deleted_is_told(client: perdure.Client, db: str) -> None:
    @perdure.workflow(name="m.waits_for_deleted")
    async def waits_for(run_id: str) -> str:
        try:
            await (await child.options(id=run_id, queue="nobody").start("x")).result()
        except perdure.NonExistentWorkflow:
            return "gone"
        return "there"

    async with working(db):
        handle = await client.start(waits_for, "c")

        async def parked() -> bool:
            return await handle.status() is RunStatus.WAITING

        await eventually(parked, "the parent waits")
        await client.delete("c")
        assert await handle.result(SOON) == "gone"


async def test_a_cancel_of_many_is_one_for_all_of_them(client: perdure.Client) -> None:
    ids = [(await client.start(child, str(number))).id for number in range(3)]
    with pytest.raises(NonExistentWorkflow, match="there is no run missing"):
        await client.cancel_many([*ids, "missing"])
    assert {await client.handle(run_id).status() for run_id in ids} == {RunStatus.ENQUEUED}
    assert await client.cancel_many(ids, "enough") == dict.fromkeys(sorted(ids), RunStatus.CANCELLED)
    assert [handle.id for handle in await client.resume_many(ids)] == sorted(ids)
    assert {await client.handle(run_id).status() for run_id in ids} == {RunStatus.ENQUEUED}
    await client.delete_many(ids)
    assert (await client.list_workflows()).runs == ()


async def test_a_cancel_without_cascade_ends_the_parent_alone(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    @perdure.workflow(name="m.parent_of_waiting")
    async def parent_of() -> str:
        return await (await waits.start("g")).result()

    async with working(db):
        handle = await client.start(parent_of.options(id="p"))
        await until_effect(conn, "p-0", "held", "begun")
        await handle.cancel(cascade=False)
        assert await handle.wait(SOON) is RunStatus.CANCELLED
        await open_gate(conn, "g")
        assert await client.handle("p-0").result(SOON) == "held"


async def test_a_delayed_run_begins_at_the_time_that_was_set_last(client: perdure.Client, db: str) -> None:
    async with working(db):
        handle = await client.start(child.options(delay=3600), "x")
        await handle.set_delay(0.01)
        assert await handle.result(SOON) == "x"


async def test_attributes_are_set_seen_and_found(client: perdure.Client) -> None:
    handle = await client.start(child.options(attributes={"tenant": "a"}), "x")
    await handle.set_attributes({"checked": True})
    assert (await handle.details()).attributes == {"tenant": "a", "checked": True}
    found = await client.list_workflows(attributes={"checked": True}, workflow=child, status=RunStatus.ENQUEUED)
    assert [run.id for run in found.runs] == [handle.id]


async def test_the_steps_of_a_run_are_listed_with_what_they_gave(client: perdure.Client, db: str) -> None:
    async with working(db):
        handle = await failed(client)
    steps = await client.list_steps("r")
    assert [(step.index, step.name, step.status, step.output) for step in steps] == [
        (0, "m.note", StepStatus.SUCCEEDED, '"before"'),
        (1, "m.open", StepStatus.FAILED, None),
    ]
    assert (await handle.details()).error is not None
    assert (await client.get_workflow("r", payloads=False)).error is None


async def test_a_run_manages_others_and_knows_what_became_of_them(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        await failed(client)
        await open_gate(conn, "g")
        result = await client.run(manager.options(id="boss"), "r")
    all_of_it = ["before", "g", "after"]
    names = ["m.note", "m.open", "m.note"]
    assert result == [all_of_it, all_of_it, all_of_it, {"checked": True}, names, ["boss-2"]]
    assert (await effects(conn, "r")).count(("after", "done")) == 2
    with pytest.raises(NonExistentWorkflow):
        await client.get_workflow("boss-2")


async def test_a_step_cancels_another_run_under_its_fence(client: perdure.Client, db: str) -> None:
    target = await client.start(child.options(queue="nobody"), "x")
    async with working(db):
        assert await client.run(steps_cancel, target.id) == RunStatus.CANCELLED
    with pytest.raises(WorkflowCancelled, match="a step cancelled it"):
        await target.result(SOON)


async def test_the_id_of_a_run_that_was_deleted_is_in_use_until_its_rows_are_removed(
    client: perdure.Client, conn: Connection
) -> None:
    await client.start(child.options(id="r"), "x")
    await client.delete("r")
    with pytest.raises(perdure.WorkflowIdInUse, match="was deleted and is not removed yet"):
        await client.start(child.options(id="r"), "x")
    while await runs.purge_gone(conn, 10):
        pass
    assert await (await client.start(child.options(id="r"), "x")).status() is RunStatus.ENQUEUED


@pytest.mark.parametrize("committed", [False, True], ids=["nothing was done", "the answer was lost"])
async def test_what_a_run_does_with_another_is_done_once_over_a_cut_connection(
    client: perdure.Client, db: str, conn: Connection, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    real, cuts = store.manage_for, 2

    async def cut(*given: Any) -> Any:
        nonlocal cuts
        if cuts == 0:
            return await real(*given)
        cuts -= 1
        if committed:
            await real(*given)
        raise ConnectionResetError("the line was cut")

    monkeypatch.setattr(store, "manage_for", cut)
    async with working(db):
        await client.start(child.options(id="other"), "x")
        assert await client.run(forks.options(id="boss"), "other") == "x"
    assert cuts == 0
    listed = await client.list_workflows(forked_from="other")
    assert [run.id for run in listed.runs] == ["boss-0"]


async def test_a_parent_that_failed_with_its_child_goes_on_once_both_are_taken_up(
    client: perdure.Client, db: str, conn: Connection
) -> None:
    async with working(db):
        handle = await client.start(relies.options(id="p"), "g")
        with pytest.raises(ValueError, match="is shut"):
            await handle.result(SOON)
        await open_gate(conn, "g")
        await handle.resume()
        with pytest.raises(ValueError, match="is shut"):
            await handle.result(SOON)
        await client.resume("p-0")
        await client.handle("p-0").wait(SOON)
        await handle.resume()
        assert await handle.result(SOON) == ["before", "g", "after"]
        assert (await effects(conn, "p-0")).count(("before", "done")) == 1
