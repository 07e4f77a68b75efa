"""A body that gives up its own calls and goes on fails; time, ids and random numbers are the same at a replay."""

import asyncio
import random as plain_random
import uuid
from datetime import UTC, datetime, timedelta

import perdure
import pytest
from perdure.errors import CancelRequested
from perdure.model.outcome import Cancelled, Failed, Mismatch
from perdure.model.states import StepStatus

from tests.support.engine import Engine, Held, failed, output_of, statuses


def stuck(engine: Engine):
    @engine.step(name="stuck")
    async def step():
        await asyncio.Event().wait()

    return step


async def gives_up(call):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await call


async def test_a_body_that_gives_a_call_up_and_returns_fails_as_not_deterministic(engine: Engine):
    step = stuck(engine)

    @engine.workflow
    async def flow():
        await gives_up(step())
        return "went on"

    error = (await engine.error(flow)).error
    assert error.code == "PRD-315"
    assert "stuck (0) was cancelled by the body itself" in error.message


async def test_a_body_that_gives_a_call_up_and_makes_another_fails_before_that_one_begins(engine: Engine):
    step = stuck(engine)

    @engine.step(name="other")
    async def other():
        engine.bodies.append("other")

    @engine.workflow
    async def flow():
        await gives_up(step())
        try:
            await other()
        except Exception:
            engine.bodies.append("swallowed")

    run = engine.run_of(flow)
    assert failed(await engine.execute(run)).error.code == "PRD-315"
    assert engine.bodies == []
    assert statuses(run) == [StepStatus.RUNNING]


async def test_a_call_that_was_built_before_is_refused_as_well(engine: Engine):
    step = stuck(engine)

    @engine.step(name="other")
    async def other():
        engine.bodies.append("other")

    @engine.workflow
    async def flow():
        built = other()
        await gives_up(step())
        await built

    assert (await engine.error(flow)).error.code == "PRD-315"
    assert engine.bodies == []


async def test_an_error_that_goes_straight_out_is_its_own(engine: Engine):
    step = stuck(engine)

    @engine.workflow
    async def flow():
        async with asyncio.timeout(0.01):
            await step()

    assert (await engine.error(flow)).error.type == "TimeoutError"


async def test_a_task_group_whose_error_goes_straight_out_fails_with_it(engine: Engine):
    step = stuck(engine)

    @engine.step
    async def fails():
        raise ValueError("no")

    @engine.workflow
    async def flow():
        async with asyncio.TaskGroup() as group:
            group.create_task(step())
            group.create_task(fails())

    assert (await engine.error(flow)).error.type == "ExceptionGroup"


async def test_a_task_group_whose_error_is_caught_is_not_deterministic(engine: Engine):
    step = stuck(engine)

    @engine.step
    async def fails():
        raise ValueError("no")

    @engine.workflow
    async def flow():
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(step())
                group.create_task(fails())
        except* ValueError:
            pass
        return "went on"

    assert (await engine.error(flow)).error.code == "PRD-315"


@pytest.mark.parametrize("call", [lambda: perdure.sleep(0.5), lambda: perdure.recv("t", timeout=0.5)])
async def test_a_wait_that_is_given_up_counts_as_well(engine: Engine, call):
    @engine.workflow
    async def flow():
        await gives_up(call())
        return "went on"

    assert (await engine.error(flow)).error.code == "PRD-315"


async def test_the_first_to_be_completed_with_the_others_cancelled_is_not_deterministic(engine: Engine):
    held = Held(engine)

    @engine.step(name="quick")
    async def quick():
        return 1

    @engine.workflow
    async def flow():
        tasks = [asyncio.create_task(call) for call in (held.step(1), quick())]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        await asyncio.wait(left)
        return len(done)

    assert (await engine.error(flow)).error.code == "PRD-315"


async def test_a_limit_of_time_that_does_not_come_changes_nothing(engine: Engine):
    @engine.step
    async def quick():
        return 1

    @engine.workflow
    async def flow():
        async with asyncio.timeout(5):
            return await quick() + await asyncio.wait_for(quick(), 5)

    assert await engine.output(flow) == 2


