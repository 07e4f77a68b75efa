"""Step calls: where they may be awaited, what they do outside a run and inside another step."""

import asyncio
from dataclasses import replace
from decimal import Decimal

import pytest
from perdure import StepBuiltElsewhere, current, is_active
from perdure.model.outcome import Mismatch
from perdure.model.states import StepStatus

from tests.support.engine import Engine, output_of, statuses


async def test_a_step_outside_a_run_runs_inline_and_records_nothing(engine: Engine):
    @engine.step
    async def double(n):
        return n * 2

    @engine.step
    def treble(n):
        return n * 3

    call = double(2)
    assert call.step_id is None
    assert call.name == "test_a_step_outside_a_run_runs_inline_and_records_nothing.<locals>.double"
    assert await call == 4
    assert await treble(2) == 6


def test_a_step_outside_a_run_can_be_run_by_asyncio_run(engine: Engine):
    @engine.step
    async def double(n):
        return n * 2

    assert asyncio.run(double(4)) == 8


async def test_a_workflow_called_directly_is_its_function(engine: Engine):
    @engine.step
    async def double(n):
        return n * 2

    @engine.workflow
    async def flow(n):
        return await double(n) + 1

    assert await flow(5) == 11


async def test_is_active_and_current_say_where_the_code_runs(engine: Engine):
    @engine.step(name="look")
    async def look():
        info = current()
        return [is_active(), info.step.index, info.step.name, info.step.attempt, info.step.idempotency_key]

    @engine.workflow
    async def flow():
        info = current()
        body = [is_active(), info.run_id, info.workflow, info.namespace, info.name, info.step]
        return [body, await look()]

    assert not is_active()
    with pytest.raises(LookupError):
        current()
    body, step = await engine.output(flow)
    assert body == [True, "run-1", "flow", "default", "order-1", None]
    assert step == [True, 0, "look", 1, "run-1/0"]


async def test_a_step_within_a_step_runs_plainly_as_part_of_it(engine: Engine):
    @engine.step
    async def inner(n):
        engine.bodies.append(current().step.name)
        return Decimal(n)

    @engine.step
    def sync_inner(n):
        engine.bodies.append(current().step.name)
        return Decimal(n)

    @engine.step(name="outer")
    async def outer():
        call = inner(1)
        assert call.step_id is None
        return int(await call + await sync_inner(2))

    @engine.workflow
    async def flow():
        return await outer()

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == 3
    assert statuses(run) == [StepStatus.SUCCEEDED]
    assert engine.bodies == ["outer", "outer"]


async def test_a_step_within_a_sync_step_says_how_to_call_it(engine: Engine):
    @engine.step
    def inner(n):
        return n + 1

    @engine.step
    def awaits_nothing():
        inner(1)

    @engine.step
    def calls_the_function():
        return inner.function(1)

    @engine.workflow
    async def flow():
        with pytest.raises(RuntimeError, match=r"inner\.function"):
            await awaits_nothing()
        return await calls_the_function()

    assert await engine.output(flow) == 2


async def test_a_sync_step_may_run_a_loop_of_its_own_with_steps_in_it(engine: Engine):
    @engine.step
    def inner(n):
        return n + 1

    @engine.step
    def outer():
        async def main():
            return await inner(1)

        return asyncio.run(main())

    @engine.workflow
    async def flow():
        return await outer()

    assert await engine.output(flow) == 2


async def test_a_call_built_outside_and_awaited_inside_is_refused(engine: Engine):
    @engine.step
    async def step(): ...

    call = step()

    @engine.workflow
    async def flow():
        await call

    error = (await engine.error(flow)).error
    assert error.code == "PRD-303"
    assert "built outside a run and is awaited in the body of run run-1" in error.message


async def test_a_call_built_inside_and_awaited_outside_is_refused(engine: Engine):
    calls = []

    @engine.step
    async def step(): ...

    @engine.workflow
    async def flow():
        calls.append(step())

    await engine.output(flow)
    with pytest.raises(StepBuiltElsewhere):
        await calls[0]


