"""Steps that a graceful cancel stops, and how a body learns that nobody wants its result any more."""

import asyncio
import threading
import time

import perdure
import pytest
from perdure import StepTimeout, current
from perdure.engine import unwind
from perdure.engine.cancellation import Cancellation
from perdure.errors import CancelRequested, OwnershipLost, ReleaseRequested
from perdure.model.outcome import Cancelled, Lost, Released, Succeeded
from perdure.model.states import StepStatus

from tests.support.engine import PATIENCE, Engine, Held, output_of, statuses, until

GRACEFUL = CancelRequested("stop")


def endless(engine: Engine, **options):
    """A step that ends when it is stopped only, and notes what it saw."""

    @engine.step(name="endless", preemptible=True, **options)
    async def endless():
        token = current().step.cancelled
        engine.bodies.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            engine.bodies.append(f"stopped {token.is_set()}")

    return endless


async def test_a_graceful_cancel_stops_a_preemptible_step_at_once_and_records_nothing(engine: Engine):
    step = endless(engine, max_attempts=5, interval=0)

    @engine.workflow
    async def flow():
        await step()

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(lambda: bool(engine.bodies))
    claim.interrupt(GRACEFUL)
    assert await claim.ending() == Cancelled("stop")
    claim.log.commit()
    assert engine.bodies == ["begun", "stopped True"]
    assert (statuses(run), run.rows[0].attempts) == ([StepStatus.RUNNING], 0)


async def test_a_release_lets_a_preemptible_step_finish(engine: Engine):
    gate = asyncio.Event()

    @engine.step(preemptible=True)
    async def held():
        engine.bodies.append("begun")
        await gate.wait()

    @engine.workflow
    async def flow():
        await held()

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(lambda: bool(engine.bodies))
    claim.interrupt(ReleaseRequested("drain"))
    gate.set()
    assert await claim.ending() == Released("drain")
    claim.log.commit()
    assert statuses(run) == [StepStatus.SUCCEEDED]


async def test_beside_a_preemptible_step_others_finish_and_are_recorded(engine: Engine):
    step, held = endless(engine), Held(engine)

    @engine.workflow
    async def flow():
        await asyncio.gather(step(), held.step(0))

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(lambda: bool(held.noted) and bool(engine.bodies))
    claim.interrupt(GRACEFUL)
    await until(lambda: "stopped True" in engine.bodies)
    await asyncio.sleep(0)
    assert not claim.done
    held.gate.set()
    assert await claim.ending() == Cancelled("stop")
    claim.log.commit()
    assert statuses(run) == [StepStatus.RUNNING, StepStatus.SUCCEEDED]


