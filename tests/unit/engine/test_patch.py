"""`perdure.patch` and `deprecate_patch`: which way a run takes at a change of its body, and that it stays with it."""

import asyncio

import perdure
import pytest
from perdure.engine.execute import Execution
from perdure.errors import (
    InsideStep,
    InvalidArgument,
    NotInWorkflow,
    PatchNondeterminism,
    ReleaseRequested,
    SelectMisused,
)
from perdure.model.outcome import Failed, Mismatch, Parked
from perdure.model.rows import RecordedStep
from perdure.model.states import StepStatus

from tests.support.engine import Change, Engine, failed, output_of, until
from tests.support.memorylog import MemoryLog


@pytest.fixture
def note(engine: Engine):
    async def note(what: str) -> str:
        engine.bodies.append(what)
        return what

    return engine.step(note, name="note")


@pytest.fixture
def change(engine: Engine) -> Change:
    return Change(engine)


async def test_a_new_run_takes_the_new_way_and_records_that_it_did(change: Change, note):
    async def body():
        return [await perdure.patch("p"), await note("a")]

    assert output_of(await change.claim(body)) == [True, "a"]
    assert change.rows() == ["0 perdure.patch", "1 note"]
    marker = change.run.rows[0]
    assert (marker.input, marker.output, marker.status) == ('["p"]', "true", StepStatus.SUCCEEDED)


async def test_a_run_that_has_passed_the_place_takes_the_old_way_and_its_calls_keep_their_indexes(change: Change, note):
    async def before():
        await note("a")
        await perdure.sleep(100)
        return await note("b")

    async def after():
        old = not await perdure.patch("p")
        await note("a" if old else "other")
        await perdure.sleep(100)
        return [old, await note("b")]

    assert isinstance(await change.claim(before), Parked)
    change.run.elapsed = 100
    assert output_of(await change.claim(after)) == [True, "b"]
    assert change.engine.bodies == ["a", "b"]
    assert change.rows() == ["0 note", "1 perdure.sleep", "2 note"]


async def test_a_run_of_before_that_has_not_come_to_the_place_takes_the_new_way(change: Change, note):
    async def before():
        await note("a")
        await perdure.sleep(100)
        return "old"

    async def after():
        await note("a")
        await perdure.sleep(100)
        return "new" if await perdure.patch("p") else "old"

    await change.claim(before)
    change.run.elapsed = 100
    assert output_of(await change.claim(after)) == "new"
    assert change.rows() == ["0 note", "1 perdure.sleep", "2 perdure.patch"]


async def test_a_call_that_waits_at_the_place_counts_as_passed(change: Change):
    async def before():
        await perdure.sleep(100)

    async def after():
        way = await perdure.patch("p")
        await perdure.sleep(100)
        return way

    await change.claim(before)
    change.run.elapsed = 100
    assert output_of(await change.claim(after)) is False


async def test_a_replay_of_a_marked_run_is_true_again(change: Change, note):
    async def body():
        way = await perdure.patch("p")
        await note("a")
        await perdure.sleep(100)
        return way

    await change.claim(body)
    change.run.elapsed = 100
    assert output_of(await change.claim(body)) is True
    assert change.engine.bodies == ["a"]


async def test_a_marker_that_was_not_committed_before_a_crash_is_made_again(change: Change, note):
    async def body():
        return await perdure.patch("p")

    change.body = body
    await change.engine.execute(change.run, crash=True)
    assert change.run.rows == {}
    assert output_of(await change.claim(body)) is True


async def test_a_hole_that_a_dropped_call_left_counts_only_with_what_stands_behind_it(change: Change, note):
    async def before():
        note("dropped").close()
        await note("a")
        await perdure.sleep(100)

    async def after():
        if await perdure.patch("p"):
            return "new"
        note("dropped").close()
        await note("a")
        await perdure.sleep(100)
        return "old"

    await change.claim(before)
    assert change.rows() == ["1 note", "2 perdure.sleep"]
    change.run.elapsed = 100
    assert output_of(await change.claim(after)) == "old"


