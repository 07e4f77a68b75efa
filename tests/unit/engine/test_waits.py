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
from perdure.model.calls import AwaitRuns, CallName, Start
from perdure.model.outcome import Cancelled, ErrorRecord, Failed
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store.clients import ExistingRun

from tests.support.engine import Engine, output_of
from tests.support.otherruns import end, parked, theirs


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
