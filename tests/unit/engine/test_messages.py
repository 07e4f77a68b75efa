"""Messages and events: sent and set once, taken once, waited for without a slot and without a wake that is missed."""

import asyncio
from datetime import timedelta

import perdure
import pytest
from perdure.errors import (
    EncodingFailed,
    InsideStep,
    InvalidArgument,
    NonExistentWorkflow,
    NotInWorkflow,
    PayloadTooLarge,
)
from perdure.model.calls import Otherwise, Receive
from perdure.model.outcome import Cancelled, Mismatch, Parked
from perdure.model.states import CancelMode, StepStatus
from perdure.store.clients import ExistingRun

from tests.support.engine import Engine, output_of, statuses, until


def known(run, *ids: str):
    for run_id in ids:
        run.world.runs[run_id] = ExistingRun(run_id, "default", "x", "[]")
    return run


def receiver(engine: Engine, topic: str = "t", timeout: object = None):
    @engine.workflow
    async def flow():
        return await perdure.recv(topic, timeout)

    return engine.run_of(flow)


def deliver(run, text: str, topic: str = "t") -> None:
    run.world.inboxes.setdefault((run.id, topic), []).append(text)
    run.wake_seq += 1


async def test_a_message_is_sent_with_the_calls_own_key_and_never_twice(engine: Engine):
    @engine.workflow
    async def flow():
        await perdure.send("them", {"n": 1}, "t")
        await perdure.send("them", None, key="mine")
        await perdure.sleep(100)

    run = known(engine.run_of(flow), "them")
    await engine.execute(run)
    await engine.execute(run)
    assert run.world.inboxes == {("them", "t"): ['{"n":1}'], ("them", ""): ["null"]}
    assert run.world.keys == {("them", "call:run-1/0"), ("them", "key:mine")}
    assert run.rows[0].input == '["them","t",null,{"n":1}]'


async def test_there_must_be_a_receiver_also_at_replay(engine: Engine):
    @engine.workflow
    async def flow():
        with pytest.raises(NonExistentWorkflow, match="nobody"):
            await perdure.send("nobody", 1)
        await perdure.sleep(100)

    run = engine.run_of(flow)
    await engine.execute(run)
    known(run, "nobody")
    assert isinstance(await engine.execute(run), Parked)
    assert run.rows[0].status is StepStatus.FAILED
    assert run.world.inboxes == {}


async def test_messages_come_in_order_and_each_once(engine: Engine):
    @engine.workflow
    async def flow():
        return [await perdure.recv("t"), await perdure.recv("other"), await perdure.recv("t")]

    run = engine.run_of(flow)
    for text in ('"a"', '"b"', '"c"'):
        deliver(run, text)
    deliver(run, "2", "other")
    assert output_of(await engine.execute(run)) == ["a", 2, "b"]
    assert run.world.inboxes[run.id, "t"] == ['"c"']
    assert output_of(await engine.execute(run)) == ["a", 2, "b"]


async def test_without_a_message_the_run_parks_until_there_is_one(engine: Engine):
    run = receiver(engine)
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert (ending.wake_in, ending.waiting_for.kind, ending.waiting_for.on) == (None, "Message", ("message:t",))
    assert run.statuses() == [("perdure.recv", StepStatus.WAITING)]
    deliver(run, '"hi"')
    assert output_of(await engine.execute(run)) == "hi"


async def test_a_message_between_the_look_and_the_park_is_not_slept_over(engine: Engine):
    run = receiver(engine)
    run.wake_seq = 5
    claim = engine.claim(run)
    await until(lambda: bool(claim.execution._steps.backoffs))
    run.world.inboxes[run.id, "t"] = ['"hi"']
    ending = await claim.ending()
    assert isinstance(ending, Parked)
    assert ending.wake_seq == 5


async def test_a_park_for_several_things_carries_the_oldest_look(engine: Engine):
    @engine.workflow
    async def flow():
        await asyncio.gather(perdure.recv("a"), perdure.recv("b"), perdure.sleep(100))

    run = engine.run_of(flow)
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert ending.waiting_for.on == ("message:a", "message:b")
    assert ending.waiting_for.kind == "Sleep"
    assert ending.wake_in is not None
    assert ending.wake_seq == 0


async def test_a_timeout_gives_none_at_its_recorded_end(engine: Engine):
    run = receiver(engine, timeout=timedelta(seconds=60))
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert 59 < (ending.wake_in or 0) <= 60
    run.elapsed = 50
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert 9 < (ending.wake_in or 0) <= 10
    run.elapsed = 60
    assert output_of(await engine.execute(run)) is None
    deliver(run, '"late"')
    assert output_of(await engine.execute(run)) is None


async def test_at_the_last_moment_a_message_counts(engine: Engine):
    run = receiver(engine, timeout=60)
    await engine.execute(run)
    run.elapsed = 61
    deliver(run, '"just in time"')
    assert output_of(await engine.execute(run)) == "just in time"


@pytest.mark.parametrize("seconds", [0, -1])
async def test_no_time_only_looks(engine: Engine, seconds: float):
    run = receiver(engine, timeout=seconds)
    claim = engine.claim(run)
    assert output_of(await claim.ending()) is None
    [call] = claim.log.calls
    assert isinstance(call, Receive)
    assert call.otherwise is Otherwise.NONE


async def test_a_short_timeout_waits_in_memory_and_hears_of_a_message(engine: Engine):
    run = receiver(engine, timeout=0.9)
    claim = engine.claim(run)
    await until(lambda: bool(claim.execution._steps.backoffs))
    deliver(run, "1")
    assert output_of(await claim.ending()) == 1
    assert statuses(run) == [StepStatus.SUCCEEDED]


