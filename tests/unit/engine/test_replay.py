"""Replay: what is recorded is returned and never run again, and the code is compared with it."""

import asyncio
import itertools
from dataclasses import replace

import pytest
from perdure import current
from perdure.engine.execute import Execution
from perdure.errors import OwnershipLost
from perdure.model.outcome import Lost, Mismatch, Succeeded
from perdure.model.rows import RecordedStep
from perdure.model.states import StepStatus

from tests.support.engine import Engine, failed, output_of, started, statuses, until
from tests.support.memorylog import MemoryLog, MemoryRun


def crash_before(index: int):
    """A start that finds the run lost, as when the process dies before the step of this index."""

    def before_start(write):
        if write.index == index:
            raise OwnershipLost("killed")

    return before_start


async def test_replay_returns_recorded_results_and_never_runs_the_body_again(engine: Engine):
    @engine.step
    async def double(n):
        engine.bodies.append(n)
        return n * 2

    @engine.workflow
    async def flow():
        return [await double(1), await double(2), await double(3)]

    run = engine.run_of(flow)
    assert await engine.execute(run, before_start=crash_before(2)) == Lost()
    assert statuses(run) == [StepStatus.SUCCEEDED, StepStatus.SUCCEEDED]
    assert output_of(await engine.execute(run)) == [2, 4, 6]
    assert engine.bodies == [1, 2, 3]


async def test_a_result_that_was_not_committed_when_the_process_died_is_run_again(engine: Engine):
    @engine.step
    async def note():
        engine.bodies.append("note")

    @engine.workflow
    async def flow():
        await note()

    run = engine.run_of(flow)
    await engine.execute(run, crash=True)
    assert statuses(run) == [StepStatus.RUNNING]
    assert isinstance(await engine.execute(run), Succeeded)
    assert engine.bodies == ["note", "note"]


async def test_a_recorded_error_is_an_outcome_that_is_raised_again(engine: Engine):
    @engine.step
    async def fails():
        engine.bodies.append("fails")
        raise ValueError("no")

    @engine.step
    async def last(): ...

    @engine.workflow
    async def flow():
        try:
            await fails()
        except ValueError as error:
            seen = str(error)
        await last()
        return seen

    run = engine.run_of(flow)
    assert await engine.execute(run, before_start=crash_before(1)) == Lost()
    assert output_of(await engine.execute(run)) == "no"
    assert engine.bodies == ["fails"]


async def test_a_caught_step_error_stays_caught_on_replay_with_the_same_fallback(engine: Engine):
    failing = True

    @engine.step
    async def first_choice():
        if failing:
            raise LookupError("sold out")
        return "first"

    @engine.step
    async def second_choice():
        return "second"

    @engine.step
    async def last(): ...

    @engine.workflow
    async def flow():
        try:
            taken = await first_choice()
        except LookupError:
            taken = await second_choice()
        await last()
        return taken

    run = engine.run_of(flow)
    assert await engine.execute(run, before_start=crash_before(2)) == Lost()
    failing = False
    assert output_of(await engine.execute(run)) == "second"


