"""`perdure.gather`: all of several calls, and the failure that a replay raises too."""

import asyncio

import perdure
import pytest
from perdure.errors import CancelRequested, InvalidArgument, PatchNondeterminism
from perdure.model.outcome import Cancelled, Parked
from perdure.model.states import StepStatus

from tests.support.engine import Engine, Held, output_of, statuses, until


def doubling(engine: Engine):
    @engine.step(name="double")
    async def double(n):
        return n * 2

    return double


async def test_results_come_in_the_order_of_the_calls_whichever_ends_first(engine: Engine):
    slow_may_end = asyncio.Event()

    @engine.step
    async def slow():
        await slow_may_end.wait()
        return "slow"

    @engine.step
    async def quick():
        slow_may_end.set()
        return "quick"

    @engine.workflow
    async def flow():
        return await perdure.gather(slow(), quick())

    assert await engine.output(flow) == ["slow", "quick"]


async def test_the_first_failure_in_source_order_is_raised_whichever_came_first_in_time(engine: Engine):
    late_may_fail = asyncio.Event()

    @engine.step
    async def late():
        await late_may_fail.wait()
        raise ValueError("first in order")

    @engine.step
    async def soon():
        late_may_fail.set()
        raise KeyError("first in time")

    @engine.workflow
    async def flow():
        try:
            await perdure.gather(late(), soon())
        except Exception as error:
            return type(error).__name__

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == "ValueError"
    assert output_of(await engine.execute(run)) == "ValueError"


async def test_a_failure_waits_until_all_have_ended_and_are_recorded(engine: Engine):
    may_end = asyncio.Event()

    @engine.step
    async def fails():
        may_end.set()
        raise ValueError("x")

    @engine.step
    async def other():
        await may_end.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        return 1

    @engine.workflow
    async def flow():
        with pytest.raises(ValueError, match="x"):
            await perdure.gather(fails(), other())

    run = engine.run_of(flow)
    output_of(await engine.execute(run))
    assert statuses(run) == [StepStatus.FAILED, StepStatus.SUCCEEDED]


async def test_failures_stand_among_the_results_when_asked_for(engine: Engine):
    @engine.step
    async def fails():
        raise ValueError("x")

    @engine.workflow
    async def flow():
        found = await perdure.gather(fails(), doubling(engine)(1), return_exceptions=True)
        return [type(each).__name__ for each in found]

    assert await engine.output(flow) == ["ValueError", "int"]


async def test_a_signal_is_raised_and_stands_never_among_the_results(engine: Engine):
    held = Held(engine)
    seen = []

    @engine.workflow
    async def flow():
        try:
            seen.append(await perdure.gather(held.step(1), held.step(2), return_exceptions=True))
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    claim = engine.claim(engine.run_of(flow))
    await held.begun(claim, 2)
    claim.interrupt(CancelRequested("stop", immediate=True))
    assert await claim.ending() == Cancelled("stop")
    assert seen in (["CancelRequested"], ["CancelledError"])


async def test_calls_that_all_wait_park_the_run_with_all_their_keys(engine: Engine):
    @engine.workflow
    async def flow():
        return await perdure.gather(perdure.recv("a"), perdure.recv("b"), perdure.sleep(100))

    ending = await engine.execute(engine.run_of(flow))
    assert isinstance(ending, Parked)
    assert ending.waiting_for.on == ("message:a", "message:b")
    assert ending.wake_in is not None


@pytest.mark.parametrize(
    "wrong", [lambda: 1, lambda: asyncio.sleep(0), lambda: doubling], ids=["value", "coroutine", "f"]
)
async def test_what_is_no_durable_call_is_refused_at_once(engine: Engine, wrong):
    double = doubling(engine)

    @engine.workflow
    async def flow():
        it = wrong()
        with pytest.raises(InvalidArgument, match="takes durable calls"):
            perdure.gather(double(1), it)
        if asyncio.iscoroutine(it):
            it.close()

    run = engine.run_of(flow)
    output_of(await engine.execute(run))
    assert run.rows == {}


async def test_none_at_all_and_many_are_fine(engine: Engine):
    double = doubling(engine)

    @engine.workflow
    async def flow():
        assert await perdure.gather() == ()
        return list(await perdure.gather(*(double(n) for n in range(1000))))

    assert await engine.output(flow) == [n * 2 for n in range(1000)]


async def test_it_works_in_a_step_and_outside_a_run_where_nothing_is_recorded(engine: Engine):
    double = doubling(engine)

    @engine.step
    async def outer():
        return await perdure.gather(double(1), double(2))

    @engine.workflow
    async def flow():
        return await outer()

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == [2, 4]
    assert len(run.rows) == 1
    assert await perdure.gather(double(3), perdure.sleep(0)) == (6, None)


async def test_a_call_that_was_built_elsewhere_fails_in_its_place(engine: Engine):
    double = doubling(engine)
    foreign = double(1)

    @engine.workflow
    async def flow():
        found = await perdure.gather(double(2), foreign, return_exceptions=True)
        return [type(each).__name__ for each in found]

    assert await engine.output(flow) == ["int", "StepBuiltElsewhere"]


async def test_replayed_it_gives_the_same_and_runs_no_body(engine: Engine):
    @engine.step
    async def noted(n):
        engine.bodies.append(n)
        return n

    @engine.workflow
    async def flow():
        return await perdure.gather(noted(1), noted(2))

    run = engine.run_of(flow)
    await engine.execute(run)
    assert output_of(await engine.execute(run)) == [1, 2]
    assert engine.bodies == [1, 2]


async def test_it_waits_for_all_while_one_is_tried_again(engine: Engine):
    tried = []

    @engine.step(max_attempts=2, interval=0)
    async def shaky():
        tried.append(1)
        if len(tried) == 1:
            raise OSError("down")
        return "up"

    @engine.workflow
    async def flow():
        return await perdure.gather(shaky(), doubling(engine)(2))

    claim = engine.claim(engine.run_of(flow))
    await until(lambda: claim.done)
    assert output_of(await claim.ending()) == ["up", 4]


async def test_a_patch_beside_another_call_is_refused_at_once_wherever_it_stands(engine: Engine):
    double = doubling(engine)

    @engine.workflow
    async def flow():
        with pytest.raises(PatchNondeterminism, match="on its own"):
            perdure.gather(double(1), perdure.patch("p"))
        with pytest.raises(PatchNondeterminism):
            perdure.gather(perdure.deprecate_patch("p"), double(1))
        return await perdure.gather(double(1), double(2))

    assert output_of(await engine.execute(engine.run_of(flow))) == [2, 4]
