"""Messages and events inside a step: part of the step, made again with it, and none of a body that is left behind."""

import asyncio

import asyncpg
import perdure
import pytest
from perdure.errors import CancelRequested, InsideStep, NonExistentWorkflow, NotInWorkflow, OwnershipLost
from perdure.model.outcome import Cancelled, Lost
from perdure.model.states import CancelMode, StepStatus
from perdure.store.clients import ExistingRun

from tests.support.engine import Engine, output_of, statuses, until


def known(run, *ids: str):
    for run_id in ids:
        run.world.runs[run_id] = ExistingRun(run_id, "default", "x", "[]")
    return run


def telling(engine: Engine, **options):
    """A step that tells `them` each time it is tried, and fails the first time."""

    @engine.step(name="tells", interval=0, **options)
    async def tells():
        engine.bodies.append("run")
        call = perdure.send("them", len(engine.bodies), "t")
        assert call.step_id is None
        await call
        if len(engine.bodies) == 1:
            raise OSError("after the message")
        return "told"

    return tells


async def test_a_message_from_a_step_is_sent_again_when_the_step_is_tried_again_and_not_at_a_replay(engine: Engine):
    tells = telling(engine, max_attempts=2)

    @engine.workflow
    async def flow():
        return await tells()

    run = known(engine.run_of(flow), "them")
    assert [output_of(await engine.execute(run)) for _ in range(2)] == ["told", "told"]
    assert run.world.inboxes == {("them", "t"): ["1", "2"]}
    assert run.statuses() == [("tells", StepStatus.SUCCEEDED)]


async def test_with_a_key_it_is_the_same_message_for_its_receiver(engine: Engine):
    @engine.step(max_attempts=2, interval=0)
    async def tells():
        engine.bodies.append("run")
        await perdure.send("them", "hi", key="mine")
        if len(engine.bodies) == 1:
            raise OSError

    @engine.workflow
    async def flow():
        await tells()

    run = known(engine.run_of(flow), "them")
    await engine.execute(run)
    assert run.world.inboxes == {("them", ""): ['"hi"']}
    assert run.world.keys == {("them", "key:mine")}


async def test_to_a_run_that_is_not_there_it_is_an_error_of_the_step(engine: Engine):
    @engine.step
    async def tells():
        await perdure.send("nobody", 1)

    @engine.workflow
    async def flow():
        with pytest.raises(NonExistentWorkflow, match="nobody"):
            await tells()

    await engine.output(flow)


async def test_a_lost_answer_sends_no_second_message_and_an_outage_is_waited_for(engine: Engine):
    @engine.step
    async def tells():
        await perdure.send("them", 1)

    @engine.workflow
    async def flow():
        await tells()

    run = known(engine.run_of(flow), "them")
    claim = engine.claim(run)
    troubles = [asyncpg.ConnectionDoesNotExistError("cut"), TimeoutError(), None]
    keys = []

    def lost(call):
        keys.append(call.key)
        run.world.send(call.to, call.topic, call.key, call.value)
        if trouble := troubles.pop(0):
            raise trouble

    claim.log.before_plain = lost
    assert output_of(await claim.ending()) is None
    assert len(keys) == 3
    assert run.world.inboxes == {("them", ""): ["1"]}
    assert run.rows[0].attempts == 0


async def test_what_the_database_says_of_the_message_itself_is_an_error_of_the_step(engine: Engine):
    @engine.step
    async def tells():
        await perdure.send("them", 1)

    @engine.workflow
    async def flow():
        await tells()

    claim = engine.claim(known(engine.run_of(flow), "them"))

    def refuses(call):
        raise asyncpg.DataError("too long")

    claim.log.before_plain = refuses
    assert "DataError" in str(await claim.ending())


async def test_a_body_whose_run_has_another_owner_sends_nothing_and_is_stopped(engine: Engine):
    @engine.step
    async def tells():
        engine.bodies.append("begun")
        run.fence += 1
        try:
            await perdure.send("them", 1)
        finally:
            engine.bodies.append("ended")

    @engine.workflow
    async def flow():
        try:
            await tells()
        except Exception:
            engine.bodies.append("seen as a failure")

    run = known(engine.run_of(flow), "them")
    claim = engine.claim(run)
    assert await claim.ending() == Lost()
    assert engine.bodies == ["begun", "ended"]
    assert run.world.inboxes == {}


async def test_a_body_that_is_left_behind_gets_the_signal_and_sends_nothing(engine: Engine):
    gate = asyncio.Event()

    @engine.step
    async def stubborn():
        engine.bodies.append("begun")
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        try:
            await perdure.send("them", 1)
        except BaseException as error:
            engine.bodies.append(type(error).__name__)

    @engine.workflow
    async def flow():
        await stubborn()

    run = known(engine.run_of(flow), "them")
    claim = engine.claim(run, unwind=0.02)
    await until(lambda: bool(engine.bodies))
    claim.interrupt(OwnershipLost("x"))
    assert await claim.ending() == Lost()
    gate.set()
    await until(lambda: len(engine.bodies) == 2)
    assert engine.bodies[1] == "OwnershipLost"
    assert run.world.inboxes == {}


