"""Calls that do something with other runs: an index when built, done and recorded once, plain in a step."""

import json
from dataclasses import replace
from typing import Any

import asyncpg
import perdure
import pytest
from perdure.errors import (
    ConflictingWorkflow,
    InsideStep,
    InvalidArgument,
    NonExistentWorkflow,
    NotInWorkflow,
    SelectMisused,
    WorkflowConflict,
    WorkflowNotRewindable,
)
from perdure.model.calls import RunOutcome
from perdure.model.listing import OneRun, StepQuery
from perdure.model.management import (
    Cancel,
    Cut,
    Delay,
    Delete,
    Fork,
    Resume,
    Rewind,
    SetAttributes,
)
from perdure.model.outcome import Cancelled, Failed, Mismatch
from perdure.model.rows import ClaimedRun
from perdure.model.states import CancelMode, RunStatus, StepStatus

from tests.support.details import DETAILS, STEP
from tests.support.engine import Engine, failed, output_of, statuses, until

CALLS: dict[str, Any] = {
    "cancel": (lambda: perdure.cancel("r", "why", cascade=False), Cancel("why", cascade=False)),
    "resume": (lambda: perdure.resume("r"), Resume()),
    "rewind": (lambda: perdure.rewind("r", 3), Rewind(Cut.step(3))),
    "fork": (lambda: perdure.fork("r", "charge", id="f"), Fork("f", Cut.named("charge"))),
    "delete": (lambda: perdure.delete("r"), Delete()),
    "set_delay": (lambda: perdure.set_delay("r", 5), Delay(5.0)),
    "set_attributes": (
        lambda: perdure.set_attributes("r", {"a": 1, "b": None}),
        SetAttributes('{"a": 1}', ("b",)),
    ),
}


@pytest.mark.parametrize("name", CALLS)
async def test_each_takes_an_index_when_it_is_built_and_is_done_and_recorded_once(engine: Engine, name: str) -> None:
    make, verb = CALLS[name]

    @engine.workflow
    async def body() -> list[int]:
        first, second = make(), make()
        assert (first.name, first.step_id, second.step_id) == (f"perdure.{name}", 0, 1)
        await second
        await first
        return [1]

    run = engine.run_of(body)
    assert output_of(await engine.execute(run)) == [1]
    assert run.world.managed == [("r", verb), ("r", verb)]
    assert statuses(run) == [StepStatus.SUCCEEDED] * 2
    assert output_of(await engine.execute(run)) == [1]
    assert len(run.world.managed) == 2


async def test_a_cancel_gives_the_status_and_resume_fork_and_rewind_give_handles(engine: Engine) -> None:
    @engine.workflow
    async def body() -> list[Any]:
        status = await perdure.cancel("a")
        assert isinstance(status, perdure.RunStatus)
        handles = [await perdure.resume("a"), await perdure.fork("a"), await perdure.rewind("a", Cut.LAST_FAILURE)]
        assert {type(each) for each in handles} == {perdure.RunHandle}
        return [handle.id for handle in handles]

    run = engine.run_of(body)
    # The id of a fork is the run's and the index of the call, as that of a child.
    assert output_of(await engine.execute(run)) == ["a", "run-1-2", "a"]
    assert output_of(await engine.execute(run)) == ["a", "run-1-2", "a"]


async def test_the_result_of_a_resumed_run_can_be_waited_for_with_its_type(engine: Engine) -> None:
    @engine.workflow
    async def other() -> int:
        return 1

    @engine.workflow
    async def body() -> int:
        return await (await perdure.resume("other", other)).result()

    run = engine.run_of(body)
    run.world.outcomes["other"] = RunOutcome(RunStatus.SUCCEEDED, output="7")
    assert output_of(await engine.execute(run)) == 7


async def test_a_handle_does_with_its_run_what_the_free_calls_do(engine: Engine) -> None:
    @engine.workflow
    async def body() -> None:
        handle = perdure.handle("r")
        await handle.cancel("why", cascade=False)
        await handle.resume()
        await handle.rewind(3)
        await handle.fork("charge", id="f")
        await handle.delete()
        await handle.set_delay(5)
        await handle.set_attributes({"a": 1, "b": None})
        await handle.send("hello", "topic", key="k")
        assert await handle.details() == DETAILS
        assert await handle.steps() == (STEP,)

    run = engine.run_of(body)
    run.world.answers = {OneRun("r"): DETAILS, StepQuery("r"): (STEP,)}
    run.world.runs["r"] = _existing("r")
    output_of(await engine.execute(run))
    assert run.world.inboxes == {("r", "topic"): ['"hello"']}
    assert run.world.managed == [("r", verb) for _, verb in CALLS.values()]
    assert output_of(await engine.execute(run)) is None


