"""A recorded history against the present code: how far it goes, and the first thing that does not fit."""

import asyncio
from dataclasses import replace
from typing import Any

import perdure
import pytest
from perdure.errors import ReplayDiffers
from perdure.model.calls import RunOutcome
from perdure.model.outcome import Succeeded
from perdure.model.states import RunStatus, StepStatus
from perdure.replay import replay
from perdure.store.clients import ExistingRun

from tests.support.engine import Engine
from tests.support.histories import NEVER_RUN, history_of, never_run, recorded, replayed, steps_of, two_steps

# -- the same code


async def test_the_code_that_recorded_a_history_replays_it_and_runs_no_step(engine: Engine, present: Engine) -> None:
    history = await recorded(engine, await two_steps(engine), 1)
    first, second = never_run(present, "first", "second")

    @present.workflow
    async def order(n: int) -> int:
        return int(await second(await first(n)))

    report = await replayed(history, present, strict=True)
    assert report.ok
    assert (report.replayed, report.steps) == (2, 2)


async def test_a_run_under_way_is_replayed_to_where_its_record_ends(engine: Engine, present: Engine) -> None:
    history = await recorded(engine, await two_steps(engine), 1)
    history = replace(history, status=RunStatus.RUNNING, output=None, steps=history.steps[:1])
    first, second = never_run(present, "first", "second")

    @present.workflow
    async def order(n: int) -> int:
        return int(await second(await first(n)))

    report = await replayed(history, present)
    assert report.ok
    assert (report.replayed, report.steps) == (1, 1)


async def test_a_step_that_was_running_or_waits_for_its_next_attempt_is_met_and_not_run(
    engine: Engine, present: Engine
) -> None:
    history = await recorded(engine, await two_steps(engine), 1)
    first, second = never_run(present, "first", "second")

    @present.workflow
    async def order(n: int) -> int:
        return int(await second(await first(n)))

    for status in (StepStatus.RUNNING, StepStatus.RETRYING):
        last = replace(history.steps[1], status=status, output=None)
        open_run = replace(history, status=RunStatus.RUNNING, output=None, steps=(history.steps[0], last))
        report = await replayed(open_run, present)
        assert report.ok
        assert report.replayed == 2


async def test_a_failure_of_a_step_replays_as_its_own_class(engine: Engine) -> None:
    @engine.step
    async def charge(n: int) -> int:
        raise ValueError(f"no {n}")

    @engine.workflow
    async def order(n: int) -> str:
        try:
            await charge(n)
        except ValueError as error:
            return str(error)
        return "charged"

    assert (await replayed(await recorded(engine, order, 4), engine, strict=True)).ok


async def test_a_run_that_has_failed_fails_again_in_the_same_way(engine: Engine) -> None:
    @engine.workflow
    async def order(n: int) -> str:
        raise ValueError("never")

    assert (await replayed(await recorded(engine, order, 4), engine, strict=True)).ok


async def test_calls_in_gather_are_all_met_also_where_some_are_not_recorded(engine: Engine) -> None:
    [one] = steps_of(engine, "one")

    @engine.workflow
    async def many(n: int) -> int:
        return sum(await perdure.gather(*(one(each) for each in range(n))))

    history = await recorded(engine, many, 50)
    some = replace(history, status=RunStatus.RUNNING, output=None, steps=history.steps[::2])
    report = await replayed(some, engine)
    assert report.ok
    assert report.replayed == 25


async def test_durable_calls_of_all_kinds_replay(engine: Engine) -> None:
    [one] = steps_of(engine, "one")

    @engine.workflow
    async def child() -> int:
        return 3

    @engine.workflow
    async def flow() -> list[Any]:
        started = await child.options(id="c-1").start()
        await perdure.sleep(0.001)
        await perdure.send("other", {"n": 1}, topic="t")
        got = await perdure.recv("t")
        await perdure.set_event("e", 5)
        seen = await perdure.get_event("other", "e")
        won = await perdure.select(a=one(1), b=perdure.recv("none"))
        await perdure.join_workflows("c-1")
        when = await perdure.now()
        await perdure.write_stream("s", "x")
        inline = await perdure.run_step("inline", lambda: 7)
        result = await started.result()
        return [got, seen, won.value, str(when), str(perdure.uuid4()), perdure.random().random(), inline, result]

    run = engine.run_of(flow)
    run.world.outcomes["c-1"] = RunOutcome(RunStatus.SUCCEEDED, "3")
    run.world.runs["other"] = ExistingRun("other", "default", "x", "[]")
    run.world.inboxes[run.id, "t"] = ['"hello"']
    run.world.events["other", "e"] = "9"
    ending = await engine.execute(run)
    history = history_of(run, ending)
    assert isinstance(ending, Succeeded), ending
    report = await replayed(history, engine, strict=True)
    assert report.ok, report
    for length in range(len(history.steps)):
        cut = replace(history, status=RunStatus.RUNNING, output=None, steps=history.steps[:length])
        report = await replayed(cut, engine)
        assert report.ok, (length, report)
        assert report.replayed == report.steps


async def test_a_race_that_is_not_decided_waits_for_the_end(engine: Engine) -> None:
    @engine.workflow
    async def flow() -> str:
        won = await perdure.select(a=perdure.recv("a"), b=perdure.recv("b"))
        return str(won.name)

    run = engine.run_of(flow)
    claim = engine.claim(run, park_after=0)
    await claim.ending()
    claim.log.commit()
    assert len(run.rows) == 2
    report = await replayed(history_of(run), engine)
    assert report.ok
    assert report.replayed == 2


