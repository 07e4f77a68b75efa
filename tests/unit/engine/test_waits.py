"""Waits for runs whoever started them: results, statuses, the first and all of several, and a run in a run."""

import asyncio

import perdure
import pytest
from perdure.errors import (
    AwaitedWorkflowCancelled,
    ConflictingWorkflow,
    InsideStep,
    InvalidArgument,
    NonExistentWorkflow,
    NotInWorkflow,
)
from perdure.model.calls import AwaitRuns, CallName, RunOutcome, Start
from perdure.model.outcome import Cancelled, ErrorRecord, Failed, Mismatch, Parked
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store.clients import ExistingRun

from tests.support.engine import Engine, output_of, until
from tests.support.memorylog import MemoryRun

RUNNING = RunOutcome(RunStatus.RUNNING, own=False)


def theirs(run: MemoryRun, *ids: str) -> MemoryRun:
    """Runs that somebody else has started and that go on."""
    run.world.outcomes.update(dict.fromkeys(ids, RUNNING))
    return run


def end(run: MemoryRun, run_id: str, output: str = "1", *, own: bool = False, **outcome: object) -> None:
    fields = {"status": RunStatus.SUCCEEDED, "output": output, "own": own, **outcome}
    run.world.outcomes[run_id] = RunOutcome(**fields)  # type: ignore[arg-type]
    run.wake_seq += 1


def parked(ending: object) -> Parked:
    assert isinstance(ending, Parked), ending
    return ending


@pytest.fixture
def number(engine: Engine):
    @engine.workflow
    async def number(n: int) -> int:
        return n

    return number


def waiter(engine: Engine, *ids: str):
    """A run that gathers the results of others."""

    @engine.workflow
    async def waits():
        return list(await asyncio.gather(*(perdure.handle(each).result() for each in ids)))

    return theirs(engine.run_of(waits), *ids)


# -- results of any run


async def test_the_wait_for_a_run_that_somebody_else_started_is_written_before_the_last_look(engine: Engine):
    run = waiter(engine, "theirs")
    claim = engine.claim(run)
    ending = parked(await claim.ending())
    claim.log.commit()
    assert (ending.waiting_for.name, ending.waiting_for.on) == ("theirs", ("child:theirs",))
    assert (run.world.run_waits, run.world.news) == (["theirs"], [("theirs",)])
    assert run.world.asked == [["theirs"], ["theirs"]]
    assert run.statuses() == [("perdure.result", StepStatus.WAITING)]
    end(run, "theirs", "7")
    assert output_of(await engine.execute(run)) == [7]
    run.world.outcomes.clear()
    assert output_of(await engine.execute(run)) == [7]


async def test_an_end_between_the_two_looks_is_seen(engine: Engine):
    run = waiter(engine, "theirs")
    real = run.world.carry_out

    def carry_out(run, call):
        end(run, "theirs", "7")
        run.wake_seq = 0  # whoever ended it found no wait and woke nobody
        return real(run, call)

    run.world.carry_out = carry_out  # type: ignore[method-assign]
    assert output_of(await engine.execute(run)) == [7]


async def test_a_wait_for_a_child_writes_no_wait(engine: Engine, number):
    @engine.workflow
    async def parent():
        return await (await number.start(1)).result()

    run = engine.run_of(parent)
    parked(await engine.execute(run))
    assert run.world.run_waits == []


async def test_the_waits_that_begin_together_share_their_statements(engine: Engine):
    ids = [f"r{n}" for n in range(20)]
    run = waiter(engine, *ids)
    claim = engine.claim(run)
    parked(await claim.ending())
    assert [call.runs for call in claim.log.calls if isinstance(call, AwaitRuns)] == [tuple(ids)]
    assert run.world.news == [tuple(ids)]
    assert [len(asked) for asked in run.world.asked] == [20, 20]


