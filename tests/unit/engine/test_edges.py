"""The two edges of a body: starts that are refused on the way to it, and what it leaves running behind."""

import asyncio
from typing import Any

import asyncpg
import pytest
from perdure.errors import CancelRequested, EncodingFailed, OwnershipLost, ReleaseRequested, StoreUnavailable
from perdure.model.outcome import Cancelled, Failed, Lost, Mismatch, Released, Succeeded
from perdure.model.states import CancelMode, StepStatus

from tests.support.engine import Engine, Held, statuses, until

SIGNALS = [
    (CancelRequested("stop"), Cancelled("stop")),
    (CancelRequested("stop", immediate=True), Cancelled("stop")),
    (OwnershipLost("stop"), Lost()),
    (ReleaseRequested("stop"), Succeeded('"done"')),
    (ReleaseRequested("stop", immediate=True), Succeeded('"done"')),
]


async def test_a_start_that_finds_the_run_lost_ends_it_and_runs_nothing(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await held.step(0)

    run = engine.run_of(flow)
    claim = engine.claim(run)
    run.fence += 1
    assert await claim.ending() == Lost()
    assert held.noted == []


async def test_the_lease_is_asked_for_between_the_durable_start_and_the_body(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await held.step(0)

    run = engine.run_of(flow)
    claim = engine.claim(run)
    claim.log.lease = False
    assert await claim.ending() == Lost()
    assert statuses(run) == [StepStatus.RUNNING]
    assert held.noted == []


@pytest.mark.parametrize("mode", CancelMode)
async def test_a_cancel_seen_at_a_start_ends_the_run_before_the_body(engine: Engine, mode):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await held.step(0)

    run = engine.run_of(flow)
    claim = engine.claim(run)
    run.cancel_mode = mode
    assert isinstance(await claim.ending(), Cancelled)
    assert (held.noted, run.rows) == ([], {})


async def test_a_suspend_seen_at_a_start_releases_the_run_before_the_body(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await held.step(0)

    run = engine.run_of(flow)
    claim = engine.claim(run)
    run.suspended = True
    assert isinstance(await claim.ending(), Released)
    assert held.noted == []


async def test_an_interrupt_while_the_start_is_being_written_runs_nothing(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await held.step(0)

    claim = engine.claim(engine.run_of(flow))
    claim.log.gate = asyncio.Event()
    await until(lambda: claim.execution.steps_in_progress == 1)
    claim.interrupt(ReleaseRequested("drain"))
    claim.log.gate.set()
    assert await claim.ending() == Released("drain")
    assert held.noted == []


async def test_steps_that_a_failed_body_leaves_in_progress_finish_and_are_recorded(engine: Engine):
    held = Held(engine)

    @engine.step
    async def fails():
        await until(lambda: bool(held.noted))
        raise ValueError("no")

    @engine.workflow
    async def flow():
        await asyncio.gather(fails(), held.step(1))

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(lambda: claim.execution.stopping)
    assert not claim.done
    held.gate.set()
    ending = await claim.ending()
    assert isinstance(ending, Failed)
    assert ending.error.message == "no"
    claim.log.commit()
    assert statuses(run) == [StepStatus.FAILED, StepStatus.SUCCEEDED]


@pytest.mark.parametrize(("signal", "expected"), SIGNALS, ids=lambda value: type(value).__name__)
async def test_a_signal_while_steps_of_an_ended_body_finish(engine: Engine, signal, expected):
    held = Held(engine)

    @engine.workflow
    async def flow():
        held.noted.append("body")
        asyncio.create_task(held.step(0)).add_done_callback(lambda task: task.cancelled() or task.exception())
        await until(lambda: "begin 0" in held.noted)
        return "done"

    claim = engine.claim(engine.run_of(flow))
    await until(lambda: claim.execution.stopping)
    claim.interrupt(signal)
    held.gate.set()
    assert await claim.ending() == expected


async def test_a_task_of_the_body_that_outlives_it_can_call_no_step(engine: Engine):
    seen = []
    go = asyncio.Event()
    held = Held(engine)

    @engine.workflow
    async def flow():
        async def later():
            await go.wait()
            try:
                await held.step(0)
            except BaseException as error:
                seen.append(type(error).__name__)

        seen.append(asyncio.create_task(later()))

    claim = engine.claim(engine.run_of(flow))
    assert isinstance(await claim.ending(), Succeeded)
    go.set()
    await seen[0]
    assert seen[1:] == ["BodyStopped"]
    assert held.noted == []


async def test_a_call_that_the_body_drives_itself_fails_the_run(engine: Engine) -> None:
    held = Held(engine)

    @engine.workflow
    async def flow():
        call = held.step(0).__await__()
        call.send(None)
        call.send(None)

    ending: Any = await engine.claim(engine.run_of(flow)).ending()
    assert isinstance(ending, Failed)
    assert ending.error.type == "RuntimeError"


async def test_a_call_that_is_awaited_in_the_loop_of_a_thread_is_refused(engine: Engine) -> None:
    held = Held(engine)

    async def awaited():
        await held.step(0)

    @engine.workflow
    async def flow():
        await asyncio.to_thread(asyncio.run, awaited())

    ending: Any = await engine.claim(engine.run_of(flow)).ending()
    assert (ending.error.code, held.noted) == ("PRD-303", [])
    assert "another event loop" in ending.error.message


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EncodingFailed("NUL"), Failed),
        (StoreUnavailable("away"), Released),
        (OSError("broken"), Released),
        (asyncpg.LockNotAvailableError("locked"), Released),
        (asyncpg.InsufficientPrivilegeError("no right"), Mismatch),
        (RuntimeError("await wasn't used with future"), Failed),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
async def test_a_start_that_cannot_be_written_ends_the_run_or_gives_it_back(engine: Engine, error, kind):
    held = Held(engine)

    def refuse(write):
        raise error

    @engine.workflow
    async def flow():
        try:
            await held.step(0)
        except Exception:
            held.noted.append("seen by the body")

    claim = engine.claim(engine.run_of(flow), before_start=refuse)
    assert isinstance(await claim.ending(), kind)
    assert held.noted == []


async def test_a_claim_with_very_many_writes_is_given_back_and_goes_on_under_another(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.engine.steps.MAX_WRITES", 10)

    @engine.step
    async def note(number: int) -> None:
        engine.bodies.append(number)

    @engine.workflow
    async def flow() -> None:
        for number in range(12):
            await note(number)

    run = engine.run_of(flow)
    endings = [await engine.execute(run) for _ in range(3)]

    assert [type(ending) for ending in endings] == [Released, Released, Succeeded]
    assert engine.bodies == list(range(12))