async def test_a_call_carried_into_another_run_is_refused(engine: Engine):
    calls = []

    @engine.step
    async def step(): ...

    @engine.workflow
    async def builds():
        calls.append(step())

    @engine.workflow
    async def awaits():
        await calls[0]

    await engine.output(builds)
    assert (await engine.error(awaits)).error.code == "PRD-303"


async def test_a_call_carried_into_a_step_is_refused(engine: Engine):
    calls = []

    @engine.step
    async def inner(): ...

    @engine.step
    async def outer():
        await calls[0]

    @engine.workflow
    async def flow():
        calls.append(inner())
        await outer()

    assert (await engine.error(flow)).error.code == "PRD-303"


async def test_a_call_carried_out_of_a_step_is_refused(engine: Engine):
    calls = []

    @engine.step
    async def inner(): ...

    @engine.step
    async def outer():
        calls.append(inner())

    @engine.workflow
    async def flow():
        await outer()
        await calls[0]

    assert (await engine.error(flow)).error.code == "PRD-303"


async def test_a_call_is_awaited_once(engine: Engine):
    @engine.step
    async def step(): ...

    @engine.workflow
    async def flow():
        call = step()
        await call
        await call

    assert "awaited before" in (await engine.error(flow)).error.message


async def test_a_call_is_taken_by_everything_that_takes_a_coroutine(engine: Engine):
    @engine.step
    async def double(n):
        await asyncio.sleep(0)
        return n * 2

    @engine.workflow
    async def flow():
        async with asyncio.TaskGroup() as group:
            first = group.create_task(double(1))
            second = asyncio.create_task(double(2))
        return [first.result(), await second, await asyncio.wait_for(double(3), 5), *await asyncio.gather(double(4))]

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == [2, 4, 6, 8]
    assert statuses(run) == [StepStatus.SUCCEEDED] * 4


async def test_a_call_that_does_not_fit_the_signature_is_a_type_error_and_takes_no_index(engine: Engine):
    @engine.step
    async def step(a, *, b=0): ...

    @engine.workflow
    async def flow():
        for wrong in (step, lambda: step(1, 2), lambda: step(1, c=1)):
            with pytest.raises(TypeError, match=r"^step\(\): .*; it takes a, b$"):
                wrong()
        return step(1, b=2).step_id

    assert await engine.output(flow) == 0


async def test_arguments_are_recorded_by_position_however_they_were_given(engine: Engine):
    @engine.step
    async def step(a, b=2, *rest, c=3, **others): ...

    @engine.workflow
    async def flow():
        await step(1)
        await step(a=1, b=5)
        await step(1, 2, 3, 4, c=5, d=6)
        await step(1, c=7)

    run = engine.run_of(flow)
    await engine.execute(run)
    assert [row.input for row in run.rows.values()] == ["[1]", "[1,5]", '[1,2,[3,4],5,{"d":6}]', "[1,2,[],7]"]


async def test_renaming_a_parameter_or_adding_one_with_a_default_replays(engine: Engine):
    @engine.step(name="charge")
    async def charge(cents):
        return "paid"

    @engine.workflow
    async def flow():
        return await charge(cents=100)

    run = engine.run_of(flow)
    await engine.execute(run)
    newer = Engine(engine.threads)

    @newer.step(name="charge")
    async def charge_again(amount, currency="EUR"):
        raise AssertionError("recorded")

    async def body():
        return await charge_again(amount=100)

    body.__name__ = "flow"
    newer.workflow(body)
    ending = await newer.execute(run)
    assert not isinstance(ending, Mismatch)
    assert output_of(ending) == "paid"


async def test_sets_as_arguments_replay_whatever_the_order_of_their_elements(engine: Engine):
    @engine.step
    async def count(names):
        return len(names)

    @engine.workflow
    async def flow():
        return await count({"a", "b", "c"})

    run = engine.run_of(flow)
    await engine.execute(run)
    for order in ('[["a","b","c"]]', '[["c","b","a"]]', '[["b","c","a"]]'):
        run.rows[0] = replace(run.rows[0], input=order)
        assert output_of(await engine.execute(run)) == 3
    run.rows[0] = replace(run.rows[0], input='[["a","b","d"]]')
    assert isinstance(await engine.execute(run), Mismatch)
