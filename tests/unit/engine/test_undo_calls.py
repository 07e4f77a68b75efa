"""Undo: what may be said of a step's call, where it is refused, and how it becomes durable."""

import asyncpg
import perdure
import pytest
from perdure.engine.registry import Registry
from perdure.errors import InsideStep, InvalidArgument
from perdure.model.outcome import Cancelled, Mismatch
from perdure.model.states import CancelMode, Undo

from tests.support.engine import Engine, failed
from tests.support.shop import Hold, Shop


@pytest.fixture
def shop(engine: Engine) -> Shop:
    return Shop(engine)


async def test_outside_a_run_a_call_with_undo_is_a_plain_call(shop: Shop):
    assert await shop.reserve(3).undo(shop.release) == Hold(3, "shop")
    assert shop.done == [("reserve", 3)]


async def test_a_failing_workflow_called_directly_undoes_nothing(shop: Shop):
    async def order() -> None:
        await shop.reserve(1).undo(shop.release)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await order()
    assert shop.done == [("reserve", 1)]


@pytest.mark.parametrize("what", [print, 5, None, "release"])
async def test_only_a_registered_step_can_undo(shop: Shop, what: object):
    with pytest.raises(InvalidArgument, match="undone by a registered step"):
        shop.reserve(1).undo(what)


async def test_arguments_that_do_not_fit_are_refused_at_the_call(shop: Shop):
    with pytest.raises(TypeError):
        shop.charge(1).undo(shop.refund)
    with pytest.raises(TypeError):
        shop.reserve(1).undo(shop.release, "too many")


async def test_a_step_that_takes_no_result_cannot_undo(engine: Engine, shop: Shop):
    @engine.step
    async def bare(*, why: str = "") -> None:
        """Never called."""

    with pytest.raises(InvalidArgument, match="its first argument would be"):
        shop.reserve(1).undo(bare)


async def said_in_a_run(engine: Engine, say) -> str:
    shop = Shop(engine)

    @engine.workflow
    async def flow() -> None:
        await say(shop)

    return failed(await engine.execute(engine.run_of(flow))).error


async def test_options_of_a_call_are_none_of_what_undoes(engine: Engine):
    error = await said_in_a_run(engine, lambda shop: shop.reserve(1).undo(shop.release.options(max_attempts=9)))
    assert error.code == InvalidArgument.code
    assert "options of its registration" in error.message


async def test_a_step_of_another_registry_cannot_undo_here(engine: Engine):
    @perdure.step(name="elsewhere", registry=Registry())
    async def elsewhere(hold: Hold) -> None:
        """Never called."""

    error = await said_in_a_run(engine, lambda shop: shop.reserve(1).undo(elsewhere))
    assert (error.code, "is not registered" in error.message) == (InvalidArgument.code, True)


async def test_a_call_is_undone_by_one_step(engine: Engine):
    error = await said_in_a_run(engine, lambda shop: shop.reserve(1).undo(shop.release).undo(shop.release))
    assert (error.code, "already" in error.message) == (InvalidArgument.code, True)


async def test_undo_is_said_before_the_call_is_awaited(engine: Engine):
    async def late(shop: Shop) -> None:
        call = shop.reserve(1)
        await call
        call.undo(shop.release)

    error = await said_in_a_run(engine, late)
    assert "was awaited before" in error.message


async def test_a_part_of_a_step_is_not_undone_by_itself(engine: Engine):
    shop = Shop(engine)

    @engine.step
    async def outer() -> None:
        await shop.reserve(1).undo(shop.release)

    @engine.workflow
    async def flow() -> None:
        await outer()

    error = failed(await engine.execute(engine.run_of(flow))).error
    assert error.code == InsideStep.code


async def test_a_cancel_comes_before_a_promise_and_the_step_does_not_begin(shop: Shop):
    run = shop.run

    def cancel(write):
        run.cancel_mode = CancelMode.GRACEFUL

    claim = shop.engine.claim(run, before_start=cancel)
    assert isinstance(await claim.ending(), Cancelled)
    assert run.undo is Undo.PROMISED
    assert [each[0] for each in shop.done] == []


async def test_a_promise_that_cannot_be_written_has_the_run_wait(shop: Shop):
    claim = shop.engine.claim(shop.run)

    async def refuse(*_: object) -> None:
        raise asyncpg.UndefinedTableError("no such table")

    claim.log.promise = refuse
    assert isinstance(await claim.ending(), Mismatch)
    assert shop.done == []


async def test_a_step_that_is_written_where_it_is_called_can_be_undone_too(engine: Engine) -> None:
    shop = Shop(engine)

    async def weigh() -> int:
        return 7

    @engine.workflow
    async def flow() -> None:
        await (
            perdure.run_step("weigh", weigh)
            .undo(shop.refund, "too heavy")
            .map_error(lambda error: KeyError(str(error)))
        )
        await shop.refuse()

    await shop.undone(engine.run_of(flow))
    assert shop.done == [("refund", 7, "too heavy", "card")]