async def test_while_the_lease_does_not_hold_it_waits(engine: Engine):
    begun = asyncio.Event()

    @engine.step
    async def tells():
        claim.log.lease = False
        begun.set()
        await perdure.send("them", 1)

    @engine.workflow
    async def flow():
        await tells()

    run = known(engine.run_of(flow), "them")
    claim = engine.claim(run)
    await begun.wait()
    await asyncio.sleep(0)
    assert run.world.inboxes == {}
    claim.log.lease = True
    assert output_of(await claim.ending()) is None
    assert run.world.inboxes == {("them", ""): ["1"]}


async def test_a_graceful_cancel_lets_the_step_send_and_finish(engine: Engine):
    gate = asyncio.Event()

    @engine.step
    async def tells():
        engine.bodies.append("begun")
        await gate.wait()
        await perdure.send("them", 1)

    @engine.workflow
    async def flow():
        await tells()

    run = known(engine.run_of(flow), "them")
    claim = engine.claim(run)
    await until(lambda: bool(engine.bodies))
    run.cancel_mode = CancelMode.GRACEFUL
    claim.interrupt(CancelRequested("stop"))
    gate.set()
    assert await claim.ending() == Cancelled("stop")
    claim.log.commit()
    assert run.world.inboxes == {("them", ""): ["1"]}
    assert statuses(run) == [StepStatus.SUCCEEDED]


async def test_what_was_recorded_before_is_durable_before_the_message_is(engine: Engine):
    @engine.step(name="first")
    async def first():
        return 1

    @engine.step(name="tells")
    async def tells():
        await until(lambda: any(write.name == "first" for write in claim.log.pending))
        await perdure.send("them", 1)

    @engine.workflow
    async def flow():
        await asyncio.gather(tells(), first())

    run = known(engine.run_of(flow), "them")
    claim = engine.claim(run)
    seen = []
    claim.log.before_plain = lambda call: seen.append(run.rows[1].status)
    await claim.ending()
    assert seen == [StepStatus.SUCCEEDED]


async def test_an_event_is_looked_for_in_a_step_until_it_is_there_or_the_time_is_over(engine: Engine):
    @engine.step
    async def asks():
        engine.bodies.append("begun")
        call = perdure.get_event("them", "state")
        assert call.step_id is None
        return [
            await call,
            await perdure.get_event("them", "other", timeout=0),
            await perdure.get_event("them", "x", 0.01),
        ]

    @engine.workflow
    async def flow():
        return await asks()

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(lambda: bool(engine.bodies))
    await asyncio.sleep(0)
    run.world.events["them", "state"] = '{"n":1}'
    assert output_of(await claim.ending()) == [{"n": 1}, None, None]
    assert run.world.waits == set()
    claim.log.commit()
    assert statuses(run) == [StepStatus.SUCCEEDED]


async def test_a_sync_step_makes_these_calls_with_run_sync(engine: Engine):
    @engine.step
    def tells():
        with pytest.raises(InsideStep, match="nothing can await it"):
            perdure.send("them", 0)
        perdure.run_sync(perdure.send, "them", 1, topic="t")
        perdure.run_sync(perdure.sleep, 0)
        with pytest.raises(NonExistentWorkflow):
            perdure.run_sync(perdure.send, "nobody", 1)
        return perdure.run_sync(perdure.get_event, "them", "state", timeout=0)

    @engine.workflow
    async def flow():
        return await tells()

    run = known(engine.run_of(flow), "them")
    run.world.events["them", "state"] = "7"
    assert output_of(await engine.execute(run)) == 7
    assert run.world.inboxes == {("them", "t"): ["1"]}


async def test_a_sync_step_that_is_left_behind_gets_the_signal(engine: Engine):
    @engine.step
    def asks():
        engine.bodies.append("begun")
        try:
            perdure.run_sync(perdure.get_event, "them", "never")
        except BaseException as error:
            engine.bodies.append(type(error).__name__)

    @engine.workflow
    async def flow():
        await asks()

    claim = engine.claim(engine.run_of(flow))
    await until(lambda: bool(engine.bodies))
    claim.interrupt(CancelRequested("stop", immediate=True))
    assert await claim.ending() == Cancelled("stop")
    await until(lambda: len(engine.bodies) == 2)
    assert engine.bodies[1] == "CancelRequested"


async def test_run_sync_is_refused_where_a_loop_runs():
    with pytest.raises(RuntimeError, match="await the call"):
        perdure.run_sync(perdure.sleep, 0)


async def test_outside_a_run_both_are_refused_as_ever():
    for call in (lambda: perdure.send("them", 1), lambda: perdure.get_event("them", "x")):
        with pytest.raises(NotInWorkflow):
            call()
