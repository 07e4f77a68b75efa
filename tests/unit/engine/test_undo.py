"""Undo: what is done when a run has failed for good or is cancelled, with what was promised of its steps."""

import asyncio

import perdure
import pytest
from perdure.engine.failures import rebuild_run
from perdure.errors import (
    CancelRequested,
    CompensationFailed,
    MaxStepRetriesExceeded,
    OwnershipLost,
    ReleaseRequested,
    UnknownStep,
    WorkflowCancelled,
)
from perdure.model.outcome import Cancelled, ErrorRecord, Failed, Mismatch, Parked, Released
from perdure.model.states import CancelMode, StepStatus, Undo

from tests.support.engine import Engine, failed, output_of, until
from tests.support.shop import Hold, Shop


@pytest.fixture
def shop(engine: Engine) -> Shop:
    return Shop(engine)


async def test_on_failure_the_last_that_succeeded_is_undone_first_and_the_run_fails_as_it_had(shop: Shop):
    ending = await shop.undone()
    assert shop.done == [("refund", 5, "no courier", "bank"), ("release", Hold(1, "shop"))]
    assert (failed(ending).error.type, failed(ending).error.message) == ("ValueError", "no courier")
    assert shop.run.statuses()[5:] == [("refund", StepStatus.SUCCEEDED), ("release", StepStatus.SUCCEEDED)]


async def test_what_undoes_is_given_the_result_first_and_then_what_was_said(shop: Shop):
    await shop.undone()
    assert [row.input for _, row in sorted(shop.run.rows.items())][5:] == [
        '[5,"no courier","bank"]',
        '[{"id":1,"of":"shop"}]',
    ]


async def test_that_it_will_be_undone_is_written_before_the_step_begins(shop: Shop):
    seen = []

    def look(write):
        seen.append((write.name, dict(shop.run.promises)))

    claim = shop.engine.claim(shop.run, before_start=look)
    await claim.ending()
    assert seen[0] == ("reserve", {0: ("release", "[null]")})
    assert seen[1][1][1] == ("refund", '[null,"no courier","bank"]')


async def test_a_step_without_undo_writes_nothing_beside_itself(engine: Engine):
    @engine.step
    async def plain() -> int:
        return 1

    @engine.workflow
    async def flow() -> int:
        return await plain()

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == 1
    assert (run.promises, run.undo) == ({}, None)


async def test_a_run_that_succeeds_undoes_nothing(engine: Engine):
    shop = Shop(engine)

    @engine.workflow
    async def flow() -> int:
        return (await shop.reserve(1).undo(shop.release)).id

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == 1
    assert run.undo is Undo.PROMISED
    assert shop.done == [("reserve", 1)]


async def test_steps_that_failed_or_never_ended_are_not_undone(engine: Engine):
    shop = Shop(engine)

    @engine.step
    async def declined(amount: int) -> int:
        raise ValueError("declined")

    @engine.workflow
    async def flow() -> None:
        shop.reserve(1).undo(shop.release).close()
        await declined(5).undo(shop.refund, "x")

    run = engine.run_of(flow)
    ending = await shop.undone(run)
    assert failed(ending).error.message == "declined"
    assert shop.done == []


async def test_a_replay_promises_nothing_again(shop: Shop):
    await shop.engine.execute(shop.run)
    shop.run.promises.clear()
    await shop.engine.execute(shop.run)
    assert shop.run.promises == {}


async def test_a_claim_that_undoes_does_not_run_the_body(engine: Engine):
    shop = Shop(engine)
    bodies = []

    @engine.workflow
    async def flow() -> None:
        bodies.append(1)
        await shop.reserve(1).undo(shop.release)
        await shop.refuse()

    await shop.undone(engine.run_of(flow))
    assert bodies == [1]
    assert shop.done == [("release", Hold(1, "shop"))]


