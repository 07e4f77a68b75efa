"""Ending a body from outside: what finishes, what is recorded, and that nothing can refuse."""

import asyncio

import pytest
from perdure import ControlSignal
from perdure.engine import unwind
from perdure.errors import CancelRequested, OwnershipLost, ReleaseRequested
from perdure.model.outcome import Cancelled, Lost, Released, Succeeded
from perdure.model.states import StepStatus

from tests.support.engine import Engine, Held, statuses, until

GRACEFUL = [CancelRequested("stop"), ReleaseRequested("stop")]
IMMEDIATE = [CancelRequested("stop", immediate=True), ReleaseRequested("stop", immediate=True), OwnershipLost("stop")]
ENDINGS = {CancelRequested: Cancelled("stop"), ReleaseRequested: Released("stop"), OwnershipLost: Lost()}


def ending_of(signal: ControlSignal):
    return ENDINGS[type(signal)]


def name_of(signal: ControlSignal) -> str:
    return f"{type(signal).__name__}{'-now' if signal.immediate else ''}"


graceful = pytest.mark.parametrize("signal", GRACEFUL, ids=name_of)
immediate = pytest.mark.parametrize("signal", IMMEDIATE, ids=name_of)
every = pytest.mark.parametrize("signal", GRACEFUL + IMMEDIATE, ids=name_of)


async def let_go() -> None:
    """End what was left behind, now that it lets itself be ended."""
    for task in list(unwind._abandoned):
        task.cancel()
    await until(lambda: not unwind._abandoned)


@graceful
async def test_graceful_lets_the_step_in_progress_finish_and_be_recorded(engine: Engine, signal):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await held.step(0)
        held.noted.append("went on")

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await held.begun(claim)
    claim.interrupt(signal)
    await asyncio.sleep(0)
    assert not claim.done
    held.gate.set()
    assert await claim.ending() == ending_of(signal)
    claim.log.commit()
    assert statuses(run) == [StepStatus.SUCCEEDED]
    assert held.noted == ["begin 0", "end 0"]


@graceful
async def test_graceful_lets_all_steps_in_progress_of_a_gather_finish(engine: Engine, signal):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await asyncio.gather(*[held.step(n) for n in range(3)])

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await held.begun(claim, 3)
    claim.interrupt(signal)
    held.gate.set()
    assert await claim.ending() == ending_of(signal)
    claim.log.commit()
    assert statuses(run) == [StepStatus.SUCCEEDED] * 3


