"""`perdure.select`: races that wait, that are stopped, and that run where nothing is recorded."""

import asyncio

import perdure
import pytest
from perdure.engine.execute import Execution
from perdure.errors import (
    OwnershipLost,
)
from perdure.model.outcome import Lost, Parked
from perdure.model.states import StepStatus

from tests.support.engine import Engine, Held, output_of, until
from tests.support.memorylog import MemoryLog
from tests.support.races import SELECT, deliver, shown, stepping

# -- waiting


async def test_branches_that_all_wait_park_the_run_with_all_their_keys_and_the_earliest_time(engine: Engine):
    @engine.workflow
    async def flow():
        return shown(
            await perdure.select(
                perdure.recv("a"), perdure.recv("b", timeout=50), perdure.get_event("x", "e"), perdure.sleep(100)
            )
        )

    run = engine.run_of(flow)
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert set(ending.waiting_for.on) == {"message:a", "message:b", "event:x/e"}
    assert 49 < (ending.wake_in or 0) <= 50
    assert [status for _, status in run.statuses()] == [StepStatus.WAITING] * 4
    deliver(run, '"b"', "b")
    run.elapsed = 10
    assert output_of(await engine.execute(run)) == [None, 1, "b"]


async def test_the_instants_of_a_race_stay_where_they_were(engine: Engine):
    @engine.workflow
    async def flow():
        return (await perdure.select(told=perdure.recv("t", timeout=300), late=perdure.sleep(100))).name

    run = engine.run_of(flow)
    assert isinstance(await engine.execute(run), Parked)
    run.elapsed = 60
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert 39 < (ending.wake_in or 0) <= 40
    run.elapsed = 101
    assert output_of(await engine.execute(run)) == "late"


async def test_a_race_beside_a_running_step_keeps_its_slot(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        won, n = await perdure.gather(perdure.select(perdure.recv("t"), perdure.sleep(100)), held.step(7))
        return [won.value, n]

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await held.begun(claim)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not claim.done
    deliver(run, '"hi"')
    held.gate.set()
    assert output_of(await claim.ending()) == ["hi", 7]


async def test_the_outcome_of_a_branch_does_not_park_the_run_before_it_is_decided(engine: Engine):
    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        return (await perdure.select(perdure.sleep(10_000), quick())).index

    assert await engine.output(flow) == 1


async def test_a_race_whose_task_the_body_cancels_is_not_deterministic(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await perdure.select(held.step(1), perdure.recv("t"))
        return "went on"

    error = (await engine.error(flow)).error
    assert error.code == "PRD-315"
    assert SELECT in error.message


async def test_losers_do_not_make_a_body_indeterministic(engine: Engine):
    held, quick = Held(engine), stepping(engine, "quick")

    @engine.workflow
    async def flow():
        await perdure.select(held.step(1), quick())
        return await quick()

    assert await engine.output(flow) == "quick"


# -- where


async def test_outside_a_run_calls_race_and_nothing_is_recorded(engine: Engine):
    quick = stepping(engine, "quick")
    race = perdure.select(late=perdure.sleep(60), quick=quick())
    assert race.step_id is None
    assert shown(await race) == ["quick", 1, "quick"]
    assert shown(await perdure.select(perdure.sleep(0), perdure.sleep(0))) == [None, 0, None]


async def test_outside_a_run_a_loser_is_cancelled_and_a_failure_is_raised(engine: Engine):
    held = Held(engine)
    fails = stepping(engine, "fails", raises=ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await perdure.select(held.step(1), fails())
    assert held.noted == ["begin 1", "end 1"]


async def test_in_a_step_calls_race_plainly_as_part_of_it(engine: Engine):
    quick = stepping(engine, "quick")

    @engine.step(name="outer")
    async def outer():
        return shown(await perdure.select(perdure.sleep(60), quick()))

    @engine.workflow
    async def flow():
        return await outer()

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == [None, 1, "quick"]
    assert len(run.rows) == 1


# -- stops and long histories


async def test_a_loser_that_does_not_stop_is_waited_for_and_does_not_outlive_a_stop(engine: Engine):
    @engine.step(name="deaf")
    async def deaf():
        try:
            await asyncio.Event().wait()
        finally:
            engine.bodies.append("told")
            await asyncio.Event().wait()

    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        await perdure.select(deaf(), quick())
        engine.bodies.append("over")

    run = engine.run_of(flow)
    claim = engine.claim(run, unwind=0.02)
    await until(lambda: "told" in engine.bodies)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not claim.done
    claim.interrupt(OwnershipLost("gone"))
    assert await claim.ending() == Lost()
    assert "over" not in engine.bodies
    # The race was decided all the same.
    assert [write.status for write in claim.log.writes if write.name == SELECT] == [StepStatus.SUCCEEDED]


@pytest.mark.parametrize("decided", [True, False], ids=["decided", "only the winner recorded"])
async def test_a_race_is_found_in_a_history_that_is_read_page_by_page(engine: Engine, decided: bool):
    held, quick = Held(engine), stepping(engine, "quick")

    @engine.workflow
    async def flow():
        await quick()
        return (await perdure.select(slow=held.step(1), late=perdure.sleep(100), quick=quick())).name

    run = engine.run_of(flow)
    await engine.execute(run)
    if not decided:
        del run.rows[4]
    claimed, log = run.claim(), MemoryLog(run)
    rows, claimed.steps = claimed.steps, ()
    asked: list[int] = []

    async def more(after: int):
        asked.append(after)
        return [row for row in rows if row.index > after][:2]

    execution = Execution(claimed, engine.registry, log, threads=engine.threads, more_history=more)
    assert output_of(await execution.run()) == "quick"
    assert asked[:3] == [-1, 1, 3]
    assert engine.bodies == ["quick", "quick"]
