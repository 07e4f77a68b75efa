"""`perdure.select`: the first of several durable calls wins, is recorded, and wins again at each replay."""

import asyncio
from dataclasses import replace

import perdure
import pytest
from perdure.errors import (
    CancelRequested,
    OwnershipLost,
    ReleaseRequested,
    StoreUnavailable,
)
from perdure.model.outcome import Cancelled, Lost, Mismatch, Released
from perdure.model.rows import StepWrite
from perdure.model.states import StepStatus

from tests.support.engine import Engine, Held, output_of, statuses, until
from tests.support.races import SELECT, shown, stepping

# -- who wins


async def test_the_first_to_end_wins_and_its_arm_is_known_by_name(engine: Engine):
    held = Held(engine)
    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        match await perdure.select(slow=held.step(1), quick=quick()):
            case perdure.Selected("quick", value=value):
                return value
            case perdure.Selected(name):
                return name

    assert await engine.output(flow) == "quick"


async def test_branches_without_names_are_known_by_their_place(engine: Engine):
    held = Held(engine)
    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        return shown(await perdure.select(held.step(1), quick()))

    assert await engine.output(flow) == [None, 1, "quick"]


async def test_of_two_that_are_ready_the_first_in_source_order_wins(engine: Engine):
    first_may, second_may = asyncio.Event(), asyncio.Event()

    @engine.step(name="first")
    async def first():
        engine.bodies.append("first")
        await first_may.wait()

    @engine.step(name="second")
    async def second():
        engine.bodies.append("second")
        await second_may.wait()

    @engine.workflow
    async def flow():
        return (await perdure.select(a=first(), b=second())).name

    claim = engine.claim(engine.run_of(flow))
    await until(lambda: len(engine.bodies) == 2)
    second_may.set()
    first_may.set()
    assert output_of(await claim.ending()) == "a"


async def test_only_the_winner_has_an_outcome_and_the_losers_are_over(engine: Engine):
    held = Held(engine)
    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        return shown(await perdure.select(slow=held.step(1), quick=quick(), pause=perdure.sleep(100)))

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == ["quick", 1, "quick"]
    assert run.statuses() == [
        ("held", StepStatus.DROPPED),
        ("quick", StepStatus.SUCCEEDED),
        ("perdure.sleep", StepStatus.DROPPED),
        (SELECT, StepStatus.SUCCEEDED),
    ]
    assert held.noted == ["begin 1", "end 1"]


async def test_two_that_end_at_the_same_time_record_one_outcome(engine: Engine):
    one, two = stepping(engine, "one"), stepping(engine, "two")

    @engine.workflow
    async def flow():
        return (await perdure.select(one(), two())).value

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == "one"
    assert statuses(run) == [StepStatus.SUCCEEDED, StepStatus.DROPPED, StepStatus.SUCCEEDED]


async def test_the_index_of_a_select_follows_those_of_its_branches(engine: Engine):
    one, two = stepping(engine, "one"), stepping(engine, "two")

    @engine.workflow
    async def flow():
        race = perdure.select(one(), two())
        after = one()
        assert (race.name, race.step_id, after.step_id) == (SELECT, 2, 3)
        await race
        await after

    await engine.output(flow)


async def test_numbers_of_writes_rise_though_outcomes_are_held_back(engine: Engine):
    one, two = stepping(engine, "one"), stepping(engine, "two")

    @engine.workflow
    async def flow():
        await perdure.select(one(), two())
        await one()

    claim = engine.claim(engine.run_of(flow))
    output_of(await claim.ending())
    numbers = [write.seq for write in claim.log.writes]
    assert numbers == sorted(set(numbers))


# -- failures


async def test_a_failing_winner_raises_its_own_error_first_and_at_a_replay(engine: Engine):
    held = Held(engine)
    fails = stepping(engine, "fails", raises=ValueError("no"))

    @engine.workflow
    async def flow():
        try:
            await perdure.select(held.step(1), fails())
        except ValueError as error:
            return str(error)

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == "no"
    assert output_of(await engine.execute(run)) == "no"
    assert engine.bodies == ["fails"]
    assert run.rows[2].output == "1"


async def test_a_branch_that_is_tried_again_has_not_ended(engine: Engine):
    tried = []

    @engine.step(name="shaky", max_attempts=2, interval=0)
    async def shaky():
        tried.append(1)
        if len(tried) == 1:
            raise OSError("down")
        return "up"

    @engine.workflow
    async def flow():
        return shown(await perdure.select(a=shaky(), b=perdure.sleep(100)))

    assert await engine.output(flow) == ["a", 0, "up"]


async def test_errors_of_branches_are_converted_by_map_error(engine: Engine):
    fails = stepping(engine, "fails", raises=ValueError("no"))

    @engine.workflow
    async def flow():
        call = fails().map_error(lambda error: KeyError(f"was {type(error).__name__}"))
        try:
            await perdure.select(call, perdure.sleep(100))
        except KeyError as error:
            return [error.args[0], type(error.__cause__).__name__]

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == ["was ValueError", "ValueError"]
    assert output_of(await engine.execute(run)) == ["was ValueError", "ValueError"]


