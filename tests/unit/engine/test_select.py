"""`perdure.select`: the first of several durable calls wins, is recorded, and wins again at each replay."""

import asyncio
import threading
from dataclasses import replace

import perdure
import pytest
from perdure.engine.execute import Execution
from perdure.errors import (
    CancelRequested,
    InvalidArgument,
    OwnershipLost,
    ReleaseRequested,
    SelectMisused,
    StepBuiltElsewhere,
    StoreUnavailable,
)
from perdure.model.calls import Receive, RunOutcome
from perdure.model.outcome import Cancelled, Lost, Mismatch, Parked, Released
from perdure.model.rows import StepWrite
from perdure.model.states import RunStatus, StepStatus

from tests.support.engine import Engine, Held, failed, output_of, statuses, until
from tests.support.memorylog import MemoryLog

SELECT = "perdure.select"


def stepping(engine: Engine, name: str, result=None, *, raises: Exception | None = None, **options):
    @engine.step(name=name, **options)
    async def step():
        engine.bodies.append(name)
        if raises is not None:
            raise raises
        return name if result is None else result

    return step


def deliver(run, text: str, topic: str = "t") -> None:
    run.world.inboxes.setdefault((run.id, topic), []).append(text)
    run.wake_seq += 1


def shown(won: perdure.Selected) -> list:
    return [won.name, won.index, won.value]


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


# -- losers


async def test_a_losing_async_step_is_cancelled_and_its_token_fires(engine: Engine):
    tokens = []

    @engine.step(name="slow")
    async def slow():
        tokens.append(perdure.current().step.cancelled)
        await asyncio.Event().wait()

    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        await perdure.select(slow(), quick())

    await engine.output(flow)
    assert tokens[0].is_set()


async def test_a_losing_sync_step_goes_on_in_its_thread_hears_of_it_and_records_nothing(engine: Engine):
    ended = threading.Event()
    told = []

    @engine.step(name="slow")
    def slow():
        token = perdure.current().step.cancelled
        while not token.is_set():
            pass
        told.append("told")
        ended.set()
        return "too late"

    @engine.workflow
    async def flow():
        return (await perdure.select(slow(), perdure.sleep(0.05))).index

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == 1
    assert ended.wait(10)
    assert told == ["told"]
    assert statuses(run) == [StepStatus.DROPPED, StepStatus.SUCCEEDED, StepStatus.SUCCEEDED]


async def test_a_loser_that_makes_an_error_of_its_cancel_is_neither_recorded_nor_tried_again(engine: Engine):
    @engine.step(name="stubborn", max_attempts=5, interval=0)
    async def stubborn():
        engine.bodies.append("stubborn")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("not me") from None

    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        return (await perdure.select(stubborn(), quick())).value

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == "quick"
    assert engine.bodies == ["stubborn", "quick"]
    assert statuses(run) == [StepStatus.DROPPED, StepStatus.SUCCEEDED, StepStatus.SUCCEEDED]


async def test_a_loser_that_ends_well_all_the_same_is_not_recorded(engine: Engine):
    @engine.step(name="stubborn")
    async def stubborn():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "after all"

    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        return (await perdure.select(stubborn(), quick())).value

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == "quick"
    assert run.rows[0].status is StepStatus.DROPPED


async def test_a_losing_receive_leaves_its_message(engine: Engine):
    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        won = await perdure.select(done=quick(), told=perdure.recv("t"))
        return [won.name, await perdure.recv("t")]

    run = engine.run_of(flow)
    deliver(run, '"later"')
    assert output_of(await engine.execute(run)) == ["done", "later"]


async def test_of_two_receives_that_both_could_take_one_takes_its_message(engine: Engine):
    @engine.workflow
    async def flow():
        won = await perdure.select(a=perdure.recv("a"), b=perdure.recv("b"))
        return [won.name, won.value, await perdure.recv("b")]

    run = engine.run_of(flow)
    deliver(run, '"for b"', "b")
    deliver(run, '"for a"', "a")
    assert output_of(await engine.execute(run)) == ["a", "for a", "for b"]
    assert output_of(await engine.execute(run)) == ["a", "for a", "for b"]


async def test_a_receive_whose_message_another_took_races_on(engine: Engine):
    @engine.workflow
    async def flow():
        race = perdure.select(told=perdure.recv("t"), late=perdure.sleep(0.05))
        plain = perdure.recv("t")
        won, got = await perdure.gather(race, plain)
        return [won.name, got]

    run = engine.run_of(flow)
    deliver(run, '"one only"')
    found = output_of(await engine.execute(run))
    assert found == ["late", "one only"]


async def test_a_message_that_was_taken_before_a_crash_has_won(engine: Engine):
    @engine.workflow
    async def flow():
        won = await perdure.select(late=perdure.sleep(60), told=perdure.recv("t"))
        return shown(won)

    run = engine.run_of(flow)
    deliver(run, '"hello"')
    await engine.execute(run, crash=True)
    assert run.rows[1].status is StepStatus.SUCCEEDED
    assert 2 not in run.rows
    run.elapsed = 100  # by now the sleep is over as well
    assert output_of(await engine.execute(run)) == ["told", 1, "hello"]


