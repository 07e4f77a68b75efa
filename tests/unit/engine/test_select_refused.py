"""`perdure.select`: what cannot be raced is refused where the race is built, and nothing is begun."""

import perdure
import pytest
from perdure.errors import (
    InvalidArgument,
    SelectMisused,
    StepBuiltElsewhere,
)

from tests.support.engine import Engine, failed, output_of
from tests.support.races import stepping


def bad_branches(engine: Engine):
    quick = stepping(engine, "quick")

    @engine.workflow
    async def child():
        pass

    async def coroutine():
        pass

    return {
        "none": perdure.select,
        "one": lambda: perdure.select(quick()),
        "one with a name": lambda: perdure.select(a=quick()),
        "named and not": lambda: perdure.select(quick(), b=quick()),
        "a coroutine function": lambda: perdure.select(quick(), coroutine),
        "a value": lambda: perdure.select(quick(), 1),
        "a start": lambda: perdure.select(quick(), child.start()),
        "a run": lambda: perdure.select(quick(), child.run()),
        "a resume": lambda: perdure.select(quick(), perdure.resume("other")),
        "a fork": lambda: perdure.select(quick(), perdure.fork("other")),
        "a rewind": lambda: perdure.select(quick(), perdure.rewind("other", 1)),
        "a debounce": lambda: perdure.select(quick(), perdure.debounce(child.prepare(), "k", 1)),
        "a join": lambda: perdure.select(quick(), perdure.join_workflows("other")),
        "a select": lambda: perdure.select(quick(), perdure.select(quick(), quick())),
        "the same call twice": lambda: perdure.select(*[quick()] * 2),
    }


@pytest.mark.parametrize("name", list(bad_branches(Engine(None))))  # type: ignore[arg-type]
async def test_what_cannot_be_raced_is_refused_with_an_error_of_its_own(engine: Engine, name):
    wrong = bad_branches(engine)[name]

    @engine.workflow
    async def flow():
        with pytest.raises(SelectMisused) as caught:
            wrong()
        return [caught.value.code, isinstance(caught.value, InvalidArgument)]

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == ["PRD-316", True]
    assert run.rows == {}


async def test_a_coroutine_is_refused_as_it_would_take_its_indexes_late(engine: Engine):
    quick = stepping(engine, "quick")

    async def late():
        return await quick()

    @engine.workflow
    async def flow():
        coroutine = late()
        with pytest.raises(SelectMisused, match="one durable call, not coroutine"):
            perdure.select(quick(), coroutine)
        coroutine.close()

    await engine.output(flow)


async def test_a_transaction_is_refused_as_the_race_would_decide_what_is_committed(engine: Engine):
    @perdure.transaction(registry=engine.registry, name="move")
    async def move(connection):
        pass

    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        with pytest.raises(SelectMisused, match="transaction move is no branch"):
            perdure.select(quick(), move())

    await engine.output(flow)


async def test_a_refused_select_leaves_its_calls_to_be_awaited(engine: Engine):
    quick = stepping(engine, "quick")

    @engine.workflow
    async def flow():
        call = quick()
        with pytest.raises(SelectMisused):
            perdure.select(call)
        return [await call, quick().step_id]

    assert await engine.output(flow) == ["quick", 1]


async def test_branches_that_were_built_elsewhere_are_refused_where_the_select_is_built(engine: Engine):
    quick = stepping(engine, "quick")
    foreign = quick()

    @engine.workflow
    async def flow():
        with pytest.raises(StepBuiltElsewhere, match="built outside a run"):
            perdure.select(quick(), foreign)

    await engine.output(flow)


async def test_a_branch_cannot_be_awaited_by_itself_any_more(engine: Engine):
    one, two = stepping(engine, "one"), stepping(engine, "two")

    @engine.workflow
    async def flow():
        call = one()
        await perdure.select(call, two())
        await call

    assert "awaited before" in failed(await engine.execute(engine.run_of(flow))).error.message


async def test_a_select_that_is_never_awaited_has_used_its_index_and_is_named_in_the_log(engine: Engine, caplog):
    one, two = stepping(engine, "one"), stepping(engine, "two")

    @engine.workflow
    async def flow():
        perdure.select(one(), two())
        return await one()

    run = engine.run_of(flow)
    output_of(await engine.execute(run))
    assert list(run.rows) == [3]
    assert "perdure.select (2)" in caplog.text
    assert "one (0)" not in caplog.text
