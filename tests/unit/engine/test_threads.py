"""Sync steps: in threads beside the loop, with the caller's context, never stopped but left behind."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest
from perdure import StepTimeout, current
from perdure.engine import bodies
from perdure.errors import CancelRequested, OwnershipLost, ReleaseRequested
from perdure.model.outcome import Cancelled, Lost, Released
from perdure.model.states import StepStatus

from tests.support.engine import PATIENCE, Engine, output_of, statuses, until

tenant: ContextVar[str] = ContextVar("tenant", default="none")


class Blocked:
    """A sync step that blocks its thread until the test lets it go."""

    def __init__(self, engine: Engine, **options) -> None:
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.ended = threading.Event()

        @engine.step(name="blocked", **options)
        def blocked():
            self.begun.set()
            self.gate.wait(PATIENCE)
            self.ended.set()
            return "late"

        self.step = blocked


@pytest.fixture
def blocked(engine: Engine) -> Iterator[Blocked]:
    blocked = Blocked(engine)
    yield blocked
    blocked.gate.set()


async def test_a_sync_body_runs_in_a_thread_with_the_context_of_the_body(engine: Engine):
    @engine.step(name="where")
    def where():
        return [threading.current_thread() is threading.main_thread(), tenant.get(), current().step.name]

    @engine.workflow
    async def flow():
        tenant.set("acme")
        return await where()

    assert await engine.output(flow) == [False, "acme", "where"]


async def test_sync_bodies_of_a_gather_run_side_by_side(engine: Engine):
    barrier = threading.Barrier(3)

    @engine.step
    def meet():
        barrier.wait(PATIENCE)

    @engine.workflow
    async def flow():
        await asyncio.gather(meet(), meet(), meet())

    assert await engine.output(flow) is None


async def test_the_loop_goes_on_while_a_sync_body_blocks(engine: Engine, blocked: Blocked):
    @engine.workflow
    async def flow():
        return await blocked.step()

    claim = engine.claim(engine.run_of(flow))
    await until(blocked.begun.is_set)
    assert claim.execution.steps_in_progress == 1
    blocked.gate.set()
    assert output_of(await claim.ending()) == "late"


@pytest.mark.parametrize(
    ("signal", "ending"),
    [
        (CancelRequested("x", immediate=True), Cancelled("x")),
        (ReleaseRequested("x", immediate=True), Released("x")),
        (OwnershipLost("x"), Lost()),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_blocked_body_is_abandoned_at_once_and_its_result_dropped(engine, blocked, signal, ending):
    @engine.workflow
    async def flow():
        return await blocked.step()

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(blocked.begun.is_set)
    claim.interrupt(signal)
    assert await claim.ending() == ending
    assert not blocked.ended.is_set()
    blocked.gate.set()
    await until(blocked.ended.is_set)
    await asyncio.sleep(0)
    assert claim.log.pending == []
    assert statuses(run) == [StepStatus.RUNNING]


async def test_a_graceful_cancel_waits_for_a_blocked_body(engine: Engine, blocked: Blocked):
    @engine.workflow
    async def flow():
        return await blocked.step()

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(blocked.begun.is_set)
    claim.interrupt(CancelRequested("x"))
    await asyncio.sleep(0)
    assert not claim.done
    blocked.gate.set()
    assert await claim.ending() == Cancelled("x")
    claim.log.commit()
    assert statuses(run) == [StepStatus.SUCCEEDED]


async def test_a_sync_body_past_its_timeout_is_left_behind_as_a_failed_attempt(engine: Engine):
    blocked = Blocked(engine, timeout=0.02)

    @engine.workflow
    async def flow():
        with pytest.raises(StepTimeout):
            await blocked.step()
        return "went on"

    assert await engine.output(flow) == "went on"
    assert not blocked.ended.is_set()
    blocked.gate.set()


async def test_the_time_of_a_sync_body_counts_from_when_it_has_a_thread(engine: Engine):
    engine.threads = ThreadPoolExecutor(1)
    gate = threading.Event()

    @engine.step
    def occupies():
        gate.wait(PATIENCE)

    @engine.step(timeout=0.05)
    def quick():
        return "quick"

    @engine.step(timeout=0.1)
    async def hourglass():
        await asyncio.Event().wait()

    @engine.workflow
    async def flow():
        first, second = asyncio.ensure_future(occupies()), asyncio.ensure_future(quick())
        # It has twice the time of `quick`: when that is over, so would be the time of `quick`.
        with pytest.raises(StepTimeout):
            await hourglass()
        gate.set()
        await first
        return await second

    assert await engine.output(flow) == "quick"
    engine.threads.shutdown()


async def test_a_step_that_waits_for_a_thread_for_long_is_told_once(
    engine: Engine, blocked: Blocked, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a worker whose threads hang looks healthy."""
    monkeypatch.setattr(bodies, "CROWDED_SECONDS", 0.01)
    monkeypatch.setattr(bodies._Waiting, "told_at", -bodies.TELL_EVERY)
    engine.threads = ThreadPoolExecutor(1)

    @engine.step
    def quick(n: int) -> int:
        return n

    @engine.workflow
    async def flow() -> int:
        first = asyncio.ensure_future(blocked.step())
        await until(blocked.begun.is_set)
        others = asyncio.gather(quick(1), quick(2))
        await until(lambda: "wait for a thread" in caplog.text)
        blocked.gate.set()
        await first
        return sum(await others)

    assert await engine.output(flow) == 3
    assert caplog.text.count("wait for a thread") == 1
    engine.threads.shutdown()


async def test_what_a_plain_function_returns_to_be_awaited_is_awaited(engine: Engine):
    async def really():
        return "value"

    @engine.step
    def wrapped():
        return really()

    @engine.workflow
    async def flow():
        return await wrapped()

    assert await engine.output(flow) == "value"


async def test_a_pool_of_threads_that_is_shut_down_gives_the_run_back(engine: Engine):
    engine.threads = ThreadPoolExecutor(1)
    engine.threads.shutdown()

    @engine.step
    def step(): ...

    @engine.workflow
    async def flow():
        try:
            await step()
        except Exception:
            return "seen as a failure"

    run = engine.run_of(flow)
    assert isinstance(await engine.execute(run), Released)
    assert statuses(run) == [StepStatus.RUNNING]