async def test_a_receive_is_sent_only_once_it_has_won(engine: Engine):
    held = Held(engine)

    @engine.workflow
    async def flow():
        return (await perdure.select(held.step(1), perdure.recv("t"))).index

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await held.begun(claim)
    await until(lambda: bool(claim.execution._steps.backoffs))
    assert claim.log.calls == []
    deliver(run, "1")
    assert output_of(await claim.ending()) == 1
    assert [type(call) for call in claim.log.calls] == [Receive]


async def test_a_receive_that_is_over_wins_with_none(engine: Engine):
    @engine.workflow
    async def flow():
        return shown(await perdure.select(perdure.recv("t", timeout=0), perdure.sleep(100)))

    assert await engine.output(flow) == [None, 0, None]


async def test_a_losing_result_leaves_the_child_running(engine: Engine):
    @engine.workflow
    async def child():
        pass

    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        handle = await child.start()
        won = await perdure.select(handle.result(), quick())
        return won.index

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == 1
    assert run.world.outcomes["run-1-0"].status is RunStatus.ENQUEUED


async def test_a_child_that_ends_first_wins(engine: Engine):
    @engine.workflow
    async def child():
        pass

    @engine.workflow
    async def flow():
        handle = await child.start()
        return shown(await perdure.select(child=handle.result(), late=perdure.sleep(0.5)))

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(lambda: bool(claim.execution._steps.backoffs))
    run.world.outcomes["run-1-0"] = RunOutcome(RunStatus.SUCCEEDED, '"done"')
    run.wake_seq += 1
    assert output_of(await claim.ending()) == ["child", 0, "done"]


async def test_an_event_may_win(engine: Engine):
    @engine.workflow
    async def flow():
        return shown(await perdure.select(perdure.get_event("other", "ready"), perdure.sleep(0.5)))

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(lambda: bool(claim.execution._steps.backoffs))
    run.world.events["other", "ready"] = '"yes"'
    run.wake_seq += 1
    assert output_of(await claim.ending()) == [None, 0, "yes"]


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


# -- what is refused


def bad_branches(engine: Engine):
    quick = stepping(engine, "quick")

    @engine.workflow
    async def child():
        pass

    async def coroutine():
        pass

    return {
        "none": perdure.select,
        "one": lambda: perdure.select(quick()),
        "one with a name": lambda: perdure.select(a=quick()),
        "named and not": lambda: perdure.select(quick(), b=quick()),
        "a coroutine function": lambda: perdure.select(quick(), coroutine),
        "a value": lambda: perdure.select(quick(), 1),
        "a start": lambda: perdure.select(quick(), child.start()),
        "a select": lambda: perdure.select(quick(), perdure.select(quick(), quick())),
        "the same call twice": lambda: perdure.select(*[quick()] * 2),
    }


@pytest.mark.parametrize("name", list(bad_branches(Engine(None))))  # type: ignore[arg-type]
async def test_what_cannot_be_raced_is_refused_with_an_error_of_its_own(engine: Engine, name):
    wrong = bad_branches(engine)[name]

    @engine.workflow
    async def flow():
        with pytest.raises(SelectMisused) as caught:
            wrong()
        return [caught.value.code, isinstance(caught.value, InvalidArgument)]

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == ["PRD-316", True]
    assert run.rows == {}


async def test_a_coroutine_is_refused_as_it_would_take_its_indexes_late(engine: Engine):
    quick = stepping(engine, "quick")

    async def late():
        return await quick()

    @engine.workflow
    async def flow():
        coroutine = late()
        with pytest.raises(SelectMisused, match="one durable call, not coroutine"):
            perdure.select(quick(), coroutine)
        coroutine.close()

    await engine.output(flow)


async def test_a_transaction_is_refused_as_the_race_would_decide_what_is_committed(engine: Engine):
    @perdure.transaction(registry=engine.registry, name="move")
    async def move(connection):
        pass

    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        with pytest.raises(SelectMisused, match="transaction move is no branch"):
            perdure.select(quick(), move())

    await engine.output(flow)


async def test_a_refused_select_leaves_its_calls_to_be_awaited(engine: Engine):
    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        call = quick()
        with pytest.raises(SelectMisused):
            perdure.select(call)
        return [await call, quick().step_id]

    assert await engine.output(flow) == ["quick", 1]


async def test_branches_that_were_built_elsewhere_are_refused_where_the_select_is_built(engine: Engine):
    quick = stepping(engine, "quick")
    foreign = quick()

    @engine.workflow
    async def flow():
        with pytest.raises(StepBuiltElsewhere, match="built outside a run"):
            perdure.select(quick(), foreign)

    await engine.output(flow)


async def test_a_branch_cannot_be_awaited_by_itself_any_more(engine: Engine):
    one, two = stepping(engine, "one"), stepping(engine, "two")

    @engine.workflow
    async def flow():
        call = one()
        await perdure.select(call, two())
        await call

    assert "awaited before" in failed(await engine.execute(engine.run_of(flow))).error.message


async def test_a_select_that_is_never_awaited_has_used_its_index_and_is_named_in_the_log(engine: Engine, caplog):
    one, two = stepping(engine, "one"), stepping(engine, "two")

    @engine.workflow
    async def flow():
        perdure.select(one(), two())
        return await one()

    run = engine.run_of(flow)
    output_of(await engine.execute(run))
    assert list(run.rows) == [3]
    assert "perdure.select (2)" in caplog.text
    assert "one (0)" not in caplog.text


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
