"""Streams: written and closed once, read at an offset, waited for without a slot and without a wake that is missed."""

from datetime import timedelta

import perdure
import pytest
from perdure.errors import (
    DecodingFailed,
    EncodingFailed,
    InvalidArgument,
    NonExistentWorkflow,
    NotInWorkflow,
    PayloadTooLarge,
    StreamClosed,
    StreamTimeout,
)
from perdure.model.calls import RunOutcome
from perdure.model.outcome import Mismatch, Parked
from perdure.model.states import RunStatus, StepStatus

from tests.support.engine import Engine, failed, output_of, statuses, until


def reader(engine: Engine, offset: int = 0, timeout: object = None, **options: object):
    @engine.workflow
    async def flow():
        return await perdure.read_stream("other", "s", offset, timeout, **options)

    return engine.run_of(flow)


async def test_values_are_written_in_order_and_none_twice(engine: Engine):
    @engine.workflow
    async def flow():
        for value in (1, {"a": 2}, None):
            assert await perdure.write_stream("s", value) is None
        await perdure.sleep(100)

    run = engine.run_of(flow)
    await engine.execute(run)
    await engine.execute(run)
    assert run.world.streams == {("run-1", "s"): ["1", '{"a":2}', "null"]}
    assert run.rows[1].input == '["s",{"a":2}]'
    assert run.rows[1].name == "perdure.write_stream"


async def test_a_closed_stream_takes_nothing_more_also_at_replay(engine: Engine):
    @engine.workflow
    async def flow():
        await perdure.write_stream("s", 1)
        await perdure.close_stream("s")
        await perdure.close_stream("s")
        with pytest.raises(StreamClosed, match="stream s was closed"):
            await perdure.write_stream("s", 2)
        await perdure.write_stream("other", 3)
        await perdure.sleep(100)

    run = engine.run_of(flow)
    await engine.execute(run)
    run.world.closed.clear()
    assert isinstance(await engine.execute(run), Parked)
    assert statuses(run)[:5] == [*[StepStatus.SUCCEEDED] * 3, StepStatus.FAILED, StepStatus.SUCCEEDED]
    assert run.world.streams == {("run-1", "s"): ["1"], ("run-1", "other"): ["3"]}


async def test_a_value_is_read_at_its_offset_and_a_replay_reads_it_again(engine: Engine):
    @engine.workflow
    async def flow():
        found = [await perdure.read_stream("other", "s", offset) for offset in (1, 0)]
        await perdure.sleep(100)
        return found

    run = engine.run_of(flow)
    run.world.streams["other", "s"] = ['"a"', '"b"']
    await engine.execute(run)
    assert [run.rows[index].output for index in (0, 1)] == ['"b"', '"a"']
    run.world.streams.clear()
    assert isinstance(await engine.execute(run), Parked)
    assert run.rows[0].input == '["other","s",1,null]'


async def test_a_read_parks_until_the_value_is_there_and_is_registered_before_the_second_look(engine: Engine):
    run = reader(engine, 2)
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert (ending.wake_in, ending.waiting_for.kind) == (None, "Stream")
    assert "stream:other/s" in ending.waiting_for.on
    assert run.world.stream_waits == {("other", "s", 2)}
    assert run.statuses() == [("perdure.read_stream", StepStatus.WAITING)]
    run.world.streams["other", "s"] = ["1", "2", "3"]
    assert output_of(await engine.execute(run)) == 3


async def test_a_value_between_the_look_and_the_park_is_not_slept_over(engine: Engine):
    run = reader(engine)
    run.wake_seq = 5
    claim = engine.claim(run)
    await until(lambda: bool(claim.execution._steps.backoffs))
    run.world.streams["other", "s"] = ["1"]
    ending = await claim.ending()
    assert isinstance(ending, Parked)
    assert ending.wake_seq == 5


async def test_a_timeout_is_an_outcome_at_its_recorded_end(engine: Engine):
    run = reader(engine, timeout=timedelta(seconds=60))
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert 59 < (ending.wake_in or 0) <= 60
    run.elapsed = 60
    error = failed(await engine.execute(run)).error
    assert (error.code, "within 60 s" in error.message) == ("PRD-409", True)
    run.world.streams["other", "s"] = ["1"]
    assert failed(await engine.execute(run)).error == error


