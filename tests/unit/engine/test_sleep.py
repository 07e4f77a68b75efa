"""Sleeps: the end is fixed at the first record, long ones give the slot back, each is compared at replay."""

import asyncio
from datetime import timedelta

import perdure
import pytest
from perdure.errors import (
    CancelRequested,
    InputMismatch,
    InsideStep,
    InvalidArgument,
    StepBuiltElsewhere,
    UnexpectedStep,
)
from perdure.model.outcome import NO_WAKE, Cancelled, Mismatch, Parked, Released
from perdure.model.states import StepStatus

from tests.support.engine import Engine, output_of, statuses


def sleeper(engine: Engine, seconds: object):
    @engine.workflow
    async def flow():
        await perdure.sleep(seconds)
        return "slept"

    return engine.run_of(flow)


async def test_a_long_sleep_parks_the_run_with_its_record(engine: Engine):
    run = sleeper(engine, 3600)
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert 3599 < ending.wake_in <= 3600
    assert (ending.waiting_for.kind, ending.waiting_for.on, ending.wake_seq) == ("Sleep", (), NO_WAKE)
    assert run.statuses() == [("perdure.sleep", StepStatus.WAITING)]
    assert run.rows[0].wake_in == 3600


async def test_a_woken_run_sleeps_only_for_the_rest(engine: Engine):
    run = sleeper(engine, timedelta(hours=1))
    await engine.execute(run)
    run.elapsed = 3000
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert 599 < ending.wake_in <= 600
    run.elapsed = 3600
    assert output_of(await engine.execute(run)) == "slept"
    assert statuses(run) == [StepStatus.SUCCEEDED]


async def test_a_short_sleep_stays_in_memory(engine: Engine):
    run = sleeper(engine, 0.01)
    assert output_of(await engine.execute(run)) == "slept"
    assert statuses(run) == [StepStatus.SUCCEEDED]


@pytest.mark.parametrize("seconds", [0, -5, timedelta(seconds=-1)])
async def test_no_time_is_slept_at_once(engine: Engine, seconds: object):
    claim = engine.claim(sleeper(engine, seconds))
    assert output_of(await claim.ending()) == "slept"
    assert [write.status for write in claim.log.writes] == [StepStatus.SUCCEEDED]


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), float("-inf"), 1e30, 10**400, True, "1", None])
async def test_what_is_no_length_of_time_is_refused(seconds: object):
    with pytest.raises(InvalidArgument):
        perdure.sleep(seconds)  # type: ignore[arg-type]


async def test_a_refused_sleep_takes_no_index(engine: Engine):
    @engine.workflow
    async def flow():
        with pytest.raises(InvalidArgument):
            perdure.sleep(float("nan"))
        await perdure.sleep(0)

    run = engine.run_of(flow)
    await engine.execute(run)
    assert list(run.rows) == [0]


async def test_sleeps_beside_each_other_park_until_the_first_ends(engine: Engine):
    @engine.workflow
    async def flow():
        await asyncio.gather(perdure.sleep(100), perdure.sleep(50))
        return "both"

    run = engine.run_of(flow)
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert 49 < ending.wake_in <= 50
    run.elapsed = 50
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert 49 < ending.wake_in <= 50
    assert statuses(run) == [StepStatus.WAITING, StepStatus.SUCCEEDED]
    run.elapsed = 100
    assert output_of(await engine.execute(run)) == "both"


async def test_a_run_parks_after_a_short_sleep_when_only_a_long_one_is_left(engine: Engine):
    @engine.workflow
    async def flow():
        await asyncio.gather(perdure.sleep(0.01), perdure.sleep(100))

    run = engine.run_of(flow)
    ending = await engine.execute(run, park_after=0.05)
    assert isinstance(ending, Parked)
    assert statuses(run) == [StepStatus.SUCCEEDED, StepStatus.WAITING]


async def test_a_sleep_beside_a_step_in_progress_stays(engine: Engine):
    gate = asyncio.Event()

    @engine.step(name="other")
    async def other():
        await gate.wait()

    @engine.workflow
    async def flow():
        await asyncio.gather(perdure.sleep(100), other())

    run = engine.run_of(flow)
    claim = engine.claim(run)
    while claim.execution.steps_in_progress == 0:  # noqa: ASYNC110
        await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not claim.done
    gate.set()
    assert isinstance(await claim.ending(), Parked)


