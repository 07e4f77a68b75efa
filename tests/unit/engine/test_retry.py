"""Attempts of a step: counting, waiting, giving up, and the limit of time."""

import asyncio
import time
from datetime import timedelta

import pytest
from perdure import MaxStepRetriesExceeded, StepFailed, StepTimeout, StoreUnavailable, current
from perdure.engine.failures import describe, is_outage, rebuild_run
from perdure.errors import OwnershipLost, RegistrationError
from perdure.model.outcome import Parked, Succeeded
from perdure.model.states import StepStatus

from tests.support.engine import Engine, output_of, started, statuses


def failing(engine: Engine, times: int, **options):
    """A step that fails so many times and then returns how often it ran."""

    @engine.step(name="shaky", interval=0, **options)
    async def shaky():
        engine.bodies.append("run")
        if len(engine.bodies) <= times:
            raise ValueError(f"failure {len(engine.bodies)}")
        return len(engine.bodies)

    return shaky


async def test_a_step_is_tried_until_it_succeeds(engine: Engine):
    shaky = failing(engine, 2, max_attempts=3)

    @engine.workflow
    async def flow():
        return await shaky()

    run = engine.run_of(flow)
    claim = engine.claim(run)
    assert output_of(await claim.ending()) == 3
    assert started(claim.log.writes) == [(0, 0), (0, 1), (0, 2)]
    claim.log.commit()
    assert run.rows[0].attempts == 2
    assert "failure 1" in run.rows[0].attempt_errors


async def test_every_attempt_is_durable_before_its_body_begins(engine: Engine):
    seen = []
    run = None

    @engine.step(max_attempts=2, interval=0)
    async def shaky():
        seen.append((run.rows[0].status, run.rows[0].attempts))
        if len(seen) == 1:
            raise OSError("down")

    @engine.workflow
    async def flow():
        await shaky()

    run = engine.run_of(flow)
    await engine.execute(run)
    assert seen == [(StepStatus.RUNNING, 0), (StepStatus.RUNNING, 1)]


async def test_all_attempts_share_one_row_and_one_index(engine: Engine):
    shaky = failing(engine, 2, max_attempts=3)

    @engine.workflow
    async def flow():
        await shaky()

    run = engine.run_of(flow)
    await engine.execute(run)
    assert statuses(run) == [StepStatus.SUCCEEDED]


async def test_a_single_failure_is_raised_unwrapped(engine: Engine):
    shaky = failing(engine, 9)

    @engine.workflow
    async def flow():
        with pytest.raises(ValueError, match="failure 1"):
            await shaky()

    for _ in range(2):
        await engine.output(flow)
        assert engine.bodies == ["run"]
        engine.bodies.clear()


async def test_several_failures_are_raised_as_max_step_retries_exceeded_with_all_errors(engine: Engine):
    shaky = failing(engine, 9, max_attempts=3)

    @engine.workflow
    async def flow():
        with pytest.raises(MaxStepRetriesExceeded) as caught:
            await shaky()
        assert all(type(error) is ValueError for error in caught.value.errors)
        return [str(error) for error in caught.value.errors], caught.value.attempts, str(caught.value)

    run = engine.run_of(flow)
    errors, attempts, message = output_of(await engine.execute(run))
    assert errors == ["failure 1", "failure 2", "failure 3"]
    assert attempts == 3
    assert "shaky failed 3 times" in message
    assert output_of(await engine.execute(run)) == [errors, attempts, message]
    assert len(engine.bodies) == 3


async def test_recorded_failures_count_across_claims(engine: Engine):
    shaky = failing(engine, 9, max_attempts=3)

    def lost_at_the_third_attempt(write):
        if write.attempts == 2:
            raise OwnershipLost

    @engine.workflow
    async def flow():
        await shaky()

    run = engine.run_of(flow)
    await engine.execute(run, before_start=lost_at_the_third_attempt)
    assert len(engine.bodies) == 2
    error = (await engine.execute(run)).error
    assert len(engine.bodies) == 3
    assert "failed 3 times" in error.message


