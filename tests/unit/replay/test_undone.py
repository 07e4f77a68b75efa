"""The history of a run whose steps were undone: the body is replayed, and what undid them is none of its doing."""

from perdure.model.states import RunStatus

from tests.support.engine import Engine, failed
from tests.support.histories import history_of, replayed
from tests.support.shop import Shop


async def test_what_has_undone_the_steps_is_no_difference(engine: Engine) -> None:
    shop = Shop(engine)
    history = history_of(shop.run, await shop.undone())
    assert [step.name for step in history.steps][4:] == ["perdure.undo", "refund", "release"]
    report = await replayed(history, engine, strict=True)
    assert (report.ok, report.replayed, report.steps) == (True, 4, 4)


async def test_a_run_that_was_cancelled_and_undone_is_replayed_up_to_there(engine: Engine) -> None:
    shop = Shop(engine)
    failed(await engine.execute(shop.run))
    del shop.run.rows[3]
    shop.run.cancelled()
    history = history_of(shop.run, await engine.execute(shop.run))
    assert history.status is RunStatus.CANCELLED
    assert (await replayed(history, engine)).ok