async def test_a_steps_backoff_and_a_sleep_wake_at_the_earlier(engine: Engine):
    @engine.step(name="shaky", max_attempts=2, interval=30)
    async def shaky():
        raise OSError

    @engine.workflow
    async def flow():
        await asyncio.gather(perdure.sleep(100), shaky())

    ending = await engine.execute(engine.run_of(flow))
    assert isinstance(ending, Parked)
    assert (ending.waiting_for.kind, ending.waiting_for.name) == ("RetryBackoff", "shaky")
    assert 29 < ending.wake_in <= 30


async def test_a_cancel_ends_a_sleep_and_records_nothing_more(engine: Engine):
    run = sleeper(engine, 0.9)
    claim = engine.claim(run)
    while not claim.execution._steps.backoffs:  # noqa: ASYNC110
        await asyncio.sleep(0)
    claim.interrupt(CancelRequested("enough"))
    assert await claim.ending() == Cancelled("enough")
    assert [write.status for write in claim.log.writes] == [StepStatus.WAITING]


async def test_another_length_at_replay_is_a_mismatch(engine: Engine):
    seconds = [3600]

    @engine.workflow
    async def flow():
        await perdure.sleep(seconds[0])

    run = engine.run_of(flow)
    await engine.execute(run)
    seconds[0] = 60
    ending = await engine.execute(run)
    assert isinstance(ending, Mismatch)
    assert ending.error.code == InputMismatch.code


async def test_a_step_where_a_sleep_is_recorded_is_a_mismatch(engine: Engine):
    changed = False

    @engine.step(name="other")
    async def other():
        pass

    @engine.workflow
    async def flow():
        await (other() if changed else perdure.sleep(3600))

    run = engine.run_of(flow)
    await engine.execute(run)
    changed = True
    ending = await engine.execute(run)
    assert isinstance(ending, Mismatch)
    assert ending.error.code == UnexpectedStep.code
    assert "perdure.sleep is recorded as waiting" in ending.error.message


async def test_outside_a_run_it_is_a_plain_sleep_without_a_place():
    call = perdure.sleep(0)
    assert call.step_id is None
    assert await call is None


async def test_in_a_step_it_is_a_plain_sleep_that_nothing_records(engine: Engine):
    @engine.step(name="napping")
    async def napping():
        await perdure.sleep(0)
        return "fresh"

    @engine.workflow
    async def flow():
        return await napping()

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == "fresh"
    assert run.statuses() == [("napping", StepStatus.SUCCEEDED)]


async def test_in_a_sync_step_nothing_can_await_it(engine: Engine):
    @engine.step(name="napping")
    def napping():
        with pytest.raises(InsideStep, match="sync step"):
            perdure.sleep(0)

    @engine.workflow
    async def flow():
        await napping()

    output_of(await engine.execute(engine.run_of(flow)))


async def test_a_call_built_in_the_body_cannot_be_awaited_in_a_step(engine: Engine):
    built = []

    @engine.step(name="elsewhere")
    async def elsewhere():
        with pytest.raises(StepBuiltElsewhere):
            await built[0]

    @engine.workflow
    async def flow():
        built.append(perdure.sleep(0))
        await elsewhere()

    output_of(await engine.execute(engine.run_of(flow)))


async def test_calls_and_steps_take_their_indexes_in_the_order_in_which_they_are_built(engine: Engine):
    @engine.step(name="other")
    async def other(n):
        return n

    @engine.workflow
    async def flow():
        calls = [other(1), perdure.sleep(0), other(2), perdure.sleep(0)]
        assert [call.step_id for call in calls] == [0, 1, 2, 3]
        await asyncio.gather(*reversed(calls))

    run = engine.run_of(flow)
    output_of(await engine.execute(run))
    assert [name for name, _ in run.statuses()] == ["other", "perdure.sleep", "other", "perdure.sleep"]


async def test_a_claim_that_has_written_as_much_as_one_may_gives_its_run_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("perdure.engine.steps.MAX_WRITES", 10)

    @engine.workflow
    async def flow():
        for _ in range(15):
            await perdure.sleep(0)
        return "slept"

    run = engine.run_of(flow)
    assert isinstance(await engine.execute(run), Released)
    assert output_of(await engine.execute(run)) == "slept"