async def test_killed_between_two_of_them_the_next_claim_goes_on_and_repeats_none(shop: Shop):
    run = shop.run
    run.failed(failed(await shop.engine.execute(run)).error)
    del shop.done[:]

    def die(write):
        if write.name == "release":
            raise OwnershipLost

    claim = shop.engine.claim(run, before_start=die)
    await claim.ending()
    claim.log.commit()
    assert [each[0] for each in shop.done] == ["refund"]
    assert failed(await shop.engine.execute(run)).error.message == "no courier"
    assert [each[0] for each in shop.done] == ["refund", "release"]


async def test_what_undoes_is_tried_again_as_its_registration_says(engine: Engine):
    shop = Shop(engine)
    tries = []

    @engine.step(max_attempts=3, interval=0.0)
    async def stubborn(amount: int) -> None:
        tries.append(amount)
        if len(tries) < 3:
            raise ConnectionError("later")

    @engine.workflow
    async def flow() -> None:
        await shop.charge(7).undo(stubborn)
        await shop.refuse()

    ending = await shop.undone(engine.run_of(flow))
    assert tries == [7, 7, 7]
    assert failed(ending).error.message == "no courier"


async def test_a_long_pause_between_its_attempts_gives_the_slot_back(engine: Engine):
    shop = Shop(engine)

    @engine.step(max_attempts=2, interval=3600)
    async def later(amount: int) -> None:
        raise ConnectionError("later")

    @engine.workflow
    async def flow() -> None:
        await shop.charge(7).undo(later)
        await shop.refuse()

    assert isinstance(await shop.undone(engine.run_of(flow)), Parked)


async def test_one_that_fails_keeps_no_other_from_being_tried_and_both_failures_are_told(engine: Engine):
    shop = Shop(engine)

    @engine.step(max_attempts=2, interval=0.0)
    async def broken(amount: int) -> None:
        raise KeyError("no account")

    @engine.workflow
    async def flow() -> None:
        await shop.reserve(1).undo(shop.release)
        await shop.charge(7).undo(broken)
        await shop.refuse()

    run = engine.run_of(flow)
    record = failed(await shop.undone(run)).error
    assert shop.done == [("release", Hold(1, "shop"))]
    assert record.code == "PRD-411"
    assert "1 of 2 steps could not be undone: step charge (1) by" in record.message
    error = rebuild_run(ErrorRecord.from_json(record.to_json()), run.id)
    assert isinstance(error, CompensationFailed)
    assert (type(error.error), str(error.error)) == (ValueError, "no courier")
    assert [type(each) for each in error.failures] == [MaxStepRetriesExceeded]


async def test_a_cancel_that_compensates_undoes_and_the_run_is_cancelled(shop: Shop):
    await shop.engine.execute(shop.run)
    del shop.done[:]
    shop.run.cancel_mode, shop.run.undo = CancelMode.COMPENSATE, Undo.REQUESTED
    assert await shop.engine.execute(shop.run) == Cancelled("it is enough")
    assert [each[0] for each in shop.done] == ["refund", "release"]


async def test_a_cancelled_run_that_cannot_be_undone_has_failed(engine: Engine):
    shop = Shop(engine)

    @engine.step
    async def broken(amount: int) -> None:
        raise KeyError("no account")

    @engine.workflow
    async def flow() -> None:
        await shop.charge(7).undo(broken)
        await shop.refuse()

    run = engine.run_of(flow)
    await engine.execute(run)
    run.cancel_mode, run.undo = CancelMode.COMPENSATE, Undo.REQUESTED
    error = rebuild_run(failed(await engine.execute(run)).error, run.id)
    assert isinstance(error, CompensationFailed)
    assert isinstance(error.error, WorkflowCancelled)
    assert str(error.failures[0]) == "'no account'"


async def test_a_cancel_with_nothing_to_undo_is_one_like_any_other(engine: Engine):
    shop = Shop(engine)

    @engine.workflow
    async def flow() -> None:
        shop.reserve(1).undo(shop.release).close()

    run = engine.run_of(flow)
    run.cancel_mode, run.undo = CancelMode.COMPENSATE, Undo.REQUESTED
    assert await engine.execute(run) == Cancelled("it is enough")