async def test_a_call_that_was_dropped_and_nothing_behind_it_is_no_reason_for_the_old_way(change: Change, note):
    async def before():
        await note("a")
        note("dropped").close()
        await asyncio.Event().wait()

    async def after():
        await note("a")
        return await perdure.patch("p")

    change.body = before
    claim = change.engine.claim(change.run)
    await until(lambda: claim.execution.next_index == 2)
    claim.interrupt(ReleaseRequested("the worker stops"))
    await claim.ending()
    claim.log.commit()
    assert output_of(await change.claim(after)) is True


async def test_a_change_before_a_marked_one_leaves_that_one_where_it_is(change: Change, note):
    async def before():
        second = await perdure.patch("second")
        await perdure.sleep(100)
        return second

    async def after():
        first = await perdure.patch("first")
        second = await perdure.patch("second")
        await perdure.sleep(100)
        return [first, second]

    await change.claim(before)
    change.run.elapsed = 100
    assert output_of(await change.claim(after)) == [False, True]
    assert change.rows() == ["0 perdure.patch", "1 perdure.sleep"]


async def test_each_turn_of_a_loop_is_a_place_of_its_own(change: Change, note):
    async def before():
        for turn in range(2):
            await note(str(turn))
        await perdure.sleep(100)

    async def after():
        ways = []
        for turn in range(4):
            ways.append(await perdure.patch("p"))
            await note(str(turn))
            if turn == 1:
                await perdure.sleep(100)
        return ways

    await change.claim(before)
    change.run.elapsed = 100
    assert output_of(await change.claim(after)) == [False, False, True, True]


async def test_the_pages_of_a_long_history_are_read_until_the_place_is_known(engine: Engine, note):
    @engine.workflow
    async def flow():
        ways = [await perdure.patch("p")]
        for what in "abc":
            await note(what)
        return [*ways, await perdure.patch("q")]

    run = engine.run_of(flow)
    for index, what in enumerate("abc"):
        done = StepStatus.SUCCEEDED
        run.rows[index] = RecordedStep(index, "note", done, f'["{what}"]', f'"{what}"', None, 0, None, None, None)
    claimed = run.claim()
    rows, claimed.steps = claimed.steps, ()
    asked: list[int] = []

    async def more(after: int):
        asked.append(after)
        return [row for row in rows if row.index > after][:2]

    log = MemoryLog(run)
    ending = await Execution(claimed, engine.registry, log, threads=engine.threads, more_history=more).run()
    assert output_of(ending) == [False, True]
    assert asked == [-1, 1, 2]


async def test_a_marker_that_no_patch_meets_any_more_is_a_mismatch(change: Change, note):
    async def before():
        await perdure.patch("p")
        await perdure.sleep(100)

    async def after():
        await perdure.sleep(100)

    await change.claim(before)
    ending = await change.claim(after)
    assert isinstance(ending, Mismatch)
    assert "perdure.patch" in ending.error.message


async def test_deprecated_it_reads_the_markers_that_are_there(change: Change, note):
    async def before():
        await perdure.patch("p")
        await perdure.sleep(100)

    async def after():
        answer = await perdure.deprecate_patch("p")
        await perdure.sleep(100)
        return answer

    await change.claim(before)
    change.run.elapsed = 100
    assert output_of(await change.claim(after)) is True
    assert change.rows() == ["0 perdure.patch", "1 perdure.sleep"]


async def test_deprecated_it_records_nothing_in_new_runs_and_takes_no_index(change: Change, note):
    async def body():
        call = perdure.deprecate_patch("p")
        answer = await call
        await note("a")
        await perdure.sleep(100)
        return [answer, call.step_id]

    await change.claim(body)
    assert change.rows() == ["0 note", "1 perdure.sleep"]
    change.run.elapsed = 100
    assert output_of(await change.claim(body)) == [True, None]


