"""Waits for the first of several runs, and for all of them; and what is refused."""

import asyncio

import perdure
import pytest
from perdure.errors import (
    InvalidArgument,
    NonExistentWorkflow,
)
from perdure.model.outcome import Cancelled, ErrorRecord, Failed, Mismatch
from perdure.model.states import RunStatus, StepStatus

from tests.support.engine import Engine, output_of, until
from tests.support.otherruns import end, parked, theirs


@pytest.fixture
def number(engine: Engine):
    @engine.workflow
    async def number(n: int) -> int:
        return n

    return number


# -- the first of several


def first_of(engine: Engine, *ids: str):
    @engine.workflow
    async def selects():
        call = perdure.select_workflow(*ids)
        assert (call.step_id, call.name) == (0, "perdure.select_workflow")
        return await call

    return theirs(engine.run_of(selects), *ids)


async def test_of_the_runs_that_have_ended_select_gives_the_first_as_they_are_given(engine: Engine):
    run = first_of(engine, "a", "b", "c")
    end(run, "c")
    end(run, "b")
    assert output_of(await engine.execute(run)) == "b"


async def test_the_first_is_recorded_and_a_replay_asks_nothing(engine: Engine):
    run = first_of(engine, "a", "b")
    end(run, "b")
    assert output_of(await engine.execute(run)) == "b"
    end(run, "a")
    run.world.asked.clear()
    assert output_of(await engine.execute(run)) == "b"
    assert run.world.asked == []
    assert (run.rows[0].input, run.rows[0].output) == ('["a","b"]', '"b"')


async def test_select_parks_under_the_key_of_each_run_and_is_one_question_a_look(engine: Engine):
    run = first_of(engine, "a", "b", "c")
    ending = parked(await engine.execute(run))
    assert ending.waiting_for.on == ("child:a", "child:b", "child:c")
    assert ending.waiting_for.name == "a, b, c"
    assert run.world.asked == [["a", "b", "c"], ["a", "b", "c"]]
    assert run.world.run_waits == ["a", "b", "c"]
    assert run.statuses() == [("perdure.select_workflow", StepStatus.WAITING)]
    end(run, "c")
    run.world.asked.clear()
    assert output_of(await engine.execute(run)) == "c"
    assert run.world.asked == [["a", "b", "c"]]


async def test_a_thousand_runs_are_one_question(engine: Engine):
    run = first_of(engine, *(f"r{n}" for n in range(1000)))
    ending = parked(await engine.execute(run))
    assert [len(asked) for asked in run.world.asked] == [1000, 1000]
    assert ending.waiting_for.on == ("*",)


async def test_however_it_ended_the_first_is_the_first(engine: Engine):
    run = first_of(engine, "a", "b")
    end(run, "b", status=RunStatus.CANCELLED)
    assert output_of(await engine.execute(run)) == "b"


async def test_beside_a_step_in_progress_select_is_woken_in_memory(engine: Engine):
    gate = asyncio.Event()

    @engine.step(name="other")
    async def other():
        await gate.wait()

    @engine.workflow
    async def selects():
        waits = [perdure.select_workflow("a", "b"), perdure.handle("c").result()]
        return (await asyncio.gather(*waits, other()))[:2]

    run = theirs(engine.run_of(selects), "a", "b", "c")
    claim = engine.claim(run)
    await until(lambda: len(claim.execution._steps.backoffs.keys) == 2)
    end(run, "b")
    await until(lambda: len(claim.execution._steps.backoffs.keys) == 1)
    end(run, "c", "3")
    await until(lambda: not claim.execution._steps.backoffs)
    gate.set()
    assert output_of(await claim.ending()) == ["b", 3]


async def test_other_runs_at_replay_are_a_mismatch(engine: Engine):
    ids = ["a", "b"]

    @engine.workflow
    async def selects():
        return await perdure.select_workflow(*ids)

    run = theirs(engine.run_of(selects), "a", "b", "c")
    end(run, "b")
    assert output_of(await engine.execute(run)) == "b"
    ids[:] = ["a", "c"]
    assert isinstance(await engine.execute(run), Mismatch)


async def test_handles_and_ids_are_the_same_to_select(engine: Engine, number):
    @engine.workflow
    async def selects():
        child = await number.start(1)
        return await perdure.select_workflow("a", child)

    run = theirs(engine.run_of(selects), "a")
    end(run, "run-1-0", own=True)
    assert output_of(await engine.execute(run)) == "run-1-0"
    assert run.rows[1].input == '["a","run-1-0"]'


async def test_a_wait_for_runs_may_be_a_branch_of_a_select_and_what_has_no_place_of_its_own_may_not(
    engine: Engine, number
):
    @engine.workflow
    async def races():
        handle = perdure.handle("a")
        for call in (perdure.join_workflows("a"), perdure.join_workflows(handle), number.run(1)):
            with pytest.raises(perdure.SelectMisused):
                perdure.select(call, handle.result())
        won = await perdure.select(perdure.select_workflow("a", "b"), handle.result())
        return [won.index, won.value]

    run = theirs(engine.run_of(races), "a", "b")
    parked(await engine.execute(run))
    end(run, "b")
    assert output_of(await engine.execute(run)) == [0, "b"]


# -- all of several


def all_of(engine: Engine, *ids: str):
    @engine.workflow
    async def joins():
        call = perdure.join_workflows(*ids)
        assert (call.step_id, call.name) == (None, "perdure.join_workflows")
        assert await call is None
        await perdure.sleep(0)
        return "over"

    return theirs(engine.run_of(joins), *ids)


