"""`map_error`: what awaiting a call raises, converted; what is recorded stays the failure itself."""

import asyncio

import perdure
import pytest
from perdure.errors import CancelRequested, NonExistentWorkflow, StepBuiltElsewhere
from perdure.model.outcome import Cancelled
from perdure.model.states import StepStatus

from tests.support.engine import Engine, Held, output_of


class OutOfStock(Exception): ...


def failing(engine: Engine):
    @engine.step(name="take")
    async def take():
        engine.bodies.append("run")
        raise KeyError("pens")

    return take


async def test_a_failure_is_converted_at_first_and_at_replay_and_recorded_as_it_was(engine: Engine):
    take = failing(engine)

    @engine.workflow
    async def flow():
        with pytest.raises(OutOfStock, match="pens") as caught:
            await take().map_error(lambda error: OutOfStock(error.args[0]))
        return type(caught.value.__cause__).__name__

    run = engine.run_of(flow)
    assert [output_of(await engine.execute(run)) for _ in range(2)] == ["KeyError", "KeyError"]
    assert engine.bodies == ["run"]
    assert '"KeyError"' in (run.rows[0].error or "")


async def test_a_result_is_left_alone_and_the_call_keeps_index_and_name(engine: Engine):
    @engine.step(name="one")
    async def one():
        return 1

    @engine.workflow
    async def flow():
        call = one().map_error(lambda error: OutOfStock())
        return [call.step_id, call.name, await call]

    assert await engine.output(flow) == [0, "one", 1]


async def test_conversions_follow_each_other_and_one_may_pass_the_error_on(engine: Engine):
    take = failing(engine)

    @engine.workflow
    async def flow():
        with pytest.raises(OutOfStock, match="first"):
            await take().map_error(lambda error: ValueError("first")).map_error(lambda error: OutOfStock(str(error)))
        with pytest.raises(KeyError, match="pens"):
            await take().map_error(lambda error: error)

    await engine.output(flow)


async def test_what_converts_to_no_exception_is_a_type_error_and_its_own_error_goes_out(engine: Engine):
    take = failing(engine)

    @engine.workflow
    async def flow():
        with pytest.raises(TypeError, match="map_error of take"):
            await take().map_error(lambda error: "no exception")
        with pytest.raises(ZeroDivisionError):
            await take().map_error(lambda error: 1 / 0)

    await engine.output(flow)


async def test_calls_that_are_no_steps_and_plain_calls_are_converted_too(engine: Engine):
    take = failing(engine)

    @engine.workflow
    async def flow():
        with pytest.raises(OutOfStock):
            await perdure.send("nobody", 1).map_error(
                lambda error: OutOfStock() if isinstance(error, NonExistentWorkflow) else error
            )

    await engine.output(flow)
    with pytest.raises(OutOfStock):
        await take().map_error(lambda error: OutOfStock())


async def test_gathered_and_in_a_task_it_is_converted(engine: Engine):
    take = failing(engine)

    @engine.workflow
    async def flow():
        found = await asyncio.gather(take().map_error(lambda error: OutOfStock()), return_exceptions=True)
        task = asyncio.create_task(take().map_error(lambda error: OutOfStock()))
        with pytest.raises(OutOfStock):
            await task
        return [type(each).__name__ for each in found]

    assert await engine.output(flow) == ["OutOfStock"]


async def test_a_cancel_is_not_converted(engine: Engine):
    held = Held(engine)
    converted = []

    @engine.workflow
    async def flow():
        await held.step(0).map_error(lambda error: converted.append(error) or OutOfStock())

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await held.begun(claim)
    claim.interrupt(CancelRequested("stop", immediate=True))
    assert await claim.ending() == Cancelled("stop")
    assert converted == []
    assert run.rows[0].status is StepStatus.RUNNING


async def test_a_call_that_is_awaited_elsewhere_is_refused_as_ever(engine: Engine):
    take = failing(engine)
    outside = take().map_error(lambda error: OutOfStock())

    @engine.workflow
    async def flow():
        with pytest.raises(StepBuiltElsewhere):
            await outside

    await engine.output(flow)
