"""Long backoffs give the slot back, but only when nothing else of the run is in progress."""

import asyncio

import pytest
from perdure.errors import CancelRequested, OwnershipLost, ReleaseRequested
from perdure.model.outcome import Cancelled, ErrorRecord, Failed, Lost, Parked, Released
from perdure.model.states import StepStatus

from tests.support.engine import Engine, output_of, statuses, until


def shaky(engine: Engine, name: str = "shaky", interval: float = 60, failures: int = 1):
    runs = []

    @engine.step(name=name, max_attempts=5, interval=interval)
    async def step():
        runs.append(name)
        engine.bodies.append(name)
        if len(runs) <= failures:
            raise OSError("down")
        return name

    return step


async def test_a_backoff_longer_than_the_limit_parks_the_run_with_the_time_left(engine: Engine):
    step = shaky(engine)

    @engine.workflow
    async def flow():
        return await step()

    run = engine.run_of(flow)
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert 59 < ending.wake_in <= 60
    assert ending.waiting_for.kind == "RetryBackoff"
    assert ending.waiting_for.name == "shaky"
    assert ending.waiting_for.message == "step shaky failed once; its next attempt is in 60 s"
    assert statuses(run) == [StepStatus.RETRYING]


async def test_a_step_that_waits_for_its_next_attempt_tells_why(engine: Engine):
    step = shaky(engine)

    @engine.workflow
    async def flow():
        return await step()

    run = engine.run_of(flow)
    await engine.execute(run)
    assert ErrorRecord.from_json(run.rows[0].error).message == "down"


async def test_a_parked_run_goes_on_when_its_time_has_come(engine: Engine):
    step = shaky(engine)

    @engine.workflow
    async def flow():
        return await step()

    run = engine.run_of(flow)
    await engine.execute(run)
    run.elapsed = 61
    assert output_of(await engine.execute(run)) == "shaky"
    assert engine.bodies == ["shaky", "shaky"]


async def test_a_run_woken_too_early_parks_again_for_the_rest_without_running_the_body(engine: Engine):
    step = shaky(engine)

    @engine.workflow
    async def flow():
        return await step()

    run = engine.run_of(flow)
    await engine.execute(run)
    run.elapsed = 20
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert 39 < ending.wake_in <= 40
    assert engine.bodies == ["shaky"]


async def test_a_run_does_not_park_while_another_step_is_in_progress(engine: Engine):
    step = shaky(engine)
    gate = asyncio.Event()

    @engine.step(name="other")
    async def other():
        await gate.wait()

    @engine.workflow
    async def flow():
        await asyncio.gather(step(), other())

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(lambda: bool(claim.execution._steps.backoffs))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not claim.done
    gate.set()
    assert isinstance(await claim.ending(), Parked)
    claim.log.commit()
    assert statuses(run) == [StepStatus.RETRYING, StepStatus.SUCCEEDED]


async def test_steps_built_beside_the_waiting_one_begin_before_the_run_parks(engine: Engine):
    step = shaky(engine)

    @engine.step(name="other")
    async def other(n):
        engine.bodies.append(n)
        await asyncio.sleep(0)

    async def two(n):
        await other(n)
        await other(n + 1)

    @engine.workflow
    async def flow():
        async with asyncio.TaskGroup() as group:
            group.create_task(step())
            group.create_task(two(1))
            group.create_task(two(3))

    assert isinstance(await engine.execute(engine.run_of(flow)), Parked)
    assert engine.bodies == ["shaky", 1, 3, 2, 4]


async def test_several_waiting_steps_park_until_the_first_is_due(engine: Engine):
    slow, fast = shaky(engine, "slow", 500), shaky(engine, "fast", 50)

    @engine.workflow
    async def flow():
        await asyncio.gather(slow(), fast())

    ending = await engine.execute(engine.run_of(flow))
    assert isinstance(ending, Parked)
    assert ending.waiting_for.name == "fast"
    assert 49 < ending.wake_in <= 50


async def test_a_short_backoff_beside_a_long_one_keeps_the_slot(engine: Engine):
    long, short = shaky(engine, "long", 500), shaky(engine, "short", 0.05)

    @engine.workflow
    async def flow():
        await asyncio.gather(long(), short())

    run = engine.run_of(flow)
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert ending.waiting_for.name == "long"
    assert engine.bodies == ["long", "short", "short"]


async def test_a_parked_body_unwinds_and_its_result_is_ignored(engine: Engine):
    step = shaky(engine)

    @engine.workflow
    async def flow():
        try:
            await step()
        except BaseException as error:
            engine.bodies.append(type(error).__name__)
            return "swallowed"

    assert isinstance(await engine.execute(engine.run_of(flow)), Parked)
    assert engine.bodies == ["shaky", "SlotGivenBack"]


@pytest.mark.parametrize(
    ("signal", "ending"),
    [
        (CancelRequested("x"), Cancelled("x")),
        (ReleaseRequested("x"), Released("x")),
        (OwnershipLost("x"), Lost()),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_waiting_step_is_interrupted_at_once(engine: Engine, signal, ending):
    step = shaky(engine)

    @engine.workflow
    async def flow():
        await step()

    claim = engine.claim(engine.run_of(flow), park_after=1000)
    await until(lambda: bool(claim.execution._steps.backoffs))
    claim.interrupt(signal)
    assert await claim.ending() == ending


async def test_a_body_that_fails_beside_a_waiting_step_does_not_wait_for_it(engine: Engine):
    step = shaky(engine)

    @engine.step(name="fails")
    async def fails():
        await until(lambda: "shaky" in engine.bodies)
        raise ValueError("no")

    @engine.workflow
    async def flow():
        await asyncio.gather(step(), fails())

    run = engine.run_of(flow)
    ending = await engine.execute(run)
    assert isinstance(ending, Failed)
    assert ending.error.message == "no"
    assert statuses(run) == [StepStatus.RETRYING, StepStatus.FAILED]


async def test_a_cancel_while_parking_beats_the_park(engine: Engine):
    step = shaky(engine)
    claim = None

    @engine.workflow
    async def flow():
        try:
            await step()
        finally:
            claim.interrupt(CancelRequested("x"))

    claim = engine.claim(engine.run_of(flow))
    assert await claim.ending() == Cancelled("x")
