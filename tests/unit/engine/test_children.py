"""Children: started once at the parent's step, waited for without a slot, their outcome recorded as the parent's."""

import asyncio

import perdure
import pytest
from perdure.errors import (
    AwaitedWorkflowCancelled,
    AwaitedWorkflowMaxRecoveryAttemptsExceeded,
    ConflictingWorkflow,
    InsideStep,
    NonExistentWorkflow,
    NotLaunched,
    WorkflowFailed,
)
from perdure.model.calls import RunOutcome, Start
from perdure.model.outcome import Cancelled, ErrorRecord, Mismatch, Parked
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store.clients import ExistingRun

from tests.support.engine import Engine, output_of, until


@pytest.fixture
def child(engine: Engine):
    @engine.workflow
    async def child(n: int) -> int:
        return n

    return child


def parent_of(engine: Engine, child, count: int = 1):
    @engine.workflow
    async def parent():
        handles = await asyncio.gather(*(child.start(n) for n in range(count)))
        return list(await asyncio.gather(*(handle.result() for handle in handles)))

    return engine.run_of(parent)


def end(run, run_id: str, **outcome: object) -> None:
    run.world.outcomes[run_id] = RunOutcome(**{"status": RunStatus.SUCCEEDED, **outcome})  # type: ignore[arg-type]
    run.wake_seq += 1


async def test_a_start_is_recorded_and_the_wait_parks_the_parent(engine: Engine, child):
    run = parent_of(engine, child)
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert (ending.wake_in, ending.waiting_for.kind, ending.waiting_for.name) == (None, "Child", "run-1-0")
    assert (ending.waiting_for.on, ending.wake_seq) == (("child:run-1-0",), 0)
    assert run.statuses() == [("perdure.start", StepStatus.SUCCEEDED), ("perdure.result", StepStatus.WAITING)]
    assert run.world.runs["run-1-0"] == ExistingRun("run-1-0", "default", "child", "[0]")


async def test_a_woken_parent_gets_the_result_and_starts_nothing_again(engine: Engine, child):
    run = parent_of(engine, child)
    await engine.execute(run)
    end(run, "run-1-0", output="7")
    claim = engine.claim(run)
    assert output_of(await claim.ending()) == [7]
    claim.log.commit()
    assert claim.log.calls == []
    assert run.rows[1].output == "7"
    run.world.outcomes.clear()
    assert output_of(await engine.execute(run)) == [7]


async def test_a_child_that_ends_while_the_parent_is_about_to_park_is_not_slept_over(engine: Engine, child):
    """The wake comes between the look and the park: the park carries the count that the look saw."""
    run = parent_of(engine, child)
    claim = engine.claim(run)
    await until(lambda: bool(claim.execution._steps.backoffs))
    run.world.outcomes["run-1-0"] = RunOutcome(RunStatus.SUCCEEDED, "7")
    ending = await claim.ending()
    assert isinstance(ending, Parked)
    assert ending.wake_seq == 0


async def test_many_children_are_looked_at_in_one_question(engine: Engine, child):
    run = parent_of(engine, child, 20)
    await engine.execute(run)
    assert [len(ids) for ids in run.world.asked] == [20]
    for n in range(20):
        end(run, f"run-1-{n}", output=str(n))
    assert output_of(await engine.execute(run)) == list(range(20))


async def test_in_memory_only_those_that_have_ended_are_looked_at_each_by_itself(engine: Engine, child):
    """A step in progress keeps the parent from parking."""
    gate = asyncio.Event()

    @engine.step(name="other")
    async def other():
        await gate.wait()

    @engine.workflow
    async def parent():
        handles = [await child.start(n) for n in range(3)]
        return (await asyncio.gather(other(), *(handle.result() for handle in handles)))[1:]

    run = engine.run_of(parent)
    claim = engine.claim(run)
    await until(lambda: len(run.world.asked) == 1 and bool(claim.execution._steps.backoffs))
    end(run, "run-1-1", output="1")
    await until(lambda: len(run.world.asked) == 2)
    end(run, "run-1-0", output="0")
    await until(lambda: len(run.world.asked) == 3)
    end(run, "run-1-2", output="2")
    gate.set()
    assert output_of(await claim.ending()) == [0, 1, 2]
    assert [len(ids) for ids in run.world.asked] == [3, 3, 2, 1]


async def test_with_many_keys_any_wake_wakes(engine: Engine, child):
    ending = await engine.execute(parent_of(engine, child, 40))
    assert isinstance(ending, Parked)
    assert ending.waiting_for.on == ("*",)