async def test_should_retry_declines_the_first_failure_and_it_is_raised_unwrapped(engine: Engine):
    shaky = failing(engine, 9, max_attempts=5, should_retry=lambda error: False)

    @engine.workflow
    async def flow():
        with pytest.raises(ValueError, match="failure 1"):
            await shaky()

    await engine.output(flow)
    assert len(engine.bodies) == 1


async def test_should_retry_declines_a_later_failure_and_all_are_raised(engine: Engine):
    shaky = failing(engine, 9, max_attempts=5, should_retry=lambda error: "failure 1" in str(error))

    @engine.workflow
    async def flow():
        with pytest.raises(MaxStepRetriesExceeded) as caught:
            await shaky()
        return len(caught.value.errors)

    assert await engine.output(flow) == 2


async def test_should_retry_that_fails_itself_ends_the_step_with_its_own_error(engine: Engine, caplog):
    def broken(error):
        raise ZeroDivisionError

    shaky = failing(engine, 9, max_attempts=5, should_retry=broken)

    @engine.workflow
    async def flow():
        await shaky()

    assert (await engine.error(flow)).error.message == "failure 1"
    assert "should_retry" in caplog.text


async def test_should_retry_sees_an_exception_also_for_what_is_none(engine: Engine):
    seen = []

    @engine.step(max_attempts=2, interval=0, should_retry=lambda error: bool(seen.append(error)) or True)
    async def leaves():
        raise SystemExit(3)

    @engine.workflow
    async def flow():
        await leaves()

    await engine.error(flow)
    assert [type(error) for error in seen] == [StepFailed, StepFailed]


async def test_max_attempts_0_is_1(engine: Engine):
    shaky = failing(engine, 9, max_attempts=0)

    @engine.workflow
    async def flow():
        await shaky()

    assert (await engine.error(flow)).error.type == "ValueError"
    assert len(engine.bodies) == 1


async def test_an_attempt_past_its_timeout_is_a_failure_that_is_retried(engine: Engine):
    @engine.step(max_attempts=2, interval=0, timeout=0.02)
    async def slow():
        engine.bodies.append("run")
        if len(engine.bodies) == 1:
            await asyncio.Event().wait()
        return "done"

    @engine.workflow
    async def flow():
        return await slow()

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == "done"
    assert "StepTimeout" in run.rows[0].attempt_errors


async def test_a_timeout_in_the_only_attempt_is_raised_as_step_timeout(engine: Engine):
    @engine.step(timeout=0.02)
    async def slow():
        await asyncio.Event().wait()

    @engine.workflow
    async def flow():
        with pytest.raises(StepTimeout, match=r"slow ran longer than 0\.02 s"):
            await slow()

    run = engine.run_of(flow)
    await engine.execute(run)
    assert isinstance(await engine.execute(run), Succeeded)


async def test_a_timeout_that_the_body_raises_itself_is_its_own_error(engine: Engine):
    @engine.step(timeout=60)
    async def slow():
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    @engine.workflow
    async def flow():
        await slow()

    assert (await engine.error(flow)).error.type == "TimeoutError"


async def test_a_body_that_turns_its_timeout_into_a_result_or_an_error_has_timed_out_all_the_same(engine: Engine):
    @engine.step(timeout=0.02)
    async def returns():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"

    @engine.step(timeout=0.02)
    async def raises():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("late") from None

    @engine.workflow
    async def flow():
        for slow in (returns, raises):
            with pytest.raises(StepTimeout):
                await slow()

    assert await engine.output(flow) is None


