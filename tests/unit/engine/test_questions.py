"""Calls that ask what is known of runs: recorded as it was seen, plain in a step."""

from dataclasses import replace
from typing import Any

import perdure
import pytest
from perdure.errors import (
    NonExistentWorkflow,
    NotInWorkflow,
    PayloadTooLarge,
)
from perdure.model.listing import OneRun, RunPage, RunQuery, StepQuery, filter_of
from perdure.model.states import RunStatus, StepStatus

from tests.support.details import DETAILS, STEP
from tests.support.engine import Engine, failed, output_of, statuses


@pytest.mark.parametrize(
    "make",
    [lambda: perdure.get_workflow("r"), lambda: perdure.list_steps("r"), perdure.list_workflows],
    ids=["get_workflow", "list_steps", "list_workflows"],
)
def test_outside_a_run_each_question_says_where_it_belongs(make: Any) -> None:
    with pytest.raises(NotInWorkflow, match=r"use perdure\.Client"):
        make()


async def test_what_is_known_of_runs_is_recorded_as_it_was_seen(engine: Engine) -> None:
    page = RunPage((DETAILS,), "1:r")

    @engine.workflow
    async def body() -> str:
        assert await perdure.get_workflow("r") == DETAILS
        assert await perdure.list_steps("r", limit=5) == (STEP,)
        assert await perdure.list_workflows(status=RunStatus.FAILED, limit=3) == page
        return "seen"

    run = engine.run_of(body)
    query = RunQuery("default", filter_of({"status": RunStatus.FAILED}), 3)
    run.world.answers = {OneRun("r"): DETAILS, StepQuery("r", limit=5): (STEP,), query: page}
    assert output_of(await engine.execute(run)) == "seen"
    run.world.answers = {OneRun("r"): replace(DETAILS, status=RunStatus.SUCCEEDED)}
    assert output_of(await engine.execute(run)) == "seen"
    assert len(run.world.questions) == 3


async def test_a_run_that_is_not_there_is_said_not_to_be_also_at_a_replay(engine: Engine) -> None:
    @engine.workflow
    async def body() -> list[str]:
        said = []
        for call in (perdure.get_workflow("r"), perdure.list_steps("r")):
            try:
                await call
            except NonExistentWorkflow as error:
                said.append(error.message)
        return said

    run = engine.run_of(body)
    assert output_of(await engine.execute(run)) == ["there is no run r"] * 2
    run.world.answers = {OneRun("r"): DETAILS}
    assert output_of(await engine.execute(run)) == ["there is no run r"] * 2


async def test_what_is_found_must_fit_a_recorded_value(engine: Engine) -> None:
    @engine.workflow
    async def body() -> None:
        await perdure.get_workflow("r")

    run = engine.run_of(body)
    run.world.answers = {OneRun("r"): replace(DETAILS, output="x" * 1024 * 1024)}
    assert failed(await engine.execute(run)).error.code == PayloadTooLarge.code


async def test_in_a_step_questions_are_plain(engine: Engine) -> None:
    @engine.step
    async def step() -> int:
        return (await perdure.get_workflow("r")).status

    @engine.workflow
    async def body() -> int:
        return await step()

    run = engine.run_of(body)
    run.world.answers = {OneRun("r"): DETAILS}
    assert output_of(await engine.execute(run)) == RunStatus.FAILED
    assert statuses(run) == [StepStatus.SUCCEEDED]