async def test_a_wait_that_is_woken_is_written_anew(engine: Engine):
    """Who told of an end may be about to forget the wait that he has seen; the run may have been set going again."""
    run = waiter(engine, "theirs")
    parked(await engine.execute(run))
    run.wake_seq += 1
    parked(await engine.execute(run))
    assert run.world.run_waits == ["theirs", "theirs"]


async def test_a_cancel_that_comes_with_the_wait_ends_the_run(engine: Engine):
    run = waiter(engine, "theirs")
    claim = engine.claim(run)
    run.cancel_mode = CancelMode.GRACEFUL
    assert isinstance(await claim.ending(), Cancelled)
    assert run.world.run_waits == []


async def test_a_handle_by_id_gives_the_result_as_its_workflow_says(engine: Engine):
    @engine.workflow
    async def when() -> set[int]:
        return set()

    @engine.workflow
    async def waits():
        typed, plain = perdure.handle("a", when), perdure.handle("a")
        found = await typed.result()
        assert isinstance(found, set)
        return [sorted(found), await plain.result()]

    run = engine.run_of(waits)
    end(run, "a", "[1,2]", workflow="when")
    assert output_of(await engine.execute(run)) == [[1, 2], [1, 2]]


async def test_a_run_of_another_workflow_than_the_handle_says_is_a_conflict_also_at_replay(engine: Engine, number):
    @engine.workflow
    async def waits():
        with pytest.raises(ConflictingWorkflow, match="of workflow other, and was awaited as one of number"):
            await perdure.handle("a", number).result()
        await perdure.sleep(100)

    run = engine.run_of(waits)
    end(run, "a", workflow="other")
    parked(await engine.execute(run))
    run.world.outcomes.clear()
    parked(await engine.execute(run))


async def test_a_handle_may_be_asked_again_and_each_time_takes_a_place(engine: Engine):
    @engine.workflow
    async def waits():
        handle = perdure.handle("a")
        first, second = handle.result(), handle.result()
        assert (first.step_id, second.step_id, first.name) == (0, 1, "perdure.result")
        return [await second, await first, await handle.result()]

    run = engine.run_of(waits)
    end(run, "a", "7")
    assert output_of(await engine.execute(run)) == [7, 7, 7]
    assert len(run.rows) == 3


async def test_a_cancelled_run_raises_in_who_waits_and_that_one_goes_on(engine: Engine):
    @engine.workflow
    async def waits():
        with pytest.raises(AwaitedWorkflowCancelled, match="enough"):
            await perdure.handle("a").result()
        return "on"

    run = engine.run_of(waits)
    end(run, "a", status=RunStatus.CANCELLED, reason="enough")
    assert output_of(await engine.execute(run)) == "on"


# -- handles


async def test_workflow_id_is_another_name_of_id(engine: Engine, number):
    @engine.workflow
    async def parent():
        child = await number.start(1)
        assert child == perdure.handle(child.id) != perdure.handle("a")
        return [child.workflow_id, perdure.handle("a").workflow_id, len({child, perdure.handle(child.id)})]

    assert await engine.output(parent) == ["run-1-0", "a", 1]


async def test_a_status_is_recorded_and_a_replay_gets_what_was_seen_at_first(engine: Engine):
    seen = []

    @engine.workflow
    async def looks():
        seen.append(await perdure.handle("a").status())
        with pytest.raises(NonExistentWorkflow, match="there is no run b"):
            await perdure.handle("b").status()
        await perdure.sleep(100)

    run = theirs(engine.run_of(looks), "a")
    parked(await engine.execute(run))
    end(run, "a")
    end(run, "b")
    parked(await engine.execute(run))
    assert seen == [RunStatus.RUNNING, RunStatus.RUNNING]
    assert run.rows[0].name == CallName.STATUS