async def test_once_removed_runs_that_were_started_after_it_was_deprecated_go_on(change: Change):
    async def deprecated():
        await perdure.deprecate_patch("p")
        await perdure.sleep(100)

    async def removed():
        await perdure.sleep(100)
        return "ended"

    await change.claim(deprecated)
    change.run.elapsed = 100
    assert output_of(await change.claim(removed)) == "ended"


@pytest.mark.parametrize("call", [perdure.patch, perdure.deprecate_patch])
async def test_another_call_that_takes_its_position_is_refused(change: Change, note, call):
    async def body():
        pending = call("p")
        await note("a")
        await pending

    error = failed(await change.claim(body)).error
    assert error.code == PatchNondeterminism.code
    assert "built where the next call takes index 0" in error.message


async def test_a_call_that_is_built_while_the_history_is_read_is_told(engine: Engine, note):
    @engine.workflow
    async def flow():
        await asyncio.gather(perdure.patch("p"), later(), return_exceptions=False)

    async def later():
        await note("b")

    run = engine.run_of(flow)
    claimed = run.claim()

    async def more(after: int):
        await asyncio.sleep(0)
        return []

    ending = await Execution(claimed, engine.registry, MemoryLog(run), threads=engine.threads, more_history=more).run()
    assert isinstance(ending, Failed)
    assert ending.error.code == PatchNondeterminism.code


async def test_the_refusal_fails_the_run_and_says_so_to_a_body_that_asks(change: Change, note):
    async def body():
        pending = perdure.patch("p")
        await note("a")
        with pytest.raises(PatchNondeterminism):
            await pending
        return "seen"

    assert output_of(await change.claim(body)) == "seen"
    assert change.rows() == ["0 note"]


async def test_it_is_no_branch_of_a_select(change: Change):
    async def body():
        with pytest.raises(SelectMisused, match="awaited on its own"):
            perdure.select(perdure.patch("p"), perdure.sleep(1))

    await change.claim(body)


async def test_a_patch_that_is_never_awaited_takes_no_index(change: Change, note):
    async def body():
        perdure.patch("p")
        await note("a")

    await change.claim(body)
    assert change.rows() == ["0 note"]


async def test_its_index_is_known_once_it_has_taken_one(change: Change):
    async def body():
        call = perdure.patch("p")
        before = call.step_id
        await call
        return [before, call.step_id]

    assert output_of(await change.claim(body)) == [None, 0]


@pytest.mark.parametrize("call", [perdure.patch, perdure.deprecate_patch])
async def test_in_a_step_and_outside_of_a_run_it_is_refused(change: Change, engine: Engine, call):
    with pytest.raises(NotInWorkflow, match=rf"perdure\.{call.__name__} was called outside"):
        call("p")

    @engine.step
    async def inner() -> None:
        with pytest.raises(InsideStep, match=rf"perdure\.{call.__name__} was called in step .*inner"):
            call("p")

    async def body():
        await inner()
        return "ended"

    assert output_of(await change.claim(body)) == "ended"


@pytest.mark.parametrize("name", ["", None, "x" * 256, "a\nb", 3, "\x00"])
@pytest.mark.parametrize("call", [perdure.patch, perdure.deprecate_patch])
async def test_a_name_that_cannot_be_recorded_is_refused(call, name):
    with pytest.raises(InvalidArgument, match="patch"):
        call(name)


async def test_a_run_that_is_cancelled_meanwhile_records_no_marker(change: Change, note):
    async def body():
        try:
            await note("a")
            await asyncio.Event().wait()
        finally:
            await perdure.patch("p")

    change.body = body
    claim = change.engine.claim(change.run)
    await until(lambda: claim.execution.next_index == 1 and not claim.execution.steps_in_progress)
    claim.interrupt(ReleaseRequested("the worker stops"))
    await claim.ending()
    claim.log.commit()
    assert change.rows() == ["0 note"]