async def test_what_waits_beside_the_body_ends_with_the_replay(engine: Engine, present: Engine) -> None:
    """A task group, tasks of one's own and `asyncio.wait` leave nothing behind."""
    [one] = never_run(present, "one")

    @present.workflow
    async def flow() -> None:
        tasks = [asyncio.create_task(one(each)) for each in range(3)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        async with asyncio.TaskGroup() as group:
            group.create_task(one(9))

    before = asyncio.all_tasks()
    report = await replayed(history_of(present.run_of(flow)), present)
    assert report.ok
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


# -- other code


async def test_another_step_at_a_recorded_place_is_named_with_the_line_that_calls_it(
    engine: Engine, present: Engine
) -> None:
    history = await recorded(engine, await two_steps(engine), 1)
    first, other = steps_of(present, "first", "other")

    @present.workflow
    async def order(n: int) -> int:
        middle = await first(n)
        return int(await other(middle))

    report = await replayed(history, present)
    found = report.difference
    assert found is not None
    assert (found.code, found.index, found.name) == ("PRD-301", 1, "other")
    assert found.recorded is not None
    assert found.recorded.name == "second"
    assert found.line is not None
    assert found.line.text == "return int(await other(middle))"
    assert found.line.path == __file__
    shown = "\n".join(report.lines("x.json"))
    assert "x.json: run run-1 of order differs at index 1" in shown
    assert "recorded: second [2] (succeeded)" in shown
    assert "code:     other [2]" in shown


async def test_another_input_than_recorded_is_named(engine: Engine, present: Engine) -> None:
    history = await recorded(engine, await two_steps(engine), 1)
    first, second = steps_of(present, "first", "second")

    @present.workflow
    async def order(n: int) -> int:
        return int(await second(await first(n + 5)))

    found = (await replayed(history, present)).difference
    assert found is not None
    assert (found.code, found.index, found.input) == ("PRD-302", 0, "[6]")
    assert found.recorded is not None
    assert found.recorded.input == "[1]"


async def test_a_call_made_where_a_step_is_recorded_is_named(engine: Engine, present: Engine) -> None:
    history = await recorded(engine, await two_steps(engine), 1)
    first, _ = steps_of(present, "first", "second")

    @present.workflow
    async def order(n: int) -> int:
        await first(n)
        await perdure.sleep(1)
        return 0

    found = (await replayed(history, present)).difference
    assert found is not None
    assert (found.code, found.index, found.name) == ("PRD-301", 1, "perdure.sleep")
    assert found.line is not None
    assert found.line.text == "await perdure.sleep(1)"


async def test_a_step_that_the_code_leaves_out_is_the_difference(engine: Engine, present: Engine) -> None:
    """A worker would end the run without it, so nobody else says so."""
    history = await recorded(engine, await two_steps(engine), 1)
    history = replace(history, status=RunStatus.RUNNING, output=None)
    [first] = steps_of(present, "first")

    @present.workflow
    async def order(n: int) -> int:
        return int(await first(n))

    found = (await replayed(history, present)).difference
    assert found is not None
    assert (found.index, found.recorded and found.recorded.name) == (1, "second")
    assert "the code ends before it comes to it" in found.message


async def test_a_recorded_result_that_does_not_fit_its_annotation_any_more_is_the_difference(
    engine: Engine, present: Engine
) -> None:
    history = await recorded(engine, await two_steps(engine), 1)

    async def changed(n: int) -> list[str]:
        raise AssertionError(NEVER_RUN)

    first = present.step(changed, name="first")

    @present.workflow
    async def order(n: int) -> int:
        return len(await first(n))

    found = (await replayed(history, present)).difference
    assert found is not None
    assert (found.code, found.index, found.name) == ("PRD-402", 0, "first")


async def test_an_input_that_does_not_fit_any_more_is_the_difference(engine: Engine, present: Engine) -> None:
    history = replace(await recorded(engine, await two_steps(engine), 1), status=RunStatus.RUNNING, steps=())

    @present.workflow
    async def order(n: list[str]) -> int:
        return 0

    found = (await replayed(history, present)).difference
    assert found is not None
    assert found.code == "PRD-402"
    assert "'n'" in found.message


async def test_a_workflow_that_is_not_registered_is_told_by_its_name(engine: Engine, present: Engine) -> None:
    found = (await replayed(await recorded(engine, await two_steps(engine), 1), present)).difference
    assert found is not None
    assert found.code == "PRD-304"
    assert "order" in found.message


async def test_an_error_that_was_not_there_is_the_difference(engine: Engine, present: Engine) -> None:
    history = await recorded(engine, await two_steps(engine), 1)
    first, second = steps_of(present, "first", "second")

    @present.workflow
    async def order(n: int) -> int:
        await second(await first(n))
        raise KeyError("typo")

    found = (await replayed(history, present)).difference
    assert found is not None
    assert "KeyError" in found.message
    assert "the run had succeeded" in found.message


# -- with a workflow at hand


async def test_a_history_is_replayed_with_the_workflow_that_is_given(engine: Engine) -> None:
    """Whatever its name: the code of before and of now stand side by side in a test."""
    history = await recorded(engine, await two_steps(engine), 1)
    first, other = (engine.registry.steps["first"].function, never_run(engine, "other")[0])
    first = engine.step(first, name="first")

    @engine.workflow
    async def order_2(n: int) -> int:
        return int(await other(await first(n)))

    report = await replay(history, order_2)
    assert report.workflow == "order_2"
    with pytest.raises(ReplayDiffers) as caught:
        report.check()
    assert "code:     other [2]" in caught.value.message
    (await replay(history, registry=engine.registry)).check()
