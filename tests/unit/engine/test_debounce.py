"""`perdure.debounce` in a body: recorded once, done before it is recorded, awaited on its own."""

import asyncio
from datetime import timedelta

import perdure
import pytest
from perdure.errors import EncodingFailed, InsideStep, InvalidArgument, NotInWorkflow, PatchNondeterminism
from perdure.model.outcome import Failed
from perdure.model.states import StepStatus

from tests.support.engine import Engine, output_of, statuses


@pytest.fixture
def child(engine: Engine):
    @engine.workflow
    async def child(n: int) -> int:
        return n

    return child


async def test_it_is_done_and_recorded_with_the_run_that_it_stands_for(engine: Engine, child):
    @engine.workflow
    async def flow():
        first = await perdure.debounce(child.prepare(1), "k", 5, cap=timedelta(minutes=1))
        second = await perdure.debounce(child.options(queue="q").prepare(2), "k", 5)
        return [first.id, second.id]

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == ["run-1-0", "run-1-0"]
    assert statuses(run) == [StepStatus.SUCCEEDED] * 2
    assert (run.rows[0].name, run.rows[0].output) == ("perdure.debounce", '"run-1-0"')
    assert run.rows[0].input == '["child",[1],"k",5.0,60.0,{}]'
    assert run.rows[1].input == '["child",[2],"k",5.0,null,{"queue":"q"}]'
    assert [(each.call, each.key, each.delay, each.cap) for each in run.world.debounced] == [
        ("run-1/0", "k", 5.0, 60.0),
        ("run-1/1", "k", 5.0, None),
    ]


async def test_a_replay_gets_the_recorded_run_and_postpones_nothing(engine: Engine, child):
    @engine.workflow
    async def flow():
        handle = await perdure.debounce(child.prepare(1), "k", 5)
        await perdure.sleep(100)
        return handle.id

    run = engine.run_of(flow)
    await engine.execute(run)
    await engine.execute(run)
    assert len(run.world.debounced) == 1


async def test_what_was_done_and_not_recorded_is_the_same_call_again(engine: Engine, child):
    @engine.workflow
    async def flow():
        return (await perdure.debounce(child.prepare(1), "k", 5)).id

    run = engine.run_of(flow)
    await engine.execute(run, crash=True)
    assert run.rows == {}
    assert output_of(await engine.execute(run)) == "run-1-0"
    assert {each.call for each in run.world.debounced} == {"run-1/0"}


async def test_what_the_run_has_recorded_is_durable_before_others_see_what_follows(engine: Engine, child):
    @engine.step
    async def before() -> int:
        return 1

    @engine.workflow
    async def flow():
        await before()
        await perdure.debounce(child.prepare(1), "k", 5)

    run = engine.run_of(flow)
    run.world.before_debounce = lambda: seen.append(run.rows[0].status)
    seen: list[StepStatus] = []
    await engine.execute(run)
    assert seen == [StepStatus.SUCCEEDED]


async def test_after_a_rewind_it_is_another_call(engine: Engine, child):
    @engine.workflow
    async def flow():
        return (await perdure.debounce(child.prepare(1), "k", 5)).id

    run = engine.run_of(flow)
    await engine.execute(run)
    run.rows.clear()
    run.rewinds = 1
    await engine.execute(run)
    assert [(each.call, each.run.id) for each in run.world.debounced] == [
        ("run-1/0", "run-1-0"),
        ("run-1~1/0", "run-1~1-0"),
    ]


async def test_a_claim_that_has_lost_its_run_postpones_nothing(engine: Engine, child):
    @engine.workflow
    async def flow():
        await perdure.debounce(child.prepare(1), "k", 5)

    run = engine.run_of(flow)
    claim = engine.claim(run)
    run.fence += 1
    await claim.ending()
    assert run.world.debounced == []


async def test_it_takes_its_index_when_it_is_awaited(engine: Engine, child):
    @engine.workflow
    async def flow():
        call = perdure.debounce(child.prepare(1), "k", 5)
        assert call.step_id is None
        await call
        assert call.step_id == 0
        await perdure.sleep(0)

    run = engine.run_of(flow)
    output_of(await engine.execute(run))
    assert [row.name for row in run.rows.values()] == ["perdure.debounce", "perdure.sleep"]


async def test_a_call_that_is_never_awaited_takes_no_index(engine: Engine, child):
    @engine.workflow
    async def flow():
        perdure.debounce(child.prepare(1), "k", 5)
        await perdure.sleep(0)

    run = engine.run_of(flow)
    output_of(await engine.execute(run))
    assert [row.name for row in run.rows.values()] == ["perdure.sleep"]


async def test_another_call_that_takes_its_position_is_refused(engine: Engine, child):
    @engine.workflow
    async def flow():
        call = perdure.debounce(child.prepare(1), "k", 5)
        await perdure.sleep(0)
        await call

    run = engine.run_of(flow)
    ending = await engine.execute(run)
    assert isinstance(ending, Failed)
    assert ending.error.code == PatchNondeterminism.code
    assert "built where the next call takes index 0" in ending.error.message
    assert run.world.debounced == []


async def test_beside_another_call_in_gather_it_is_refused(engine: Engine, child):
    @engine.workflow
    async def flow():
        await asyncio.gather(perdure.debounce(child.prepare(1), "k", 5), perdure.sleep(0))

    run = engine.run_of(flow)
    ending = await engine.execute(run)
    assert isinstance(ending, Failed)
    assert ending.error.code == PatchNondeterminism.code


async def test_in_a_step_and_outside_of_a_run_it_is_refused(engine: Engine, child):
    with pytest.raises(NotInWorkflow, match=r"perdure\.debounce"):
        perdure.debounce(child.prepare(1), "k", 5)

    @engine.step
    async def inner() -> None:
        with pytest.raises(InsideStep, match=r"perdure\.debounce"):
            perdure.debounce(child.prepare(1), "k", 5)

    @engine.workflow
    async def flow():
        await inner()

    await engine.output(flow)


@pytest.mark.parametrize(
    ("key", "delay", "cap", "sentence"),
    [
        ("", 5, None, "key must not be empty"),
        (None, 5, None, "has a key"),
        ("x" * 256, 5, None, "at most 255"),
        ("k", 0, None, "delay must be longer than zero"),
        ("k", -1, None, "delay must be longer than zero"),
        ("k", "5", None, "delay is a number"),
        ("k", 5, 0, "cap must be longer than zero"),
        ("k", 5, 4, "cap .* at least as long as delay"),
    ],
)
async def test_what_cannot_be_debounced_is_refused_with_a_sentence(child, key, delay, cap, sentence):
    with pytest.raises(InvalidArgument, match=sentence):
        perdure.debounce(child.prepare(1), key, delay, cap)


@pytest.mark.parametrize(
    "options", [{"id": "x"}, {"delay": 1}, {"deduplication_id": "x"}, {"id": "x", "reuse": "reject"}]
)
async def test_options_that_say_which_run_it_is_are_refused(child, options):
    with pytest.raises(InvalidArgument, match="cannot have the option"):
        perdure.debounce(child.options(**options).prepare(1), "k", 5)


async def test_only_a_prepared_start_can_be_debounced(child):
    with pytest.raises(InvalidArgument, match=r"workflow\.prepare"):
        perdure.debounce(child, "k", 5)


async def test_an_input_that_cannot_be_recorded_is_refused(child):
    with pytest.raises(EncodingFailed):
        perdure.debounce(child.prepare(object()), "k", 5)