@pytest.mark.parametrize("turned", [False, True], ids=["cancelled", "turned into an error"])
@immediate
async def test_what_stops_a_step_is_never_tried_again_nor_offered_to_should_retry(engine: Engine, signal, turned):
    offered = []

    @engine.step(max_attempts=5, interval=0, should_retry=lambda error: offered.append(error) or True)
    async def endless():
        engine.bodies.append("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if turned:
                raise OSError("gone") from None
            raise

    @engine.workflow
    async def flow():
        await endless()

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(lambda: bool(engine.bodies))
    claim.interrupt(signal)
    assert await claim.ending() == ending_of(signal)
    claim.log.commit()
    assert (engine.bodies, offered, run.rows[0].attempts) == (["begun"], [], 0)


@immediate
async def test_immediate_stops_the_step_in_progress_and_records_nothing(engine: Engine, signal):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await asyncio.gather(*[held.step(n) for n in range(2)])

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await held.begun(claim, 2)
    claim.interrupt(signal)
    assert await claim.ending() == ending_of(signal)
    assert claim.log.pending == []
    assert statuses(run) == [StepStatus.RUNNING] * 2
    assert sorted(held.noted) == ["begin 0", "begin 1", "end 0", "end 1"]


@every
async def test_a_body_that_awaits_no_step_is_ended_too(engine: Engine, signal):
    begun = asyncio.Event()

    @engine.workflow
    async def flow():
        begun.set()
        await asyncio.Event().wait()

    claim = engine.claim(engine.run_of(flow))
    await begun.wait()
    claim.interrupt(signal)
    assert await claim.ending() == ending_of(signal)


@every
async def test_the_signal_passes_except_exception(engine: Engine, signal):
    held = Held(engine)

    @engine.workflow
    async def flow():
        while True:
            try:
                await held.step(0)
            except Exception:
                held.noted.append("swallowed")

    claim = engine.claim(engine.run_of(flow))
    await held.begun(claim)
    claim.interrupt(signal)
    held.gate.set()
    assert await claim.ending() == ending_of(signal)
    assert "swallowed" not in held.noted


@every
async def test_a_body_that_swallows_the_signal_is_ended_and_its_result_ignored(engine: Engine, signal):
    held = Held(engine)

    @engine.workflow
    async def flow():
        try:
            await held.step(0)
        except BaseException:
            return "result"

    claim = engine.claim(engine.run_of(flow))
    await held.begun(claim)
    claim.interrupt(signal)
    held.gate.set()
    assert await claim.ending() == ending_of(signal)


@every
async def test_durable_calls_of_a_stopped_body_are_inert_and_raise_the_signal_again(engine: Engine, signal):
    held = Held(engine)

    @engine.workflow
    async def flow():
        try:
            await held.step(0)
        finally:
            for n in (1, 2):
                try:
                    await held.step(n)
                except ControlSignal as again:
                    held.noted.append(type(again).__name__)

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await held.begun(claim)
    claim.interrupt(signal)
    held.gate.set()
    assert await claim.ending() == ending_of(signal)
    assert held.noted == ["begin 0", "end 0", type(signal).__name__, type(signal).__name__]
    assert list(run.rows) == [0]


@every
async def test_finally_blocks_run_also_those_that_await(engine: Engine, signal):
    held = Held(engine)
    cleaning, swept = asyncio.Event(), asyncio.Event()

    @engine.workflow
    async def flow():
        try:
            await held.step(0)
        finally:
            cleaning.set()
            await swept.wait()
            held.noted.append("cleaned up")

    claim = engine.claim(engine.run_of(flow))
    await held.begun(claim)
    claim.interrupt(signal)
    held.gate.set()
    await cleaning.wait()
    assert not claim.done
    swept.set()
    assert await claim.ending() == ending_of(signal)
    assert held.noted[-1] == "cleaned up"


@every
async def test_a_body_that_never_lets_go_is_left_behind(engine: Engine, signal, caplog):
    held = Held(engine)
    over = False

    @engine.workflow
    async def flow():
        while not over:
            try:
                await held.step(0)
            except BaseException:
                held.noted.append("swallowed")

    claim = engine.claim(engine.run_of(flow), unwind=0.02)
    await held.begun(claim)
    claim.interrupt(signal)
    held.gate.set()
    assert await claim.ending() == ending_of(signal)
    assert "left behind" in caplog.text
    assert held.noted.count("swallowed") < 200
    over = True
    await let_go()


@immediate
async def test_a_step_that_refuses_to_be_cancelled_is_left_behind_and_its_result_dropped(engine: Engine, signal):
    begun, release = asyncio.Event(), asyncio.Event()

    @engine.step
    async def stubborn():
        begun.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    @engine.workflow
    async def flow():
        await stubborn()

    run = engine.run_of(flow)
    claim = engine.claim(run, unwind=0.02)
    await begun.wait()
    claim.interrupt(signal)
    assert await claim.ending() == ending_of(signal)
    release.set()
    await let_go()
    assert claim.log.pending == []
    assert statuses(run) == [StepStatus.RUNNING]


async def test_nothing_is_written_after_ownership_is_lost_not_even_by_a_step_that_just_ended(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await held.step(0)

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await held.begun(claim)
    held.gate.set()
    claim.interrupt(OwnershipLost())
    run.fence += 1
    assert await claim.ending() == Lost()
    assert claim.log.pending == []


async def test_a_stronger_signal_takes_over_from_a_milder_one(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await held.step(0)

    for signals in (
        [ReleaseRequested("a"), CancelRequested("stop")],
        [CancelRequested("stop"), ReleaseRequested("b")],
        [CancelRequested("stop"), ReleaseRequested("b", immediate=True)],
    ):
        held.gate.clear()
        held.noted.clear()
        claim = engine.claim(engine.run_of(flow))
        await held.begun(claim)
        for signal in signals:
            claim.interrupt(signal)
        if not signals[-1].immediate:
            held.gate.set()
        assert await claim.ending() == Cancelled("stop")


async def test_a_graceful_cancel_made_immediate_stops_the_step(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await held.step(0)

    claim = engine.claim(engine.run_of(flow))
    await held.begun(claim)
    claim.interrupt(CancelRequested("mild"))
    claim.interrupt(CancelRequested("mild", immediate=True))
    assert await claim.ending() == Cancelled("mild")


async def test_an_interrupt_before_the_body_begins_or_after_it_has_ended_is_harmless(engine: Engine):
    @engine.workflow
    async def flow():
        engine.bodies.append("run")

    claim = engine.claim(engine.run_of(flow))
    claim.interrupt(ReleaseRequested("drain"))
    assert await claim.ending() == Released("drain")
    assert engine.bodies == []
    late = engine.claim(engine.run_of(flow))
    assert isinstance(await late.ending(), Succeeded)
    late.interrupt(OwnershipLost())


async def test_the_deadline_ends_the_run_at_once(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await held.step(0)

    run = engine.run_of(flow, deadline_in=0.02)
    assert await engine.execute(run) == Cancelled("its deadline has passed")
    run = engine.run_of(flow, deadline_in=-1.0)
    assert await engine.execute(run) == Cancelled("its deadline has passed")


async def test_a_worker_that_cancels_the_execution_stops_the_body(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await held.step(0)

    claim = engine.claim(engine.run_of(flow))
    await held.begun(claim)
    claim._task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claim.ending()
    await until(lambda: held.noted == ["begin 0", "end 0"])
    assert claim.log.pending == []