@pytest.mark.parametrize("how", ["returns", "raises"])
async def test_what_a_preempted_step_still_gives_is_dropped(engine: Engine, how):
    @engine.step(name="stubborn", preemptible=True, max_attempts=3, interval=0)
    async def stubborn():
        engine.bodies.append("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if how == "returns":
                return "late"
            raise ValueError("late") from None

    @engine.workflow
    async def flow():
        return await stubborn()

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(lambda: bool(engine.bodies))
    claim.interrupt(GRACEFUL)
    assert await claim.ending() == Cancelled("stop")
    claim.log.commit()
    assert (statuses(run), engine.bodies) == ([StepStatus.RUNNING], ["begun"])


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
async def test_a_preempted_step_that_goes_on_is_left_behind(engine: Engine, caplog, beside):
    held, over = Held(engine), False

    @engine.step(name="stubborn", preemptible=True)
    async def stubborn():
        held.noted.append("begin stubborn")
        while not over:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    @engine.workflow
    async def flow():
        await asyncio.gather(stubborn(), *([held.step(0)] if beside else []))

    claim = engine.claim(engine.run_of(flow), unwind=0.02)
    await held.begun(claim, 1 + beside)
    await until(lambda: "begin stubborn" in held.noted)
    claim.interrupt(GRACEFUL)
    held.gate.set()
    assert await claim.ending() == Cancelled("stop")
    assert "left behind" in caplog.text
    over = True
    for task in list(unwind._abandoned):
        task.cancel()
    await until(lambda: not unwind._abandoned)


async def test_the_cancel_of_a_run_that_was_to_be_released_stops_its_preemptible_steps(engine: Engine):
    step = endless(engine)

    @engine.workflow
    async def flow():
        await step()

    claim = engine.claim(engine.run_of(flow))
    await until(lambda: bool(engine.bodies))
    claim.interrupt(ReleaseRequested("drain"))
    await asyncio.sleep(0)
    assert not claim.done
    claim.interrupt(GRACEFUL)
    assert await claim.ending() == Cancelled("stop")


# -- the token


@pytest.mark.parametrize(
    ("signal", "ending"),
    [
        (CancelRequested("x", immediate=True), Cancelled("x")),
        (ReleaseRequested("x", immediate=True), Released("x")),
        (OwnershipLost("x"), Lost()),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_thread_sees_that_its_step_is_stopped_at_once(engine: Engine, signal, ending):
    seen = threading.Event()

    @engine.step
    def works():
        token = current().step.cancelled
        engine.bodies.append("begun")
        until_set(token)
        seen.set()

    @engine.workflow
    async def flow():
        await works()

    claim = engine.claim(engine.run_of(flow))
    await until(lambda: bool(engine.bodies))
    claim.interrupt(signal)
    assert await claim.ending() == ending
    await until(seen.is_set)


def until_set(token: Cancellation) -> None:
    ends = time.monotonic() + PATIENCE
    while not token.is_set():
        assert time.monotonic() < ends
        time.sleep(0.001)


async def test_a_graceful_cancel_sets_no_token_of_a_step_that_may_finish(engine: Engine):
    gate = threading.Event()

    @engine.step
    def works():
        token = current().step.cancelled
        engine.bodies.append("begun")
        gate.wait(PATIENCE)
        engine.bodies.append(token.is_set())

    @engine.workflow
    async def flow():
        await works()

    claim = engine.claim(engine.run_of(flow))
    await until(lambda: bool(engine.bodies))
    claim.interrupt(GRACEFUL)
    gate.set()
    assert await claim.ending() == Cancelled("stop")
    assert engine.bodies == ["begun", False]


async def test_a_thread_that_asks_only_after_its_step_was_stopped_is_told_so(engine: Engine):
    gate = threading.Event()

    @engine.step(timeout=0.02)
    def works():
        step = current().step
        gate.wait(PATIENCE)
        engine.bodies.append(step.cancelled.is_set())

    @engine.workflow
    async def flow():
        with pytest.raises(StepTimeout):
            await works()
        gate.set()

    assert isinstance(await engine.execute(engine.run_of(flow)), Succeeded)
    await until(lambda: engine.bodies == [True])


async def test_the_token_is_set_before_an_async_body_sees_its_timeout(engine: Engine):
    @engine.step(timeout=0.02)
    async def slow():
        token = current().step.cancelled
        try:
            await asyncio.Event().wait()
        finally:
            engine.bodies.append(token.is_set())

    @engine.workflow
    async def flow():
        with pytest.raises(StepTimeout):
            await slow()

    await engine.output(flow)
    assert engine.bodies == [True]


async def test_each_attempt_has_a_token_of_its_own_and_a_finished_one_is_not_set(engine: Engine):
    tokens = []

    @engine.step(max_attempts=2, interval=0)
    async def shaky():
        tokens.append(current().step.cancelled)
        assert current().step.cancelled is tokens[-1]
        if len(tokens) == 1:
            raise OSError

    @engine.step
    async def last():
        return [token.is_set() for token in tokens]

    @engine.workflow
    async def flow():
        await shaky()
        return await last()

    assert await engine.output(flow) == [False, False]
    assert tokens[0] is not tokens[1]


async def test_what_a_step_has_started_beside_itself_can_wait_for_the_token(engine: Engine):
    @engine.step(preemptible=True)
    async def step():
        token = current().step.cancelled
        helper = asyncio.create_task(token.wait())
        engine.bodies.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            await helper
            engine.bodies.append("helper told")

    @engine.workflow
    async def flow():
        await step()

    claim = engine.claim(engine.run_of(flow))
    await until(lambda: bool(engine.bodies))
    claim.interrupt(GRACEFUL)
    assert await claim.ending() == Cancelled("stop")
    assert engine.bodies == ["begun", "helper told"]


async def test_the_deadline_sets_the_token(engine: Engine):
    noted = []

    @engine.step
    def works():
        token = current().step.cancelled
        until_set(token)
        noted.append("told")

    @engine.workflow
    async def late():
        await works()

    assert await engine.execute(engine.run_of(late, deadline_in=0.05)) == Cancelled("its deadline has passed")
    await until(lambda: "told" in noted)


async def test_the_token_of_the_loser_of_a_select_is_set(engine: Engine):
    noted = []

    @engine.step(name="works")
    def works():
        token = current().step.cancelled
        noted.append("begun")
        until_set(token)
        noted.append("told")

    @engine.step(name="quick")
    async def quick():
        await until(lambda: "begun" in noted)
        return "first"

    @engine.workflow
    async def flow():
        won = await perdure.select(slow=works(), fast=quick())
        await until(lambda: "told" in noted)
        return won.name

    assert output_of(await engine.execute(engine.run_of(flow))) == "fast"


async def test_the_token_of_a_loser_is_set_before_its_body_is_stopped(engine: Engine):
    begun = asyncio.Event()

    @engine.step(name="works")
    async def works():
        token = current().step.cancelled
        helper = asyncio.create_task(token.wait())
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await helper
            engine.bodies.append("helper told")

    @engine.step(name="quick")
    async def quick():
        await begun.wait()

    @engine.workflow
    async def flow():
        return (await perdure.select(works(), quick())).index

    assert output_of(await engine.execute(engine.run_of(flow))) == 1
    assert engine.bodies == ["helper told"]


async def test_a_wait_in_another_loop_is_told_and_one_that_is_given_up_leaves_nothing_behind():
    token = Cancellation()
    begun, told = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        await token.wait()
        told.set()

    thread = threading.Thread(target=lambda: asyncio.run(wait()))
    thread.start()
    given_up = asyncio.create_task(token.wait())
    await until(begun.is_set)
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    token.set()
    await until(told.is_set)
    thread.join(PATIENCE)
    await token.wait()
    assert token._waiting == {}
