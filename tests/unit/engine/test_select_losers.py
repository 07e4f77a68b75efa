"""`perdure.select`: what becomes of the branches that lose, and of what they had begun."""

import asyncio
import json
import threading

import perdure
import pytest
from perdure.errors import DecodingFailed, OwnershipLost
from perdure.model.calls import Receive, RunOutcome
from perdure.model.states import RunStatus, StepStatus
from perdure.store.clients import ExistingRun

from tests.support.engine import Engine, Held, output_of, statuses, until
from tests.support.races import deliver, shown, stepping


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


async def test_the_first_end_of_several_runs_may_win(engine: Engine):
    @engine.workflow
    async def flow():
        return shown(await perdure.select(ended=perdure.select_workflow("a", "b"), late=perdure.sleep(0.5)))

    run = engine.run_of(flow)
    for other in ("a", "b"):
        run.world.outcomes[other] = RunOutcome(RunStatus.RUNNING, own=False)
    claim = engine.claim(run)
    await until(lambda: bool(claim.execution._steps.backoffs))
    run.world.outcomes["b"] = RunOutcome(RunStatus.SUCCEEDED, "1", own=False)
    run.wake_seq += 1
    assert output_of(await claim.ending()) == ["ended", 0, "b"]
    assert output_of(await engine.execute(run)) == ["ended", 0, "b"]


async def test_a_value_of_a_stream_may_win(engine: Engine):
    @engine.workflow
    async def flow():
        return shown(await perdure.select(perdure.sleep(0.5), perdure.read_stream("other", "k")))

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(lambda: bool(claim.execution._steps.backoffs._waiting))
    run.world.streams["other", "k"] = ['"first"']
    run.wake_seq += 1
    assert output_of(await claim.ending()) == [None, 1, "first"]


async def test_time_sent_messages_and_events_that_are_set_may_win_too(engine: Engine):
    @engine.workflow
    async def flow():
        won = [
            (await perdure.select(perdure.sleep(60), call)).index
            for call in (perdure.now(), perdure.send("run-1", 1, "t"), perdure.set_event("e", 1))
        ]
        return [*won, await perdure.recv("t"), await perdure.get_event("run-1", "e")]

    run = engine.run_of(flow)
    run.world.runs["run-1"] = ExistingRun("run-1", "default", "flow", "[]")
    assert output_of(await engine.execute(run)) == [1, 1, 1, 1, 1]
    assert output_of(await engine.execute(run)) == [1, 1, 1, 1, 1]


async def test_a_message_that_does_not_fit_its_type_is_taken_and_its_error_wins(engine: Engine):
    @engine.workflow
    async def flow():
        try:
            await perdure.select(perdure.recv("t", type=int), perdure.sleep(60))
        except DecodingFailed as error:
            return error.code

    run = engine.run_of(flow)
    deliver(run, '"no number"')
    assert output_of(await engine.execute(run)) == "PRD-402"
    assert run.statuses()[2] == ("perdure.select", StepStatus.SUCCEEDED)
    assert output_of(await engine.execute(run)) == "PRD-402"


@pytest.mark.parametrize("told", ["before", "between"])
async def test_wherever_a_worker_dies_there_is_one_winner_and_no_message_is_lost(engine: Engine, told: str):
    """Dies after each number of turns of the loop, with or without what was on its way; then another goes on."""
    gate = asyncio.Event()

    @engine.step(name="step")
    async def step():
        await gate.wait()
        return "done"

    @engine.workflow
    async def flow():
        won = await perdure.select(step=step(), told=perdure.recv("t"), other=perdure.recv("u"))
        return [shown(won), await perdure.recv("t", timeout=0), await perdure.recv("u", timeout=0)]

    for turns in range(40):
        for committed in (True, False):
            gate.clear()
            run = engine.run_of(flow)
            if told == "before":
                deliver(run, '"t"')
                deliver(run, '"u"', "u")
            claim = engine.claim(run)
            for turn in range(turns):
                if turn == turns // 2:
                    gate.set()
                await asyncio.sleep(0)
            claim.interrupt(OwnershipLost("it died"))
            await claim.ending()
            if committed:
                claim.log.commit()
            if told == "between":
                deliver(run, '"t"')
                deliver(run, '"u"', "u")
            gate.set()
            (name, _, value), left, other = output_of(await engine.execute(run))
            assert value == {"step": "done", "told": "t", "other": "u"}[name]
            inbox = [json.loads(text) for texts in run.world.inboxes.values() for text in texts]
            taken = [each for each in (value, left, other) if each not in (None, "done")]
            assert sorted([*taken, *inbox]) == ["t", "u"]
            assert output_of(await engine.execute(run))[0][0] == name
            branches = [run.rows[index].status for index in range(3) if index in run.rows]
            assert branches.count(StepStatus.SUCCEEDED) == 1