@pytest.mark.parametrize(
    ("signal", "ending"),
    [
        (CancelRequested("stop", immediate=True), Cancelled("stop")),
        (ReleaseRequested("stop", immediate=True), Released("stop")),
        (OwnershipLost("stop"), Lost()),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_stop_is_no_winner_and_leaves_no_select(engine: Engine, signal, ending):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await perdure.select(held.step(1), perdure.recv("t"))

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await held.begun(claim)
    await until(lambda: bool(claim.execution._steps.backoffs))
    claim.interrupt(signal)
    assert await claim.ending() == ending
    claim.log.pending.clear()
    assert run.statuses()[0] == ("held", StepStatus.RUNNING)
    assert SELECT not in [name for name, _ in run.statuses()]


async def test_a_graceful_stop_lets_a_step_finish_and_win(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        await perdure.select(held.step(1), perdure.recv("t"))

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await held.begun(claim)
    await until(lambda: bool(claim.execution._steps.backoffs))
    claim.interrupt(ReleaseRequested("drain"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not claim.done
    held.gate.set()
    assert await claim.ending() == Released("drain")
    claim.log.commit()
    assert run.statuses() == [
        ("held", StepStatus.SUCCEEDED),
        ("perdure.recv", StepStatus.DROPPED),
        (SELECT, StepStatus.SUCCEEDED),
    ]


async def test_a_database_that_is_away_is_no_winner_and_the_next_claim_races_again(engine: Engine):
    quick, other = stepping(engine, "quick"), stepping(engine, "other")

    @engine.workflow
    async def flow():
        return (await perdure.select(quick(), other())).value

    def away(write: StepWrite) -> None:
        raise StoreUnavailable("away")

    run = engine.run_of(flow)
    assert isinstance(await engine.execute(run, before_start=away), Released)
    assert run.rows == {}
    assert output_of(await engine.execute(run)) == "quick"


# -- replay


async def test_a_replay_asks_only_the_winner(engine: Engine):
    held = Held(engine)
    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        return (await perdure.select(slow=held.step(1), quick=quick())).name

    run = engine.run_of(flow)
    await engine.execute(run)
    claim = engine.claim(run)
    assert output_of(await claim.ending()) == "quick"
    assert claim.log.writes == []
    assert engine.bodies == ["quick"]


async def test_a_crash_between_the_winner_and_the_select_gives_the_same_winner(engine: Engine):
    quick, other = stepping(engine, "quick"), stepping(engine, "other")
    held = Held(engine)

    @engine.workflow
    async def flow():
        return (await perdure.select(slow=held.step(1), other=other(), quick=quick())).name

    run = engine.run_of(flow)
    await engine.execute(run)
    # The third branch had won; the first is ready, too, by the time of the next claim.
    held.gate.set()
    run.rows = {
        0: replace(run.rows[0], status=StepStatus.RUNNING),
        2: replace(run.rows[2], status=StepStatus.SUCCEEDED, output='"quick"'),
    }
    assert output_of(await engine.execute(run)) == "quick"
    assert run.rows[0].status is StepStatus.DROPPED
    assert 1 not in run.rows
    assert run.rows[3].output == "2"


async def test_a_crash_before_anything_was_recorded_races_again(engine: Engine):
    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        return (await perdure.select(perdure.sleep(100), quick())).index

    run = engine.run_of(flow)
    await engine.execute(run, crash=True)
    assert [status for status in statuses(run) if status.final] == []
    assert output_of(await engine.execute(run)) == 1
    assert engine.bodies == ["quick", "quick"]


@pytest.mark.parametrize("recorded", ["2", "-1", '"a"', "null"])
async def test_a_recorded_winner_that_is_no_branch_is_an_unexpected_step(engine: Engine, recorded):
    one, two = stepping(engine, "one"), stepping(engine, "two")

    @engine.workflow
    async def flow():
        await perdure.select(one(), two())

    run = engine.run_of(flow)
    await engine.execute(run)
    run.rows[2] = replace(run.rows[2], output=recorded)
    ending = await engine.execute(run)
    assert isinstance(ending, Mismatch)
    assert ending.error.code == "PRD-301"
    assert "is recorded as the winner of a race, but the code has 2 branches" in ending.error.message


async def test_a_branch_that_has_lost_and_is_awaited_by_other_code_is_an_unexpected_step(engine: Engine):
    one, two = stepping(engine, "one"), stepping(engine, "two")
    races = [True]

    @engine.workflow
    async def flow():
        first, second = one(), two()
        if races[0]:
            await perdure.select(first, second)
        else:
            await second

    run = engine.run_of(flow)
    await engine.execute(run)
    races[0] = False
    ending = await engine.execute(run)
    assert isinstance(ending, Mismatch)
    assert "two is recorded as dropped" in ending.error.message


async def test_another_branch_in_the_winners_place_is_an_unexpected_step(engine: Engine):
    one, two, three = (stepping(engine, name) for name in ("one", "two", "three"))
    names = [one, two]

    @engine.workflow
    async def flow():
        await perdure.select(names[0](), names[1]())

    run = engine.run_of(flow)
    await engine.execute(run)
    names[0] = three
    ending = await engine.execute(run)
    assert isinstance(ending, Mismatch)
    assert ending.error.code == "PRD-301"


async def test_another_code_among_the_branches_decides_no_race(engine: Engine):
    held, quick = Held(engine), stepping(engine, "quick")
    other = stepping(engine, "other")
    branches = [lambda: held.step(1), quick]

    @engine.workflow
    async def flow():
        await perdure.select(branches[0](), perdure.sleep(0.01))

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await held.begun(claim)
    claim.interrupt(OwnershipLost("gone"))
    await claim.ending()
    branches[0] = other
    assert isinstance(await engine.execute(run), Mismatch)
    assert run.rows[0].name == "held"
    assert 2 not in run.rows