async def test_a_short_timeout_ends_in_memory(engine: Engine):
    assert output_of(await engine.execute(receiver(engine, timeout=0.02))) is None


async def test_a_run_that_waits_beside_a_step_hears_of_a_message(engine: Engine):
    gate = asyncio.Event()

    @engine.step(name="other")
    async def other():
        await gate.wait()

    @engine.workflow
    async def flow():
        got, _ = await asyncio.gather(receive_then_open(), other())
        return got

    async def receive_then_open():
        got = await perdure.recv("t")
        gate.set()
        return got

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(lambda: bool(claim.execution._steps.backoffs))
    deliver(run, '"hi"')
    assert output_of(await claim.ending()) == "hi"


async def test_a_cancelled_run_takes_no_message(engine: Engine):
    run = receiver(engine)
    deliver(run, '"hi"')
    claim = engine.claim(run)
    run.cancel_mode = CancelMode.GRACEFUL
    assert isinstance(await claim.ending(), Cancelled)
    assert run.world.inboxes[run.id, "t"] == ['"hi"']


async def test_an_event_is_set_once_and_again(engine: Engine):
    @engine.workflow
    async def flow():
        await perdure.set_event("progress", 1)
        await perdure.set_event("progress", 2)
        return await perdure.get_event("run-1", "progress")

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == 2
    run.world.events.clear()
    assert output_of(await engine.execute(run)) == 2


async def test_a_wait_for_an_event_is_registered_before_the_second_look(engine: Engine):
    @engine.workflow
    async def flow():
        return await perdure.get_event("other", "ready")

    run = engine.run_of(flow)
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert (ending.waiting_for.kind, ending.waiting_for.on) == ("Event", ("event:other/ready",))
    assert run.world.waits == {("other", "ready")}
    assert run.statuses() == [("perdure.get_event", StepStatus.WAITING)]
    run.world.events["other", "ready"] = '"yes"'
    assert output_of(await engine.execute(run)) == "yes"


async def test_a_wait_for_an_event_ends_at_its_recorded_end(engine: Engine):
    @engine.workflow
    async def flow():
        return await perdure.get_event("other", "ready", 60)

    run = engine.run_of(flow)
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert 59 < (ending.wake_in or 0) <= 60
    run.elapsed = 60
    assert output_of(await engine.execute(run)) is None
    run.world.events["other", "ready"] = '"late"'
    assert output_of(await engine.execute(run)) is None


CALLS = [
    lambda: perdure.send("them", 1),
    perdure.recv,
    lambda: perdure.set_event("e", 1),
    lambda: perdure.get_event("them", "e"),
]


@pytest.mark.parametrize("call", CALLS)
async def test_outside_a_run_each_says_where_it_belongs(call):
    with pytest.raises(NotInWorkflow, match=r"perdure\.Client"):
        call()


@pytest.mark.parametrize("call", [perdure.recv, lambda: perdure.set_event("e", 1)], ids=["recv", "set_event"])
async def test_inside_a_step_recv_and_set_event_are_refused_and_take_no_index(engine: Engine, call):
    @engine.step(name="asking")
    async def asking():
        with pytest.raises(InsideStep, match="a step is a leaf"):
            call()

    @engine.workflow
    async def flow():
        await asking()

    run = engine.run_of(flow)
    output_of(await engine.execute(run))
    assert list(run.rows) == [0]


BAD = [
    (lambda: perdure.send("", 1), InvalidArgument),
    (lambda: perdure.send(None, 1), InvalidArgument),
    (lambda: perdure.send("a\x00", 1), InvalidArgument),
    (lambda: perdure.send("them", 1, "t" * 256), InvalidArgument),
    (lambda: perdure.send("them", 1, "\ud800"), InvalidArgument),
    (lambda: perdure.send("them", 1, 7), InvalidArgument),
    (lambda: perdure.send("them", 1, None), InvalidArgument),
    (lambda: perdure.recv(None), InvalidArgument),
    (lambda: perdure.send("them", 1, key=""), InvalidArgument),
    (lambda: perdure.send("them", "\x00"), EncodingFailed),
    (lambda: perdure.send("them", "\ud800"), EncodingFailed),
    (lambda: perdure.send("them", float("nan")), EncodingFailed),
    (lambda: perdure.send("them", object()), EncodingFailed),
    (lambda: perdure.send("them", "x" * 2**21), PayloadTooLarge),
    (lambda: perdure.recv("t" * 256), InvalidArgument),
    (lambda: perdure.recv("t", float("inf")), InvalidArgument),
    (lambda: perdure.recv("t", "soon"), InvalidArgument),
    (lambda: perdure.set_event("", 1), InvalidArgument),
    (lambda: perdure.set_event(None, 1), InvalidArgument),
    (lambda: perdure.set_event("e", float("inf")), EncodingFailed),
    (lambda: perdure.get_event("", "e"), InvalidArgument),
    (lambda: perdure.get_event("them", ""), InvalidArgument),
    (lambda: perdure.get_event("them", "e", float("nan")), InvalidArgument),
]


@pytest.mark.parametrize(("call", "kind"), BAD)
async def test_bad_input_is_told_to_the_caller_and_takes_no_index(engine: Engine, call, kind):
    @engine.workflow
    async def flow():
        with pytest.raises(kind):
            call()
        await perdure.sleep(0)

    run = engine.run_of(flow)
    output_of(await engine.execute(run))
    assert list(run.rows) == [0]


async def test_another_topic_at_replay_is_a_mismatch(engine: Engine):
    topic = ["a"]

    @engine.workflow
    async def flow():
        await perdure.recv(topic[0])

    run = engine.run_of(flow)
    await engine.execute(run)
    topic[0] = "b"
    assert isinstance(await engine.execute(run), Mismatch)