async def test_a_short_backoff_is_waited_for_in_memory(engine: Engine):
    @engine.step(max_attempts=2, interval=0.05)
    async def shaky():
        engine.bodies.append(time.monotonic())
        if len(engine.bodies) == 1:
            raise OSError

    @engine.workflow
    async def flow():
        await shaky()

    await engine.output(flow)
    assert engine.bodies[1] - engine.bodies[0] >= 0.05


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": -1},
        {"interval": float("nan")},
        {"interval": -1},
        {"backoff_rate": float("inf")},
        {"max_interval": float("nan")},
        {"timeout": 0},
        {"timeout": float("inf")},
    ],
    ids=str,
)
async def test_options_that_make_no_sense_are_refused_at_registration(engine: Engine, options):
    with pytest.raises(RegistrationError):
        engine.step(**options)(lambda: None)


async def test_a_hundred_failures_keep_the_first_and_the_latest(engine: Engine):
    shaky = failing(engine, 1000, max_attempts=150)

    @engine.workflow
    async def flow():
        try:
            await shaky()
        except MaxStepRetriesExceeded as error:
            return [str(each) for each in error.errors], error.attempts

    errors, attempts = await engine.output(flow)
    assert len(errors) == 100
    assert (errors[0], errors[1], errors[-1], attempts) == ("failure 1", "failure 52", "failure 150", 150)


async def test_a_step_timeout_is_offered_to_should_retry_and_counts(engine: Engine):
    offered = []

    @engine.step(name="slow", max_attempts=5, interval=0, timeout=0.02, should_retry=offered.append)
    async def slow():
        await asyncio.Event().wait()

    @engine.workflow
    async def flow():
        with pytest.raises(StepTimeout):
            await slow()

    run = engine.run_of(flow)
    await engine.execute(run)
    assert [type(error) for error in offered] == [StepTimeout]
    assert run.rows[0].attempts == 1


@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "in a group"])
async def test_an_outage_of_our_database_in_a_body_is_no_attempt_and_not_offered(engine: Engine, wrapped):
    offered = []

    @engine.step(name="asks", should_retry=offered.append)
    async def asks():
        engine.bodies.append(current().step.attempt)
        if len(engine.bodies) == 1:
            outage = StoreUnavailable("the database is away")
            raise ExceptionGroup("two at once", [outage, outage]) if wrapped else outage
        return "answered"

    @engine.workflow
    async def flow():
        return await asks()

    run = engine.run_of(flow)
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert ending.waiting_for.message == "step asks met no database; it is tried again in 5 s"
    assert (run.rows[0].status, run.rows[0].attempts) == (StepStatus.RETRYING, 0)
    run.elapsed = 6
    assert output_of(await engine.execute(run)) == "answered"
    assert (engine.bodies, offered) == ([1, 1], [])


async def test_an_outage_keeps_the_count_of_failures_before_it(engine: Engine):
    outcomes = [OSError("once"), StoreUnavailable("away"), OSError("twice")]

    @engine.step(name="asks", max_attempts=2, interval=0)
    async def asks():
        raise outcomes.pop(0)

    @engine.workflow
    async def flow():
        with pytest.raises(MaxStepRetriesExceeded) as caught:
            await asks()
        return [str(error) for error in caught.value.errors]

    run = engine.run_of(flow)
    await engine.execute(run)
    assert (run.rows[0].status, run.rows[0].attempts) == (StepStatus.RETRYING, 1)
    run.elapsed = 6
    assert output_of(await engine.execute(run)) == ["once", "twice"]


async def test_an_outage_that_a_run_has_failed_with_is_a_failure_where_it_is_raised_again(engine: Engine):
    failed_with = describe(StoreUnavailable("was away"))

    @engine.step(name="asks")
    async def asks():
        raise rebuild_run(failed_with, "other")

    @engine.workflow
    async def flow():
        await asks()

    assert (await engine.error(flow)).error.code == "PRD-601"
    assert not is_outage(ExceptionGroup("mixed", [StoreUnavailable("away"), ValueError()]))


def test_times_are_seconds_or_timedeltas(engine: Engine):
    @engine.step(interval=timedelta(milliseconds=5), max_interval=timedelta(hours=2), timeout=timedelta(minutes=1))
    async def step(): ...

    options = step.definition.options
    assert (options.interval, options.max_interval, options.timeout) == (0.005, 7200.0, 60.0)