async def test_a_run_with_a_long_history_waits_a_while_in_memory(engine: Engine, child):
    @engine.step(name="other")
    async def other():
        pass

    @engine.workflow
    async def parent():
        handle = await child.start(0)
        for _ in range(200):
            await other()
        return await handle.result()

    run = engine.run_of(parent)
    claim = engine.claim(run)
    await until(lambda: bool(claim.execution._steps.backoffs))
    end(run, "run-1-0", output="7")
    assert output_of(await claim.ending()) == 7


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        ({"status": RunStatus.CANCELLED, "reason": "enough"}, AwaitedWorkflowCancelled),
        ({"status": RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED}, AwaitedWorkflowMaxRecoveryAttemptsExceeded),
        ({"status": RunStatus.FAILED, "error": ErrorRecord("ValueError", "no").to_json()}, ValueError),
        ({"status": RunStatus.FAILED, "error": ErrorRecord("their.own.Error", "no").to_json()}, WorkflowFailed),
    ],
)
async def test_an_end_without_a_result_is_raised_the_same_at_replay(engine: Engine, child, outcome, kind):
    seen = []

    @engine.workflow
    async def parent():
        handle = await child.start(0)
        with pytest.raises(kind) as caught:
            await handle.result()
        seen.append((type(caught.value), str(caught.value)))
        await perdure.sleep(100)

    run = engine.run_of(parent)
    await engine.execute(run)
    end(run, "run-1-0", **outcome)
    await engine.execute(run)
    run.elapsed = 100
    await engine.execute(run)
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert run.rows[1].status is StepStatus.FAILED


async def test_a_run_that_is_not_there_has_no_result(engine: Engine):
    @engine.workflow
    async def parent():
        with pytest.raises(NonExistentWorkflow):
            await perdure.ChildHandle("nobody", None).result()

    output_of(await engine.execute(engine.run_of(parent)))


@pytest.mark.parametrize(("workflow", "text"), [("other", "[0]"), ("child", "[1]")])
async def test_an_id_in_use_by_another_start_is_a_conflict_also_at_replay(engine: Engine, child, workflow, text):
    @engine.workflow
    async def parent():
        with pytest.raises(ConflictingWorkflow, match="mine"):
            await child.options(id="mine").start(0)
        await perdure.sleep(100)

    run = engine.run_of(parent)
    run.world.runs["mine"] = ExistingRun("mine", "default", workflow, text)
    assert isinstance(await engine.execute(run), Parked)
    run.world.runs.clear()
    assert isinstance(await engine.execute(run), Parked)


async def test_an_id_in_use_by_the_same_start_is_that_run(engine: Engine, child):
    @engine.workflow
    async def parent():
        return (await child.options(id="mine").start(0)).id

    run = engine.run_of(parent)
    run.world.runs["mine"] = ExistingRun("mine", "default", "child", "[0]")
    assert output_of(await engine.execute(run)) == "mine"
    assert run.statuses() == [("perdure.start", StepStatus.SUCCEEDED)]


async def test_a_start_of_a_cancelled_run_is_refused(engine: Engine, child):
    run = parent_of(engine, child)
    claim = engine.claim(run)
    run.cancel_mode = CancelMode.GRACEFUL
    assert isinstance(await claim.ending(), Cancelled)
    assert run.world.runs == {}
    assert run.rows == {}


async def test_other_arguments_at_replay_are_a_mismatch(engine: Engine, child):
    argument = [0]

    @engine.workflow
    async def parent():
        handle = await child.start(argument[0])
        return await handle.result()

    run = engine.run_of(parent)
    await engine.execute(run)
    argument[0] = 1
    assert isinstance(await engine.execute(run), Mismatch)


async def test_options_travel_with_the_start(engine: Engine, child):
    @engine.workflow
    async def parent():
        return (await child.options(queue="q", pool="p", priority=7, timeout=5, delay=3).start(0)).id

    run = engine.run_of(parent)
    claim = engine.claim(run)
    output_of(await claim.ending())
    [start] = claim.log.calls
    assert isinstance(start, Start)
    assert (start.id, start.requires) == ("run-1-0", "workflow:child")
    assert (start.options.queue, start.options.pool, start.options.priority) == ("q", "p", 7)
    assert run.rows[0].input == '["child",[0],{"queue":"q","pool":"p","priority":7,"timeout":5,"delay":3}]'


async def test_outside_a_run_and_inside_a_step_a_start_is_refused(engine: Engine, child):
    with pytest.raises(NotLaunched):
        await child.start(0)
    with pytest.raises(NotLaunched):
        await child.run(0)

    @engine.step(name="starting")
    async def starting():
        with pytest.raises(InsideStep):
            child.start(0)

    @engine.workflow
    async def parent():
        await starting()
        with pytest.raises(TypeError):
            child.start(0, 1, 2)

    run = engine.run_of(parent)
    output_of(await engine.execute(run))
    assert list(run.rows) == [0]


async def test_a_recorded_result_of_another_type_is_a_mismatch(engine: Engine, child):
    run = parent_of(engine, child)
    await engine.execute(run)
    end(run, "run-1-0", output='"seven"')
    assert isinstance(await engine.execute(run), Mismatch)
