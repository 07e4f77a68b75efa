"""`recv` and `get_event` with a type: the value is read as it, and one that does not fit is an error of the call."""

from dataclasses import dataclass
from datetime import datetime

import perdure
import pytest
from perdure.errors import DecodingFailed, InvalidArgument
from pydantic import BaseModel

from tests.support.engine import Engine, output_of


@dataclass
class Answer:
    granted: bool
    at: datetime | None = None


class Order(BaseModel):
    items: list[int]


def deliver(run, text: str, topic: str = "t") -> None:
    run.world.inboxes.setdefault((run.id, topic), []).append(text)


async def test_a_message_is_read_as_the_type_that_was_asked_for_also_at_replay(engine: Engine):
    @engine.workflow
    async def flow():
        answer = await perdure.recv("t", type=Answer)
        assert answer == Answer(granted=True, at=datetime.fromisoformat("2026-12-01T12:00:00+00:00"))
        assert await perdure.recv("t", type=list[int]) == [1, 2]
        assert await perdure.recv("t", type=int | str) == "a"
        return answer.granted

    run = engine.run_of(flow)
    for text in ('{"granted":true,"at":"2026-12-01T12:00:00Z"}', "[1,2]", '"a"'):
        deliver(run, text)
    assert output_of(await engine.execute(run)) is True
    assert output_of(await engine.execute(run)) is True
    assert run.rows[0].input == '["t",null]', "the type is no part of what is recorded"


async def test_a_message_that_does_not_fit_is_taken_and_raised_and_the_body_goes_on_also_at_replay(engine: Engine):
    @engine.workflow
    async def flow():
        with pytest.raises(DecodingFailed, match="the message on t is not Order"):
            await perdure.recv("t", type=Order)
        order = await perdure.recv("t", type=Order)
        return None if order is None else order.items

    run = engine.run_of(flow)
    deliver(run, '{"items":"none"}')
    deliver(run, '{"items":[7]}')
    assert output_of(await engine.execute(run)) == [7]
    assert output_of(await engine.execute(run)) == [7]


async def test_nothing_in_time_is_none_whatever_the_type(engine: Engine):
    @engine.workflow
    async def flow():
        assert await perdure.recv("t", 0, type=Order) is None
        assert await perdure.get_event("other", "e", 0, type=Order) is None
        return "done"

    assert await engine.output(flow) == "done"


async def test_an_event_is_read_as_the_type_that_was_asked_for(engine: Engine):
    @engine.workflow
    async def flow():
        order = await perdure.get_event("other", "e", type=Order)
        assert order == Order(items=[1])
        with pytest.raises(DecodingFailed, match="event f of run other"):
            await perdure.get_event("other", "f", type=Order)
        return "done"

    run = engine.run_of(flow)
    run.world.events = {("other", "e"): '{"items":[1]}', ("other", "f"): "7"}
    assert output_of(await engine.execute(run)) == "done"
    run.world.events = {}
    assert output_of(await engine.execute(run)) == "done"


TYPED = [lambda kind: perdure.recv(type=kind), lambda kind: perdure.get_event("a", "e", type=kind)]


@pytest.mark.parametrize("call", TYPED)
async def test_what_is_no_type_of_json_is_refused_and_takes_no_index(engine: Engine, call):
    @engine.workflow
    async def flow():
        for kind in (object(), Engine, "NoSuchName"):
            with pytest.raises(InvalidArgument):
                call(kind)
        await perdure.sleep(0)

    run = engine.run_of(flow)
    output_of(await engine.execute(run))
    assert list(run.rows) == [0]
