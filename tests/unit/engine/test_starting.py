"""Starts of children with options: what is refused, what is recorded of it, and what a replay says."""

import perdure
import pytest
from perdure.engine.calls.starting import token_of
from perdure.errors import ConflictingWorkflow, InvalidArgument, QueueDeduplicated, WorkflowIdInUse
from perdure.model.calls import Start
from perdure.model.outcome import Parked
from perdure.model.start import NO_TIMEOUT
from perdure.model.states import RunStatus, StepStatus
from perdure.store.clients import ExistingRun, Holder

from tests.support.engine import Engine, output_of


@pytest.fixture
def child(engine: Engine):
    @engine.workflow
    async def child(n: int) -> int:
        return n

    return child


def there(run_id: str = "mine", status: RunStatus = RunStatus.SUCCEEDED, text: str = "[0]") -> ExistingRun:
    return ExistingRun(run_id, "default", "child", text, status)


async def test_the_refusal_of_an_id_in_use_is_recorded_at_the_step_and_raised_at_a_replay(engine: Engine, child):
    seen = []

    @engine.workflow
    async def parent():
        try:
            await child.options(id="mine", reuse="reject").start(0)
        except WorkflowIdInUse as error:
            seen.append(error.run_id)
        await perdure.sleep(100)

    run = engine.run_of(parent)
    run.world.runs["mine"] = there()
    assert isinstance(await engine.execute(run), Parked)
    assert run.rows[0].status is StepStatus.FAILED
    run.world.runs.clear()
    assert isinstance(await engine.execute(run), Parked)
    assert seen == ["mine", "mine"]
    assert run.world.runs == {}


async def test_a_child_that_this_very_step_has_started_is_no_id_in_use(engine: Engine, child):
    """As after a rewind of the parent, which keeps the children."""

    @engine.workflow
    async def parent():
        return (await child.options(id="mine", reuse="reject").start(0)).id

    run = engine.run_of(parent)
    run.world.runs["mine"] = ExistingRun("mine", "default", "child", "[0]", parent_id="run-1", parent_step=0)
    assert output_of(await engine.execute(run)) == "mine"


@pytest.mark.parametrize("reuse", ["reject", "rerun-failed"])
async def test_a_reuse_policy_without_an_id_is_refused_and_takes_no_index(engine: Engine, child, reuse):
    @engine.workflow
    async def parent():
        with pytest.raises(InvalidArgument, match="needs an id"):
            child.options(reuse=reuse).start(0)
        call = child.start(0)
        await call
        return call.step_id

    assert output_of(await engine.execute(engine.run_of(parent))) == 0


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED])
async def test_a_child_that_has_failed_is_run_again_by_this_step_once(engine: Engine, child, status):
    @engine.workflow
    async def parent():
        return (await child.options(id="mine", reuse="rerun-failed").start(0)).id

    run = engine.run_of(parent)
    run.world.runs["mine"] = there(status=status)
    # The parent dies after the child was run again, and before that is recorded; and the child fails once more.
    assert output_of(await engine.execute(run, crash=True)) == "mine"
    assert run.world.reruns == [("mine", token_of("run-1", 0))]
    run.world.runs["mine"] = ExistingRun("mine", "default", "child", "[0]", RunStatus.FAILED, token_of("run-1", 0))
    assert output_of(await engine.execute(run)) == "mine"
    assert len(run.world.reruns) == 1
    assert run.rows[0].output == '"mine"'


@pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.SUCCEEDED, RunStatus.CANCELLED])
async def test_a_child_that_has_not_failed_is_given_as_it_is(engine: Engine, child, status):
    @engine.workflow
    async def parent():
        return (await child.options(id="mine", reuse="rerun-failed").start(0)).id

    run = engine.run_of(parent)
    run.world.runs["mine"] = there(status=status)
    assert output_of(await engine.execute(run)) == "mine"
    assert run.world.reruns == []


async def test_another_input_is_a_conflict_before_anything_is_run_again(engine: Engine, child):
    @engine.workflow
    async def parent():
        with pytest.raises(ConflictingWorkflow):
            await child.options(id="mine", reuse="rerun-failed").start(1)

    run = engine.run_of(parent)
    run.world.runs["mine"] = there(status=RunStatus.FAILED)
    output_of(await engine.execute(run))
    assert run.world.reruns == []


async def test_a_duplicate_is_refused_also_at_a_replay(engine: Engine, child):
    seen = []

    @engine.workflow
    async def parent():
        try:
            await child.options(deduplication_id="d").start(0)
        except QueueDeduplicated as error:
            seen.append(error.run_id)
        await perdure.sleep(100)

    run = engine.run_of(parent)
    run.world.holders["d"] = Holder("other", "child")
    assert isinstance(await engine.execute(run), Parked)
    run.world.holders.clear()
    assert isinstance(await engine.execute(run), Parked)
    assert seen == ["other", "other"]


async def test_the_run_that_holds_the_deduplication_id_is_given_instead_if_asked_for(engine: Engine, child):
    @engine.workflow
    async def parent():
        handle = await child.options(deduplication_id="d", on_duplicate="return-existing").start(0)
        await perdure.sleep(100)
        return handle.id

    run = engine.run_of(parent)
    run.world.holders["d"] = Holder("other", "child")
    assert isinstance(await engine.execute(run), Parked)
    run.world.holders.clear()
    run.elapsed = 100
    assert output_of(await engine.execute(run)) == "other"


async def test_a_holder_of_another_workflow_is_a_conflict(engine: Engine, child):
    @engine.workflow
    async def parent():
        with pytest.raises(ConflictingWorkflow, match="of refund, not child"):
            await child.options(deduplication_id="d", on_duplicate="return-existing").start(0)

    run = engine.run_of(parent)
    run.world.holders["d"] = Holder("other", "refund")
    output_of(await engine.execute(run))


async def test_only_what_is_said_is_recorded_of_the_options(engine: Engine, child):
    """A new option with a default, or a timeout that its workflow is given later, changes no recorded input."""

    @engine.workflow
    async def parent():
        await child.start(0)
        await child.options(timeout=NO_TIMEOUT, attributes={"a": 1}, reuse="return-existing").start(1)

    run = engine.run_of(parent)
    claim = engine.claim(run)
    await claim.ending()
    claim.log.commit()
    assert run.rows[0].input == '["child",[0],{}]'
    assert run.rows[1].input == ('["child",[1],{"timeout":"none","reuse":"return-existing","attributes":{"a":1}}]')
    child.definition.timeout = 5.0
    assert output_of(await engine.execute(run)) is None


async def test_the_timeout_of_the_workflow_is_that_of_a_child_that_says_none(engine: Engine):
    @perdure.workflow(name="quick", timeout=5, max_run_attempts=2, registry=engine.registry)
    async def quick() -> None: ...

    @engine.workflow
    async def parent():
        await quick.start()
        await quick.options(timeout=9).start()
        await quick.options(timeout=NO_TIMEOUT).start()

    claim = engine.claim(engine.run_of(parent))
    await claim.ending()
    starts = [call for call in claim.log.calls if isinstance(call, Start)]
    assert [call.options.timeout for call in starts] == [5.0, 9, NO_TIMEOUT]
    assert {call.max_run_attempts for call in starts} == {2}