async def test_a_step_cut_off_by_a_crash_runs_again_with_its_attempts_and_the_same_idempotency_key(engine: Engine):
    @engine.step(max_attempts=3, interval=0)
    async def charge():
        engine.bodies.append(current().step)
        if len(engine.bodies) == 1:
            raise OSError("down")

    @engine.workflow
    async def flow():
        await charge()

    run = engine.run_of(flow)
    await engine.execute(run, crash=True)
    assert run.rows[0].attempts == 1
    assert run.rows[0].status is StepStatus.RUNNING
    claim = engine.claim(run)
    assert isinstance(await claim.ending(), Succeeded)
    assert started(claim.log.writes) == [(0, 1)]
    assert [(info.attempt, info.idempotency_key) for info in engine.bodies] == [
        (1, "run-1/0"),
        (2, "run-1/0"),
        (2, "run-1/0"),
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
async def test_the_index_is_taken_when_built_so_gather_in_any_order_of_ending_is_deterministic(engine: Engine, order):
    gates = [asyncio.Event() for _ in range(3)]

    @engine.step
    async def wait_for(n):
        await gates[n].wait()
        return n

    @engine.workflow
    async def flow():
        return await asyncio.gather(*[wait_for(n) for n in range(3)])

    run = engine.run_of(flow)
    claim = engine.claim(run)
    for ended, n in enumerate(order):
        await until(lambda left=3 - ended: claim.execution.steps_in_progress == left)
        gates[n].set()
    assert output_of(await claim.ending()) == [0, 1, 2]
    claim.log.commit()
    assert [(index, row.input) for index, row in sorted(run.rows.items())] == [(0, "[0]"), (1, "[1]"), (2, "[2]")]


async def test_calls_awaited_in_another_order_than_built_keep_the_index_of_their_building(engine: Engine):
    @engine.step
    async def name(text):
        return text

    @engine.workflow
    async def flow():
        first, second = name("a"), name("b")
        assert (first.step_id, second.step_id) == (0, 1)
        return [await second, await first]

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == ["b", "a"]
    assert [run.rows[0].input, run.rows[1].input] == ['["a"]', '["b"]']


async def test_a_call_that_is_never_awaited_has_used_its_index_and_is_named_in_the_log(engine: Engine, caplog):
    @engine.step
    async def name(text):
        return text

    @engine.workflow
    async def flow():
        name("dropped")
        return await name("kept")

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == "kept"
    assert list(run.rows) == [1]
    assert "never awaited: " in caplog.text


async def test_a_thousand_steps_in_gather(engine: Engine):
    @engine.step
    async def square(n):
        await asyncio.sleep(0)
        return n * n

    @engine.workflow
    async def flow(count):
        return sum(await asyncio.gather(*[square(n) for n in range(count)]))

    run = engine.run_of(flow, 1000)
    assert output_of(await engine.execute(run)) == sum(n * n for n in range(1000))
    assert statuses(run) == [StepStatus.SUCCEEDED] * 1000
    assert output_of(await engine.execute(run)) == sum(n * n for n in range(1000))


async def test_the_history_beyond_the_first_page_is_read_on_demand(engine: Engine):
    @engine.step
    async def square(n):
        engine.bodies.append(n)
        return n * n

    @engine.workflow
    async def flow(count):
        return [await square(n) for n in range(count)]

    run = engine.run_of(flow, 7)
    await engine.execute(run)
    everything = [row for _, row in sorted(run.rows.items())]
    asked = []

    async def more(after):
        asked.append(after)
        return [row for row in everything if row.index > after][:2]

    claimed = run.claim()
    first_page = replace(claimed, steps=claimed.steps[:3])
    execution = Execution(first_page, engine.registry, MemoryLog(run), threads=engine.threads, more_history=more)
    assert output_of(await execution.run()) == [n * n for n in range(7)]
    assert asked == [2, 4]
    assert engine.bodies == list(range(7))


STATES = {
    "finished": StepStatus.SUCCEEDED,
    "failed": StepStatus.FAILED,
    "running": StepStatus.RUNNING,
    "retrying": StepStatus.RETRYING,
}


@pytest.fixture(params=STATES)
def recorded(request) -> MemoryRun:
    status = STATES[request.param]
    row = RecordedStep(
        index=0,
        name="charge",
        status=status,
        input="[100]",
        output='"paid"' if status is StepStatus.SUCCEEDED else None,
        error='{"type": "ValueError", "message": "declined"}' if status is StepStatus.FAILED else None,
        attempts=1 if status in (StepStatus.FAILED, StepStatus.RETRYING) else 0,
        attempt_errors=None,
        wake_at=None,
        wake_in=3600.0 if status is StepStatus.RETRYING else None,
    )
    return MemoryRun("flow", "[]", rows={0: row})


async def test_another_step_name_than_recorded_stops_the_body_whatever_the_recorded_state(engine: Engine, recorded):
    @engine.step(name="refund")
    async def refund(cents):
        engine.bodies.append("refund")

    @engine.workflow
    async def flow():
        try:
            await refund(100)
        except Exception:
            engine.bodies.append("caught")
        engine.bodies.append("went on")

    ending = await engine.execute(recorded)
    assert isinstance(ending, Mismatch)
    assert ending.error.code == "PRD-301"
    assert "charge" in ending.error.message
    assert "refund" in ending.error.message
    assert engine.bodies == []


async def test_another_input_than_recorded_stops_the_body_whatever_the_recorded_state(engine: Engine, recorded):
    @engine.step(name="charge")
    async def charge(cents):
        engine.bodies.append("charge")

    @engine.workflow
    async def flow():
        try:
            await charge(99)
        except Exception:
            engine.bodies.append("caught")
        engine.bodies.append("went on")

    ending = await engine.execute(recorded)
    assert isinstance(ending, Mismatch)
    assert ending.error.code == "PRD-302"
    assert "[100]" in ending.error.message
    assert "[99]" in ending.error.message
    assert engine.bodies == []


async def test_long_inputs_are_shortened_in_the_mismatch(engine: Engine, recorded):
    @engine.step(name="charge")
    async def charge(text): ...

    @engine.workflow
    async def flow():
        await charge("x" * 100_000)

    ending = await engine.execute(recorded)
    assert isinstance(ending, Mismatch)
    assert len(ending.error.message) < 1000


async def test_a_recorded_result_that_the_annotation_no_longer_fits_is_a_mismatch(engine: Engine):
    run = MemoryRun("flow", "[]")

    @engine.step(name="count")
    async def count() -> str:
        return "seven"

    @engine.workflow
    async def flow():
        return await count()

    await engine.execute(run)
    newer = Engine(engine.threads)

    @newer.step(name="count")
    async def count_now() -> int:
        return 7

    async def body():
        return await count_now()

    body.__name__ = "flow"
    newer.workflow(body)
    ending = await newer.execute(run)
    assert isinstance(ending, Mismatch)
    assert ending.error.code == "PRD-402"
    assert "count" in ending.error.message


async def test_an_execution_runs_its_body_once(engine: Engine):
    @engine.workflow
    async def flow(): ...

    claim = engine.claim(engine.run_of(flow))
    await claim.ending()
    with pytest.raises(RuntimeError, match="second time"):
        await claim.execution.run()


async def test_a_failing_body_is_a_failed_run_that_names_the_step(engine: Engine):
    @engine.step(name="charge")
    async def charge():
        raise ValueError("declined")

    @engine.workflow
    async def flow():
        try:
            await charge()
        except ValueError as error:
            raise RuntimeError("order failed") from error

    error = failed(await engine.execute(engine.run_of(flow))).error
    assert (error.type, error.message, error.step) == ("RuntimeError", "order failed", "charge")