async def test_a_read_of_a_closed_stream_behind_its_end_times_out_at_once(engine: Engine):
    run = reader(engine, 1, timeout=60)
    run.world.streams["other", "s"] = ["1"]
    run.world.closed.add(("other", "s"))
    assert "closed before offset 1" in failed(await engine.execute(run)).error.message


async def test_a_read_of_a_run_that_has_ended_times_out_at_once_but_for_what_is_there(engine: Engine):
    @engine.workflow
    async def flow():
        assert await perdure.read_stream("other", "s") == 1
        with pytest.raises(StreamTimeout, match="has ended without a value at offset 1"):
            await perdure.read_stream("other", "s", 1)
        return "done"

    run = engine.run_of(flow)
    run.world.streams["other", "s"] = ["1"]
    run.world.outcomes["other"] = RunOutcome(RunStatus.SUCCEEDED, "1")
    assert output_of(await engine.execute(run)) == "done"


async def test_a_read_of_a_run_that_is_not_there_says_so(engine: Engine):
    @engine.workflow
    async def flow():
        with pytest.raises(NonExistentWorkflow, match="no run other"):
            await perdure.read_stream("other", "s")

    run = engine.run_of(flow)
    run.world.gone.add("other")
    output_of(await engine.execute(run))


@pytest.mark.parametrize("seconds", [0, -1])
async def test_no_time_only_looks(engine: Engine, seconds: float):
    run = reader(engine, timeout=seconds)
    assert failed(await engine.execute(run)).error.code == "PRD-409"
    assert run.world.stream_waits == set()


async def test_a_read_value_has_the_type_that_was_asked_for(engine: Engine):
    @engine.workflow
    async def flow():
        assert await perdure.read_stream("other", "s", type=timedelta) == timedelta(seconds=90)
        with pytest.raises(DecodingFailed, match="value 1 of stream s of run other"):
            await perdure.read_stream("other", "s", 1, type=timedelta)
        return "done"

    run = engine.run_of(flow)
    run.world.streams["other", "s"] = ['"PT90S"', '"soon"']
    assert output_of(await engine.execute(run)) == "done"
    run.world.streams.clear()
    assert output_of(await engine.execute(run)) == "done", "a replay says the same"


async def test_another_offset_at_replay_is_a_mismatch(engine: Engine):
    offset = [0]

    @engine.workflow
    async def flow():
        await perdure.read_stream("other", "s", offset[0])

    run = engine.run_of(flow)
    await engine.execute(run)
    offset[0] = 1
    assert isinstance(await engine.execute(run), Mismatch)


CALLS = [
    lambda: perdure.write_stream("s", 1),
    lambda: perdure.close_stream("s"),
    lambda: perdure.read_stream("them", "s"),
]


@pytest.mark.parametrize("call", CALLS)
async def test_outside_a_run_each_says_where_it_belongs(call):
    with pytest.raises(NotInWorkflow, match=r"perdure\.Client"):
        call()


BAD = [
    (lambda: perdure.write_stream("", 1), InvalidArgument),
    (lambda: perdure.write_stream(None, 1), InvalidArgument),
    (lambda: perdure.write_stream("k" * 256, 1), InvalidArgument),
    (lambda: perdure.write_stream("a\n", 1), InvalidArgument),
    (lambda: perdure.write_stream(7, 1), InvalidArgument),
    (lambda: perdure.write_stream("s", "\x00"), EncodingFailed),
    (lambda: perdure.write_stream("s", float("nan")), EncodingFailed),
    (lambda: perdure.write_stream("s", "x" * 2**21), PayloadTooLarge),
    (lambda: perdure.close_stream(""), InvalidArgument),
    (lambda: perdure.read_stream("", "s"), InvalidArgument),
    (lambda: perdure.read_stream("r", ""), InvalidArgument),
    (lambda: perdure.read_stream("r", "s", -1), InvalidArgument),
    (lambda: perdure.read_stream("r", "s", 2**63), InvalidArgument),
    (lambda: perdure.read_stream("r", "s", 1.5), InvalidArgument),
    (lambda: perdure.read_stream("r", "s", True), InvalidArgument),
    (lambda: perdure.read_stream("r", "s", 0, float("inf")), InvalidArgument),
    (lambda: perdure.read_stream("r", "s", type=object()), InvalidArgument),
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