async def test_a_stop_by_the_engine_is_no_race(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await held.step(1)

    claim = engine.claim(engine.run_of(flow))
    await held.begun(claim)
    claim.interrupt(CancelRequested("stop", immediate=True))
    assert await claim.ending() == Cancelled("stop")


async def test_a_body_that_swallows_the_signal_fails_all_the_same(engine: Engine):
    step = stuck(engine)

    @engine.workflow
    async def flow():
        await gives_up(step())
        for _ in range(50):
            try:
                await step()
            except BaseException:
                engine.bodies.append("caught")
        return "went on"

    assert (await engine.error(flow)).error.code == "PRD-315"
    assert engine.bodies == ["caught"] * 50


# -- time, ids, random numbers


async def test_now_is_the_time_of_the_database_and_the_same_at_a_replay(engine: Engine):
    @engine.workflow
    async def flow():
        return [(await perdure.now()).isoformat(), (await perdure.now()).isoformat()]

    run = engine.run_of(flow)
    first = output_of(await engine.execute(run))
    assert first == [datetime(2026, 3, 1, 12, tzinfo=UTC).isoformat()] * 2
    assert run.statuses() == [("perdure.now", StepStatus.SUCCEEDED)] * 2
    run.world.now += timedelta(days=1)
    assert output_of(await engine.execute(run)) == first


async def test_now_is_taken_again_when_it_was_not_committed(engine: Engine):
    @engine.workflow
    async def flow():
        return (await perdure.now()).isoformat()

    run = engine.run_of(flow)
    await engine.execute(run, crash=True)
    run.world.now += timedelta(days=1)
    assert output_of(await engine.execute(run)) == datetime(2026, 3, 2, 12, tzinfo=UTC).isoformat()


async def test_now_in_a_step_and_outside_a_run_is_the_time_of_this_machine(engine: Engine):
    @engine.step
    async def look():
        return (await perdure.now()).timestamp()

    @engine.workflow
    async def flow():
        return await look()

    run = engine.run_of(flow)
    before = datetime.now(UTC).timestamp()
    assert before <= output_of(await engine.execute(run)) <= (await perdure.now()).timestamp()
    assert len(run.rows) == 1


async def test_a_recorded_time_that_is_none_is_a_mismatch(engine: Engine):
    @engine.workflow
    async def flow():
        await perdure.now()

    run = engine.run_of(flow)
    await engine.execute(run)
    run.rows[0] = type(run.rows[0])(**{**_fields(run.rows[0]), "output": '"yesterday"'})
    assert isinstance(await engine.execute(run), Mismatch)


def _fields(row):
    return {name: getattr(row, name) for name in row.__slots__}


async def test_ids_and_random_numbers_are_the_same_at_a_replay_and_take_no_index(engine: Engine):
    @engine.workflow
    async def flow():
        numbers = perdure.random()
        return [str(perdure.uuid4()), str(perdure.uuid4()), numbers.random(), perdure.random().random()]

    run = engine.run_of(flow)
    first = output_of(await engine.execute(run))
    assert len(set(first)) == 4
    assert uuid.UUID(first[0]).version == 4
    assert output_of(await engine.execute(run)) == first
    assert run.rows == {}


async def test_other_runs_have_other_ids_and_numbers(engine: Engine):
    @engine.workflow
    async def flow():
        return [str(perdure.uuid4()), perdure.random().random()]

    one = output_of(await engine.execute(engine.run_of(flow, id="one")))
    other = output_of(await engine.execute(engine.run_of(flow, id="other")))
    assert one[0] != other[0]
    assert one[1] != other[1]


async def test_a_fork_has_the_ids_and_numbers_of_the_run_that_it_comes_from(engine: Engine):
    @engine.workflow
    async def flow():
        return [str(perdure.uuid4()), perdure.random().random()]

    first = output_of(await engine.execute(engine.run_of(flow, id="one")))
    assert output_of(await engine.execute(engine.run_of(flow, id="fork", seed="one"))) == first


async def test_in_a_step_and_outside_a_run_they_are_new_each_time(engine: Engine):
    @engine.step
    async def draw():
        return [str(perdure.uuid4()), perdure.random().random()]

    @engine.workflow
    async def flow():
        return [await draw(), await draw()]

    run = engine.run_of(flow)
    one, other = output_of(await engine.execute(run))
    assert one[0] != other[0]
    assert one[1] != other[1]
    assert perdure.uuid4() != perdure.uuid4()
    assert isinstance(perdure.random(), plain_random.Random)


async def test_a_failed_attempt_of_the_run_is_a_failure_like_any_other(engine: Engine):
    step = stuck(engine)

    @engine.workflow
    async def flow():
        await gives_up(step())

    ending = await engine.execute(engine.run_of(flow))
    assert isinstance(ending, Failed)
    assert ending.error.type == "perdure.errors.NotDeterministic"