async def test_a_cancel_that_compensates_lets_the_step_in_progress_finish(engine: Engine):
    shop = Shop(engine)
    gate, ended = asyncio.Event(), []

    @engine.step
    async def slow() -> None:
        await gate.wait()
        ended.append(1)

    @engine.workflow
    async def flow() -> None:
        await shop.reserve(1).undo(shop.release)
        await slow()

    run = engine.run_of(flow)
    claim = engine.claim(run)
    await until(lambda: claim.execution.steps_in_progress == 1 and len(run.rows) == 2)
    claim.interrupt(CancelRequested("enough"))
    gate.set()
    assert isinstance(await claim.ending(), Cancelled)
    assert ended == [1]


async def test_what_is_begun_ends_before_a_worker_that_stops_gives_the_run_back(engine: Engine):
    shop = Shop(engine)
    gate = asyncio.Event()

    @engine.step
    async def slow(amount: int) -> None:
        await gate.wait()

    @engine.workflow
    async def flow() -> None:
        await shop.reserve(1).undo(shop.release)
        await shop.charge(7).undo(slow)
        await shop.refuse()

    run = engine.run_of(flow)
    run.failed(failed(await engine.execute(run)).error)
    claim = engine.claim(run)
    await until(lambda: claim.execution.steps_in_progress == 1)
    claim.interrupt(ReleaseRequested("the worker stops"))
    gate.set()
    assert isinstance(await claim.ending(), Released)
    claim.log.commit()
    del shop.done[:]
    await engine.execute(run)
    assert shop.done == [("release", Hold(1, "shop"))]


async def test_a_step_that_is_not_registered_any_more_keeps_the_run(engine: Engine, shop: Shop):
    run = shop.run
    run.failed(failed(await engine.execute(run)).error)
    del engine.registry.steps["refund"]
    ending = await engine.execute(run)
    assert isinstance(ending, Mismatch)
    assert ending.error.code == UnknownStep.code
    assert "step refund, which undoes step charge" in ending.error.message


async def test_a_result_that_does_not_fit_what_undoes_it_is_a_failure_of_that_one(engine: Engine):
    shop = Shop(engine)

    @engine.step
    async def wants_text(hold: int) -> None:
        """Never called."""

    @engine.workflow
    async def flow() -> None:
        await shop.charge(7).undo(shop.refund, "x")
        await shop.reserve(1).undo(wants_text)
        await shop.refuse()

    run = engine.run_of(flow)
    assert failed(await shop.undone(run)).error.code == "PRD-411"
    assert [each[0] for each in shop.done] == ["refund"]


async def test_in_a_gather_what_succeeded_beside_the_failure_is_undone(engine: Engine):
    shop = Shop(engine)

    @engine.workflow
    async def flow() -> None:
        await perdure.gather(shop.refuse(), shop.reserve(1).undo(shop.release), shop.charge(2).undo(shop.refund, "x"))

    await shop.undone(engine.run_of(flow))
    assert sorted(each[0] for each in shop.done) == ["refund", "release"]


async def test_the_winner_of_a_select_is_undone_and_a_loser_is_not(engine: Engine):
    shop = Shop(engine)

    @engine.step
    async def never() -> int:
        await asyncio.Event().wait()
        return 1

    @engine.workflow
    async def flow() -> None:
        await perdure.select(never().undo(shop.refund, "never"), shop.charge(2).undo(shop.refund, "won"))
        await shop.refuse()

    await shop.undone(engine.run_of(flow))
    assert shop.done == [("refund", 2, "won", "card")]


async def test_what_undoes_has_the_idempotency_key_of_its_own_place(engine: Engine):
    shop = Shop(engine)
    keys = []

    @engine.step
    async def keyed(amount: int) -> None:
        keys.append(perdure.current().step.idempotency_key)

    @engine.workflow
    async def flow() -> None:
        await shop.charge(7).undo(keyed)
        await shop.refuse()

    run = engine.run_of(flow)
    await shop.undone(run)
    assert keys == [f"{run.id}/3"]


async def test_a_failed_run_keeps_the_failure_of_its_own(shop: Shop):
    ending = await shop.undone()
    assert isinstance(ending, Failed)
    assert ending.error == shop.run.error