async def test_join_takes_no_place_and_records_nothing(engine: Engine):
    run = all_of(engine, "a", "b")
    parked(await engine.execute(run))
    assert run.rows == {}
    end(run, "a")
    end(run, "b", status=RunStatus.FAILED)
    assert output_of(await engine.execute(run)) == "over"
    assert run.statuses() == [("perdure.sleep", StepStatus.SUCCEEDED)]
    end(run, "a", status=RunStatus.RUNNING)
    parked(await engine.execute(run))


async def test_join_waits_for_the_last_that_has_not_ended(engine: Engine):
    run = all_of(engine, "a", "b", "c")
    ending = parked(await engine.execute(run))
    assert (ending.waiting_for.on, ending.waiting_for.name) == (("child:c",), "a, b, c")
    end(run, "b")
    end(run, "c")
    ending = parked(await engine.execute(run))
    assert (ending.waiting_for.on, ending.waiting_for.name) == (("child:a",), "a")
    assert run.world.run_waits == ["c", "a"]
    end(run, "a")
    assert output_of(await engine.execute(run)) == "over"


async def test_a_run_that_was_removed_after_a_join_counts_as_ended_at_replay(engine: Engine):
    run = all_of(engine, "a", "b")
    end(run, "a")
    end(run, "b")
    await engine.execute(run)
    del run.world.outcomes["a"]
    assert output_of(await engine.execute(run)) == "over"


async def test_a_stopped_run_joins_nothing(engine: Engine):
    run = all_of(engine, "a")
    claim = engine.claim(run)
    claim.interrupt(perdure.errors.CancelRequested("enough", immediate=True))
    assert isinstance(await claim.ending(), Cancelled)
    assert run.world.asked == []


async def test_join_of_handles_gives_their_results_in_order_at_a_place_each(engine: Engine, number):
    @engine.workflow
    async def joins():
        child = await number.start(1)
        return list(await perdure.join_workflows(perdure.handle("a"), child))

    run = theirs(engine.run_of(joins), "a")
    parked(await engine.execute(run))
    end(run, "run-1-0", "2", own=True)
    parked(await engine.execute(run))
    end(run, "a", '"one"')
    assert output_of(await engine.execute(run)) == ["one", 2]
    assert [name for name, _ in run.statuses()] == ["perdure.start", "perdure.result", "perdure.result"]
    run.world.outcomes.clear()
    assert output_of(await engine.execute(run)) == ["one", 2]


async def test_join_of_handles_waits_for_all_and_raises_the_first_failure_in_order(engine: Engine):
    @engine.workflow
    async def joins():
        with pytest.raises(TypeError):
            await perdure.join_workflows(*(perdure.handle(each) for each in "abc"))
        await perdure.sleep(100)

    run = theirs(engine.run_of(joins), "a", "b", "c")
    end(run, "c", status=RunStatus.FAILED, error=ErrorRecord("ValueError", "first in time").to_json())
    assert parked(await engine.execute(run)).wake_in is None
    end(run, "b", status=RunStatus.FAILED, error=ErrorRecord("TypeError", "first in order").to_json())
    assert parked(await engine.execute(run)).wake_in is None
    end(run, "a")
    assert parked(await engine.execute(run)).wake_in is not None


# -- bad input


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ((), "no run"),
        (("a", "b", "a"), "run a is given twice"),
        (("a", "run-1"), "its own end"),
        (("a", 7), "not as 7"),
        (("a", ""), "the id of a run"),
        (("x" * 1101,), "the id of a run"),
    ],
    ids=["none", "twice", "itself", "a number", "empty", "too long"],
)
async def test_runs_that_cannot_be_waited_for_are_refused_and_take_no_place(engine: Engine, runs, said):
    @engine.workflow
    async def waits():
        for wait in (perdure.select_workflow, perdure.join_workflows):
            with pytest.raises(InvalidArgument, match=said):
                wait(*runs)

    run = engine.run_of(waits)
    output_of(await engine.execute(run))
    assert run.rows == {}


async def test_ids_beside_handles_and_the_own_result_are_refused(engine: Engine):
    @engine.workflow
    async def waits():
        with pytest.raises(InvalidArgument, match="not both"):
            perdure.join_workflows("a", perdure.handle("b"))  # type: ignore[call-overload]
        with pytest.raises(InvalidArgument, match="its own end"):
            perdure.handle("run-1").result()
        with pytest.raises(InvalidArgument):
            perdure.handle("")

    run = engine.run_of(waits)
    output_of(await engine.execute(run))
    assert run.rows == {}


async def test_a_run_that_is_not_there_is_named_also_at_replay(engine: Engine):
    @engine.workflow
    async def waits():
        with pytest.raises(perdure.WorkflowNotFound, match="there is no run x, y"):
            await perdure.select_workflow("a", "x", "y")
        with pytest.raises(NonExistentWorkflow):
            await perdure.join_workflows(perdure.handle("b"), perdure.handle("c"))

    run = engine.run_of(waits)
    end(run, "a")
    output_of(await engine.execute(run))
    assert [row.status for row in run.rows.values()] == [StepStatus.FAILED] * 3
    output_of(await engine.execute(run))


async def test_a_join_of_a_run_that_is_not_there_fails_the_run_and_cannot_be_caught(engine: Engine):
    """Nothing of it is recorded: a body that had caught it would go another way once that run is there."""

    @engine.workflow
    async def waits():
        try:
            await perdure.join_workflows("a", "z")
        except Exception:
            await perdure.sleep(0)

    run = engine.run_of(waits)
    end(run, "a")
    ending = await engine.execute(run)
    assert isinstance(ending, Failed)
    assert (ending.error.code, ending.error.message) == (NonExistentWorkflow.code, "there is no run z")
    assert run.rows == {}
