"""Random programs: whatever has interrupted them, their history replays, and a history of another code never does."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.model.outcome import Ending
from perdure.replay import replay

from tests.support.histories import history_of
from tests.unit.engine.test_programs import Program, programs, troubles

Troubles = list[tuple[str, int]]


@pytest.fixture(scope="module")
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


async def interrupted(program: Program, troubles: Troubles) -> None:
    for trouble in troubles:
        await program.claim(trouble)


@given(programs, troubles)
@settings(max_examples=100)
def test_a_history_replays_wherever_its_run_was_interrupted(threads: Executor, root: Any, troubles: Troubles) -> None:
    async def check() -> None:
        program = Program(root, threads)
        await interrupted(program, troubles)
        seen = (program.world.reruns[:], dict(program.run.rows))
        history = history_of(program.run)
        report = await replay(history, registry=program.registry)
        assert report.ok, report
        assert report.replayed == len(history.steps)
        ending: Ending = await program.until_done([])
        report = await replay(history_of(program.run, ending), registry=program.registry, strict=True)
        assert report.ok, report
        assert seen[0] == program.world.reruns

    asyncio.run(check())


@given(programs, st.data())
@settings(max_examples=100)
def test_a_step_that_is_recorded_under_another_name_or_input_is_found_at_its_index(
    threads: Executor, root: Any, data: st.DataObject
) -> None:
    async def check() -> None:
        program = Program(root, threads)
        history = history_of(program.run, await program.until_done([]))
        place = data.draw(st.integers(0, len(history.steps) - 1))
        row = history.steps[place]
        changed = data.draw(st.sampled_from([replace(row, name="other"), replace(row, input="[8]")]))
        steps = (*history.steps[:place], changed, *history.steps[place + 1 :])
        found = (await replay(replace(history, steps=steps), registry=program.registry)).difference
        assert found is not None
        assert found.index == row.index
        assert found.code == ("PRD-301" if changed.name == "other" else "PRD-302")
        assert found.line is not None

    asyncio.run(check())