@pytest.mark.parametrize(
    "error",
    [NonExistentWorkflow("gone"), WorkflowNotRewindable("no"), ConflictingWorkflow("taken"), InvalidArgument("x")],
)
async def test_a_refusal_is_an_outcome_that_is_raised_again(engine: Engine, error: Exception) -> None:
    @engine.workflow
    async def body() -> str:
        try:
            await perdure.rewind("r", 0)
        except type(error) as caught:
            return str(caught)
        return "nothing"

    run = engine.run_of(body)
    run.world.refuses = error
    said = output_of(await engine.execute(run))
    assert said == str(error)
    assert statuses(run) == [StepStatus.FAILED]
    run.world.refuses = None
    assert output_of(await engine.execute(run)) == said
    assert run.world.managed == []


async def test_what_was_done_before_a_crash_is_not_done_again(engine: Engine) -> None:
    """The transaction has recorded the step itself: there is no moment between the two."""

    @engine.workflow
    async def body() -> str:
        return (await perdure.fork("r")).id

    run = engine.run_of(body)
    await engine.execute(run, crash=True)
    assert statuses(run) == [StepStatus.SUCCEEDED]
    assert output_of(await engine.execute(run)) == "run-1-0"
    assert len(run.world.managed) == 1


async def test_a_cancelled_run_does_nothing_with_others_any_more(engine: Engine) -> None:
    @engine.workflow
    async def body() -> None:
        run.cancel_mode = CancelMode.GRACEFUL
        await perdure.cancel("r")

    run = engine.run_of(body)
    assert isinstance(await engine.execute(run), Cancelled)
    assert (run.world.managed, run.rows) == ([], {})


async def test_a_database_that_does_not_allow_it_has_the_run_wait(engine: Engine) -> None:
    @engine.workflow
    async def body() -> None:
        await perdure.delete("r")

    run = engine.run_of(body)
    run.world.refuses = asyncpg.InsufficientPrivilegeError("no right")
    assert isinstance(await engine.execute(run), Mismatch)


async def test_other_arguments_at_a_replay_are_a_mismatch(engine: Engine) -> None:
    reasons = iter(["one", "other"])

    @engine.workflow
    async def body() -> None:
        await perdure.cancel("r", next(reasons))

    run = engine.run_of(body)
    await engine.execute(run)
    ending: Any = await engine.execute(run)
    assert ending.error.code == "PRD-302"


@pytest.mark.parametrize("name", CALLS)
async def test_in_a_step_each_is_part_of_the_step_and_done_again_with_it(engine: Engine, name: str) -> None:
    make, verb = CALLS[name]
    tries = []

    @engine.step(max_attempts=2, interval=0)
    async def step() -> int:
        call = make()
        assert call.step_id is None
        await call
        tries.append(1)
        if len(tries) < 2:
            raise ValueError("once more")
        return len(tries)

    @engine.workflow
    async def body() -> int:
        return await step()

    run = engine.run_of(body)
    assert output_of(await engine.execute(run)) == 2
    assert run.world.managed == [("r", verb)] * 2
    assert statuses(run) == [StepStatus.SUCCEEDED]


async def test_in_a_sync_step_they_are_run_in_its_thread(engine: Engine) -> None:
    @engine.step
    def step() -> int:
        return int(perdure.run_sync(perdure.cancel, "r"))

    @engine.workflow
    async def body() -> int:
        return await step()

    run = engine.run_of(body)
    assert output_of(await engine.execute(run)) == RunStatus.ENQUEUED
    assert run.world.managed == [("r", Cancel("a workflow cancelled it"))]


@pytest.mark.parametrize("error", [WorkflowConflict("run run-1 was taken over"), NonExistentWorkflow("deleted")])
async def test_in_a_step_of_a_run_that_was_taken_over_or_deleted_nothing_is_done(
    engine: Engine, error: Exception
) -> None:
    seen: list[Exception] = []

    @engine.step
    async def step() -> None:
        try:
            await perdure.cancel("r")
        except Exception as caught:
            seen.append(caught)
            raise

    @engine.workflow
    async def body() -> None:
        await step()

    run = engine.run_of(body)
    run.world.refuses = error
    assert isinstance(await engine.execute(run), Failed)
    assert [type(each) for each in seen] == [type(error)]