async def test_outside_a_run_and_in_a_step_they_say_where_they_belong(engine: Engine, number):
    for call in (
        lambda: perdure.handle("a"),
        lambda: perdure.select_workflow("a"),
        lambda: perdure.join_workflows("a"),
        lambda: perdure.RunHandle("a", None).result(),
        lambda: perdure.RunHandle("a", None).status(),
    ):
        with pytest.raises(NotInWorkflow):
            call()

    @engine.step(name="looking")
    async def looking():
        handle = perdure.handle("a")
        for call in (
            handle.result,
            handle.status,
            lambda: perdure.select_workflow("a"),
            lambda: perdure.join_workflows(handle),
            lambda: perdure.join_workflows("a"),
            lambda: number.run(1),
        ):
            with pytest.raises(InsideStep):
                call()

    @engine.workflow
    async def body():
        await looking()

    run = engine.run_of(body)
    output_of(await engine.execute(run))
    assert list(run.rows) == [0]


# -- a run in a run


async def test_run_records_its_start_and_its_wait_as_two_steps(engine: Engine, number):
    @engine.workflow
    async def parent():
        call = number.run(1)
        assert (call.step_id, call.name) == (0, "perdure.start")
        return await call

    run = engine.run_of(parent)
    ending = parked(await engine.execute(run))
    assert ending.waiting_for.on == ("child:run-1-0",)
    assert run.statuses() == [("perdure.start", StepStatus.SUCCEEDED), ("perdure.result", StepStatus.WAITING)]
    assert run.rows[1].input == '["run-1-0"]'
    end(run, "run-1-0", "7", own=True)
    claim = engine.claim(run)
    assert output_of(await claim.ending()) == 7
    assert claim.log.calls == []


async def test_the_places_of_run_are_taken_when_it_is_built(engine: Engine, number):
    @engine.workflow
    async def parent():
        first, second = number.run(1), number.run(2)
        assert (first.step_id, second.step_id) == (0, 2)
        return list(await asyncio.gather(second, first))

    run = engine.run_of(parent)
    for n in (0, 2):
        end(run, f"run-1-{n}", str(n), own=True)
    assert output_of(await engine.execute(run)) == [2, 0]


async def test_a_run_whose_start_is_refused_leaves_its_second_place_empty_and_nobody_is_blamed(
    engine: Engine, number, caplog: pytest.LogCaptureFixture
):
    @engine.workflow
    async def parent():
        with pytest.raises(ConflictingWorkflow):
            await number.options(id="mine").run(1)
        return (await number.run(2)) + 1

    run = engine.run_of(parent)
    run.world.runs["mine"] = ExistingRun("mine", "default", "other", "[1]")
    end(run, "run-1-2", "2", own=True)
    assert output_of(await engine.execute(run)) == 3
    assert sorted(run.rows) == [0, 2, 3]
    assert "never awaited" not in caplog.text


async def test_run_takes_no_queue_and_then_no_place(engine: Engine, number):
    @engine.workflow
    async def parent():
        with pytest.raises(InvalidArgument, match="queue"):
            number.options(queue="q").run(1)
        return (await number.options(priority=7, timeout=5).start(2)).id

    run = engine.run_of(parent)
    claim = engine.claim(run)
    assert output_of(await claim.ending()) == "run-1-0"
    [start] = claim.log.calls
    assert isinstance(start, Start)


async def test_a_failure_in_a_run_in_a_run_is_raised_as_its_own_class(engine: Engine, number):
    @engine.workflow
    async def parent():
        await number.run(1)

    run = engine.run_of(parent)
    end(run, "run-1-0", status=RunStatus.FAILED, error=ErrorRecord("ValueError", "no").to_json(), own=True)
    ending = await engine.execute(run)
    assert isinstance(ending, Failed)
    assert (ending.error.type, ending.error.message) == ("ValueError", "no")


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


async def test_join_waits_for_one_after_the_other(engine: Engine):
    run = all_of(engine, "a", "b", "c")
    ending = parked(await engine.execute(run))
    assert (ending.waiting_for.on, ending.waiting_for.name) == (("child:a",), "a, b, c")
    end(run, "a")
    end(run, "b")
    ending = parked(await engine.execute(run))
    assert (ending.waiting_for.on, ending.waiting_for.name) == (("child:c",), "c")
    assert run.world.run_waits == ["a", "c"]
    end(run, "c")
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
