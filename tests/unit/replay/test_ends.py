"""Where a replay ends: what a body awaits besides, and ends other than the recorded one, which harm nobody."""

import asyncio
from dataclasses import replace

import perdure
import pytest
from perdure.model.states import RunStatus
from perdure.replay import execution

from tests.support.engine import Engine
from tests.support.histories import history_of, never_run, recorded, replayed, steps_of, two_steps


async def test_a_body_that_gives_a_call_up_by_itself_is_not_deterministic(engine: Engine) -> None:
    [one] = steps_of(engine, "one")

    @engine.workflow
    async def flow() -> int:
        task = asyncio.create_task(perdure.recv("t"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        return int(await one(1))

    found = (await replayed(history_of(engine.run_of(flow)), engine)).difference
    assert found is not None
    assert found.code == "PRD-315"


async def test_a_body_that_awaits_something_else_for_ever_is_given_up(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "PATIENCE", 0.05)

    @engine.workflow
    async def flow() -> None:
        await asyncio.Event().wait()

    open_run = history_of(engine.run_of(flow))
    found = (await replayed(replace(open_run, status=RunStatus.SUCCEEDED, output="null"), engine)).difference
    assert found is not None
    assert "no durable call" in found.message
    assert (await replayed(open_run, engine)).ok, "a run that was stopped there may have waited as well"


async def test_a_body_that_awaits_something_else_for_a_while_is_waited_for(engine: Engine) -> None:
    [one] = steps_of(engine, "one")

    @engine.workflow
    async def flow() -> int:
        await one(1)
        await asyncio.sleep(0.05)
        return int(await one(2))

    assert (await replayed(await recorded(engine, flow), engine, strict=True)).ok


# -- other ends, which harm nobody


async def test_a_step_added_at_the_end_is_a_note_and_only_a_strict_replay_minds(
    engine: Engine, present: Engine
) -> None:
    history = await recorded(engine, await two_steps(engine), 1)
    first, second, third = never_run(present, "first", "second", "third")

    @present.workflow
    async def order(n: int) -> int:
        return int(await third(await second(await first(n))))

    report = await replayed(history, present)
    assert report.ok
    assert report.notes == ("the run had succeeded here, and the code goes on with third",)
    found = (await replayed(history, present, strict=True)).difference
    assert found is not None
    assert (found.code, found.name) == ("PRD-318", "third")
    assert found.line is not None


async def test_another_result_is_a_note(engine: Engine, present: Engine) -> None:
    history = await recorded(engine, await two_steps(engine), 1)
    first, second = steps_of(present, "first", "second")

    @present.workflow
    async def order(n: int) -> int:
        return 10 * int(await second(await first(n)))

    report = await replayed(history, present)
    assert report.ok
    assert report.notes == ("the result is 30, and was 3",)


async def test_a_step_added_to_a_run_under_way_behind_its_record_is_no_difference(
    engine: Engine, present: Engine
) -> None:
    history = replace(await recorded(engine, await two_steps(engine), 1), status=RunStatus.RUNNING, output=None)
    first, second, third = never_run(present, "first", "second", "third")

    @present.workflow
    async def order(n: int) -> int:
        return int(await third(await second(await first(n))))

    report = await replayed(history, present, strict=True)
    assert report.ok
    assert report.notes == ()
