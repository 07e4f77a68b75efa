"""Replays of what was written by serializers and codecs, portably, or when steps were undone."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import perdure
import pytest
from perdure.errors import PayloadsUnavailable
from perdure.model.rows import UNDO, RecordedStep
from perdure.model.states import RunStatus, StepStatus
from perdure.replay import execution

from tests.support.engine import Engine
from tests.support.histories import recorded, replayed


class Elsewhere:
    """Puts texts elsewhere, as an object store; counts how often."""

    name = "elsewhere"
    blocking = True

    def __init__(self) -> None:
        self.there: dict[str, str] = {}
        self.written = 0

    def encode(self, text: str, /) -> str | None:
        self.written += 1
        key = str(len(self.there))
        self.there[key] = text
        return key

    def decode(self, text: str, /) -> str:
        return self.there[text]


def order_in(engine: Engine, **options: Any) -> Any:
    async def pay(cents: int) -> dict[str, int]:
        return {"cents": cents}

    step = engine.step(pay, name="pay")

    async def order(cents: int) -> int:
        paid = await step(cents)
        return int((await asyncio.gather(step(paid["cents"] + 1), step(0)))[0]["cents"])

    return perdure.workflow(name="order", registry=engine.registry, **options)(order)


async def test_values_of_a_codec_are_read_and_none_is_written(engine: Engine) -> None:
    codec = Elsewhere()
    engine.registry.serializers.add_codec(codec)
    engine.registry.serializers.use("", ["elsewhere"])
    history = await recorded(engine, order_in(engine), 1)
    assert history.status is RunStatus.SUCCEEDED
    assert all(step.output.startswith("!elsewhere:") for step in history.steps if step.output)
    written = codec.written
    report = await replayed(history, engine, strict=True)
    assert report.ok, report
    assert report.replayed == 3
    assert codec.written == written


async def test_values_of_a_codec_that_is_not_here_are_told_by_its_name_and_place(
    engine: Engine, present: Engine
) -> None:
    engine.registry.serializers.add_codec(Elsewhere())
    engine.registry.serializers.use("", ["elsewhere"])
    history = await recorded(engine, order_in(engine), 1)
    order_in(present)
    found = (await replayed(history, present)).difference
    assert found is not None
    assert (found.code, found.index) == ("PRD-407", 0)
    assert "elsewhere" in found.message
    assert found.line is not None
    assert found.line.text == "paid = await step(cents)"


async def test_values_that_are_fetched_slowly_are_waited_for_also_beside_a_call_that_waits(engine: Engine) -> None:
    class Slow(Elsewhere):
        def decode(self, text: str, /) -> str:
            time.sleep(2 * execution.GRACE)
            return super().decode(text)

    engine.registry.serializers.add_codec(Slow())
    flow = order_in(engine)
    engine.registry.serializers.use("", ["elsewhere"])
    history = await recorded(engine, flow, 1)
    held = replace(history.steps[1], status=StepStatus.RUNNING, output=None, input="[2]")
    history = replace(history, steps=(history.steps[0], held, history.steps[2]), status=RunStatus.RUNNING, output=None)
    report = await replayed(history, engine)
    assert report.ok, report
    assert report.replayed == 3


async def test_values_that_cannot_be_fetched_end_the_replay_with_a_sentence(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(Elsewhere):
        away = False

        def decode(self, text: str, /) -> str:
            if self.away:
                raise PayloadsUnavailable("no answer")
            return super().decode(text)

    monkeypatch.setattr(execution, "PATIENCE", 0.2)
    codec = Away()
    engine.registry.serializers.add_codec(codec)
    engine.registry.serializers.use("", ["elsewhere"])
    history = await recorded(engine, order_in(engine), 1)
    codec.away = True
    found = (await replayed(replace(history, output=None), engine)).difference
    assert found is not None
    assert found.code == PayloadsUnavailable.code
    assert "cannot be read" in found.message


async def test_in_gather_the_call_is_named_whose_value_cannot_be_read(engine: Engine) -> None:
    codec = Elsewhere()
    engine.registry.serializers.add_codec(codec)
    history = await recorded(engine, order_in(engine), 1)
    broken = replace(history.steps[2], output="!gone:x")
    tagged = replace(history.steps[1], output=f"!elsewhere:{codec.encode(history.steps[1].output or '')}")
    history = replace(history, steps=(history.steps[0], tagged, broken))
    found = (await replayed(history, engine)).difference
    assert found is not None
    assert (found.code, found.index) == ("PRD-407", 2)


async def test_a_portable_run_and_its_failure_replay(engine: Engine) -> None:
    @engine.step
    async def refuse() -> None:
        raise ValueError("no")

    async def order(fails: bool) -> str:
        try:
            await refuse()
        except ValueError as error:
            if fails:
                raise KeyError("x") from error
            return str(error)
        return ""

    flow = perdure.workflow(name="order", registry=engine.registry, serialization="portable")(order)
    for fails in (False, True):
        report = await replayed(await recorded(engine, flow, fails), engine, strict=True)
        assert report.ok, report
        assert report.notes == ()


# -- undone


def undoing(engine: Engine) -> Any:
    async def reserve(n: int) -> int:
        return n

    async def release(n: int) -> None: ...

    async def ship() -> None:
        raise ValueError("no courier")

    reserve_step, release_step = engine.step(reserve, name="reserve"), engine.step(release, name="release")
    ship_step = engine.step(ship, name="ship")

    @engine.workflow
    async def order(n: int) -> None:
        await reserve_step(n).undo(release_step)
        await ship_step()

    return order


def begun(steps: tuple[RecordedStep, ...], name: str) -> tuple[RecordedStep, ...]:
    """With what says that they are undone, and the step that undoes the first."""
    at = len(steps)
    undo = RecordedStep(at, UNDO, StepStatus.SUCCEEDED, '"why"', "[]", None, 0, None, None, None)
    again = RecordedStep(at + 1, name, StepStatus.RUNNING, "[1]", None, None, 0, None, None, None)
    return (*steps, undo, again)


async def test_a_run_whose_steps_are_undone_is_replayed_to_where_that_began(engine: Engine) -> None:
    history = await recorded(engine, undoing(engine), 1)
    history = replace(history, steps=begun(history.steps[:2], "release"), status=RunStatus.RUNNING, error=None)
    report = await replayed(history, engine)
    assert report.ok, report
    assert (report.replayed, report.steps) == (2, 2)


async def test_a_cancelled_run_whose_steps_are_undone_may_have_stopped_anywhere(engine: Engine) -> None:
    history = await recorded(engine, undoing(engine), 1)
    history = replace(history, steps=begun(history.steps[:1], "release"), status=RunStatus.CANCELLED, error=None)
    assert (await replayed(history, engine, strict=True)).ok


async def test_a_step_that_undoes_and_is_not_there_any_more_is_the_difference(engine: Engine) -> None:
    history = await recorded(engine, undoing(engine), 1)
    open_run = replace(history, steps=begun(history.steps[:2], "gone"), status=RunStatus.RUNNING, error=None)
    found = (await replayed(open_run, engine)).difference
    assert found is not None
    assert (found.code, found.index) == ("PRD-305", 3)
    assert (await replayed(replace(open_run, status=RunStatus.FAILED, error=history.error), engine)).ok
    assert json.loads(history.error or "")["type"] == "ValueError"