@pytest.mark.parametrize("make", [make for make, _ in CALLS.values()], ids=CALLS)
def test_outside_a_run_each_says_where_it_belongs(make: Any) -> None:
    with pytest.raises(
        NotInWorkflow, match=r"outside the body of a run; from a program of its own use perdure\.Client"
    ):
        make()


async def test_those_that_start_a_run_are_no_branches_of_a_select(engine: Engine) -> None:
    @engine.workflow
    async def body() -> int:
        found = 0
        for make in (lambda: perdure.resume("r"), lambda: perdure.fork("r"), lambda: perdure.rewind("r", 0)):
            start = make()
            assert isinstance(start, perdure.PendingStart)
            with pytest.raises((SelectMisused, InvalidArgument)):
                await perdure.select(start, perdure.sleep(1))
            found += 1
        return found

    assert output_of(await engine.execute(engine.run_of(body))) == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: perdure.rewind("r", -1),
        lambda: perdure.rewind("r", 1.5),  # type: ignore[call-overload]
        lambda: perdure.fork("r", ""),
        lambda: perdure.fork("r", id=""),
        lambda: perdure.fork("r", children={"a": ""}),
        lambda: perdure.set_delay("r", 0),
        lambda: perdure.set_attributes("r", {"a": object()}),
        lambda: perdure.cancel(""),
        lambda: perdure.cancel("r", mode="Gently"),  # type: ignore[arg-type]
        lambda: perdure.cancel("r", "no\0reason"),
        lambda: perdure.cancel("r", 5),  # type: ignore[arg-type]
        lambda: perdure.resume(None),  # type: ignore[call-overload]
        lambda: perdure.list_workflows(limit=0),
        lambda: perdure.list_workflows(after="x"),
        lambda: perdure.list_steps("r", after=-2),
    ],
)
async def test_what_cannot_be_is_refused_when_it_is_built_and_takes_no_index(engine: Engine, make: Any) -> None:
    @engine.workflow
    async def body() -> int:
        with pytest.raises(InvalidArgument):
            make()
        call = perdure.sleep(0)
        await call
        assert call.step_id is not None
        return call.step_id

    assert output_of(await engine.execute(engine.run_of(body))) == 0


async def test_in_a_transaction_nothing_is_done_with_other_runs(engine: Engine) -> None:
    from perdure.engine.transaction import _current

    @engine.step
    async def step() -> None:
        token = _current.set(object())  # type: ignore[arg-type]
        try:
            await perdure.cancel("r")
        finally:
            _current.reset(token)

    @engine.workflow
    async def body() -> None:
        await step()

    assert failed(await engine.execute(engine.run_of(body))).error.code == InsideStep.code


def test_after_a_rewind_a_run_gives_away_other_ids_and_keys() -> None:
    run = ClaimedRun("r", 1, "ns", None, "w", "[]", None, 0, 1, 0, 0, None, False, None)
    assert [replace(run, rewinds=count).stem for count in (0, 1, 12)] == ["r", "r~1", "r~12"]


async def test_a_rewound_run_starts_children_and_sends_messages_anew(engine: Engine) -> None:
    keys = []

    @engine.workflow
    async def child() -> None: ...

    @engine.step
    async def step() -> None:
        info = perdure.current().step
        assert info is not None
        keys.append(info.idempotency_key)

    @engine.workflow
    async def body() -> str:
        await step()
        await perdure.send("inbox", "hello")
        return (await child.start()).id

    run = engine.run_of(body, rewinds=1)
    run.world.runs["inbox"] = run.world.runs.setdefault("inbox", _existing("inbox"))
    assert output_of(await engine.execute(run)) == "run-1~1-2"
    assert keys == ["run-1~1/0"]
    assert {key for _, key in run.world.keys} == {"call:run-1~1/1"}


def _existing(run_id: str) -> Any:
    from perdure.store.clients import ExistingRun

    return ExistingRun(run_id, "default", "w", "[]")


async def test_a_call_in_progress_ends_before_the_run_does(engine: Engine) -> None:
    @engine.workflow
    async def body() -> None:
        await perdure.cancel("r")

    run = engine.run_of(body)
    claim = engine.claim(run)
    await until(lambda: claim.done)
    assert json.loads(run.rows[0].output or "") == RunStatus.ENQUEUED
