"""The journal on a real database: what is durable when, and what happens to a run that is not ours or not storable."""

import asyncio

import pytest
from perdure.engine.failures import rebuild_run
from perdure.errors import EncodingFailed, OwnershipLost
from perdure.model.outcome import ErrorRecord, Failed, Parked, Released, Succeeded
from perdure.model.rows import OwnedFlags, StepWrite, WaitingFor
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs
from perdure.store.journal import FEW_STEPS
from perdure.telemetry import names
from perdure.worker.lease import lease_clock

from tests.support.journalbench import RUNNING, SUCCEEDED, Bench, recorded, steal, step
from tests.support.pgwait import eventually, holding, until_waiting

# -- what is durable when


async def test_a_start_is_durable_on_return_with_everything_before_it(here: Bench) -> None:
    (run,) = await here.claim("r")
    flags = await run.start(step(0, 1, RUNNING))
    assert (flags.cancel_mode, flags.suspended) == (None, False)
    assert await recorded(here.conn, "r") == [(0, 10, 1, None)]
    run.record(step(0, 2, SUCCEEDED, "1"))
    await run.start(step(1, 3, RUNNING))
    assert await recorded(here.conn, "r") == [(0, 30, 2, "1"), (1, 10, 3, None)]
    assert here.metrics.value(names.JOURNAL_FLUSH_ROWS) == 2


async def test_a_start_that_is_not_as_fresh_as_it_was_taken_for_is_written_all_the_same(here: Bench) -> None:
    run, *others = await here.claim(*(f"r{number}" for number in range(FEW_STEPS + 1)))
    await run.start(step(0, 1, RUNNING))

    fresh = [StepWrite(0, 2, "s0", RUNNING, "[]", fresh=True) for _ in range(FEW_STEPS + 1)]
    await asyncio.gather(*(each.start(write) for each, write in zip([run, *others], fresh, strict=True)))

    for each in (run, *others):
        assert await recorded(here.conn, each.run_id) == [(0, 10, 2, None)]
        assert here.heard[each.run_id].refused == here.heard[each.run_id].lost == 0
    assert here.metrics.value(names.JOURNAL_RETRIES, "contention") == FEW_STEPS + 1


async def test_an_outcome_without_a_successor_is_written_alone(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.start(step(0, 1, RUNNING))
    run.record(step(0, 2, SUCCEEDED, "1"))

    async def there() -> bool:
        return await recorded(here.conn, "r") == [(0, 30, 2, "1")]

    await eventually(there, "the finish is written")


async def test_a_flush_returns_when_everything_recorded_before_it_is_durable(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.flush()
    await run.start(step(0, 1, RUNNING))
    run.record(step(0, 2, SUCCEEDED, "1"))
    await run.flush()
    assert await recorded(here.conn, "r") == [(0, 30, 2, "1")]
    await steal(here.conn, "r")
    run.record(step(1, 3, RUNNING))
    with pytest.raises(OwnershipLost):
        await run.flush()


async def test_writes_of_many_runs_travel_in_one_statement(here: Bench) -> None:
    journals = await here.claim(*(f"r{number}" for number in range(50)))
    await asyncio.gather(*(run.start(step(0, 1, RUNNING)) for run in journals))
    assert here.metrics.value(names.JOURNAL_FLUSH_ROWS) <= 2
    assert await here.conn.fetchval("SELECT count(*) FROM perdure.workflow_steps") == 50


async def test_the_ending_takes_along_what_is_pending(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.start(step(0, 1, RUNNING))
    run.record(step(0, 2, SUCCEEDED, "1"))
    settled = await run.end(Succeeded("7"))
    assert settled.status is RunStatus.SUCCEEDED
    assert await recorded(here.conn, "r") == [(0, 30, 2, "1")]
    result = await runs.result(here.conn, "r")
    assert result is not None
    assert (result.status, result.output) == (RunStatus.SUCCEEDED, "7")
    assert here.heard["r"].committed[-1] is RunStatus.SUCCEEDED


async def test_nothing_is_written_after_the_ending(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.end(Released("enough"))
    run.record(step(0, 1, SUCCEEDED, "1"))
    with pytest.raises(OwnershipLost):
        await run.start(step(1, 2, RUNNING))
    assert not run.admitted()
    assert await recorded(here.conn, "r") == []


async def test_statements_hold_a_bounded_number_of_rows(here: Bench) -> None:
    (run,) = await here.claim("r")
    writes = [run.start(step(index, index + 1, RUNNING)) for index in range(100)]
    others = await here.claim(*(f"o{number}" for number in range(400)))
    await asyncio.gather(*writes, *(other.start(step(0, 1, RUNNING)) for other in others))
    largest = here.metrics.registry.get_sample_value("perdure_journal_flush_rows_bucket", {"le": "300.0"})
    assert largest == here.metrics.value(names.JOURNAL_FLUSH_ROWS)


# -- flags


async def test_a_cancel_comes_back_with_the_next_write(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.start(step(0, 1, RUNNING))
    await runs.cancel(here.conn, "r", CancelMode.GRACEFUL, "no")
    flags = await run.start(step(1, 2, RUNNING))
    assert flags.cancel_mode is CancelMode.GRACEFUL
    assert [row[0] for row in await recorded(here.conn, "r")] == [0], "a start is refused once a cancel is set"
    refused = await run.end(Succeeded("1"))
    assert refused.status is None
    assert refused.flags.cancel_mode is CancelMode.GRACEFUL


async def test_a_cancel_comes_back_with_an_outcome_written_alone(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.start(step(0, 1, RUNNING))
    await runs.cancel(here.conn, "r", CancelMode.IMMEDIATE, "no")
    run.record(step(0, 2, SUCCEEDED, "1"))

    async def told() -> bool:
        return bool(here.heard["r"].flags)

    await eventually(told, "the cancel is heard")
    assert here.heard["r"].flags[0].cancel_mode is CancelMode.IMMEDIATE


async def test_a_park_that_missed_a_wake_becomes_claimable(here: Bench) -> None:
    (run,) = await here.claim("r")
    await here.conn.execute("UPDATE perdure.workflows SET wake_seq = wake_seq + 1 WHERE id = 'r'")
    settled = await run.end(Parked(WaitingFor("RetryBackoff"), 60.0))
    assert settled.status is RunStatus.ENQUEUED


# -- lost


async def test_ownership_lost_is_told_once_and_writes_nothing(here: Bench) -> None:
    (run,) = await here.claim("r")
    await run.start(step(0, 1, RUNNING))
    await steal(here.conn, "r")
    run.record(step(0, 2, SUCCEEDED, "1"))
    with pytest.raises(OwnershipLost):
        await run.start(step(1, 3, RUNNING))
    with pytest.raises(OwnershipLost):
        await run.start(step(2, 4, RUNNING))
    with pytest.raises(OwnershipLost):
        await run.end(Succeeded("1"))
    assert here.heard["r"].lost == 1
    assert await recorded(here.conn, "r") == [(0, 10, 1, None)]


async def test_an_old_body_writes_nothing_while_the_run_is_claimed_anew_here(here: Bench) -> None:
    (old,) = await here.claim("r")
    await steal(here.conn, "r")
    (again,) = await here.claim_again()
    new = here.open(again)
    starts = [old.start(step(0, 9, RUNNING)), new.start(step(0, 1, RUNNING))]
    outcomes = await asyncio.gather(*starts, return_exceptions=True)
    assert isinstance(outcomes[0], OwnershipLost)
    assert isinstance(outcomes[1], OwnedFlags)
    fence = await here.conn.fetchval("SELECT fence FROM perdure.workflow_steps WHERE workflow_id = 'r'")
    assert fence == again.fence


async def test_an_abandoned_journal_lets_everybody_go(here: Bench) -> None:
    (run,) = await here.claim("r")
    async with holding(here.conn_url, ("SELECT 1 FROM perdure.workflows WHERE id = 'r' FOR UPDATE",)):
        waiting = asyncio.ensure_future(run.start(step(0, 1, RUNNING)))
        await until_waiting(here.conn)
        here.journal.abandon()
        with pytest.raises(OwnershipLost):
            await waiting
    with pytest.raises(OwnershipLost):
        await run.start(step(1, 2, RUNNING))
    assert here.heard["r"].lost == 0, "whoever abandons has already said it"


async def test_without_a_lease_nothing_is_sent(here: Bench) -> None:
    (run,) = await here.claim("r")
    here.lease.extend(lease_clock() - 61.0)
    assert not run.admitted()
    waiting = asyncio.ensure_future(run.start(step(0, 1, RUNNING)))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    assert await recorded(here.conn, "r") == []
    here.lease.extend(lease_clock())
    await waiting
    assert run.admitted()


# -- data that cannot be stored


async def test_a_row_that_cannot_be_stored_fails_its_own_run_only(here: Bench) -> None:
    journals = await here.claim("a", "bad", "c", "d", "e")
    for run in journals:
        await run.start(step(0, 1, RUNNING))
    for run in journals:
        run.record(step(0, 2, SUCCEEDED, "\x00" if run.run_id == "bad" else "1"))
    good = [run for run in journals if run.run_id != "bad"]
    bad = journals[1]
    await asyncio.gather(*(run.start(step(1, 3, RUNNING)) for run in good))
    with pytest.raises(EncodingFailed, match=r"step 0 \(s0\)"):
        await bad.start(step(1, 3, RUNNING))
    assert here.heard["bad"].refused == 1
    assert bad.refused is not None
    assert bad.refused.code == "PRD-401"
    settled = await bad.end(Failed(bad.refused))
    assert settled.status is RunStatus.FAILED
    assert [here.heard[run.run_id].refused for run in good] == [0, 0, 0, 0]
    assert await recorded(here.conn, "a") == [(0, 30, 2, "1"), (1, 10, 3, None)]


async def test_an_ending_that_cannot_be_stored_becomes_a_failure(here: Bench) -> None:
    run, other = await here.claim("bad", "good")
    endings = await asyncio.gather(run.end(Succeeded("\x00")), other.end(Succeeded("1")))
    assert [one.status for one in endings] == [RunStatus.FAILED, RunStatus.SUCCEEDED]
    result = await runs.result(here.conn, "bad")
    assert result is not None
    assert "the run's outcome" in ErrorRecord.from_json(result.error or "").message


async def test_whoever_waits_for_a_run_that_cannot_be_stored_sees_that_as_the_class_it_is(here: Bench) -> None:
    (run,) = await here.claim("bad")
    await run.end(Succeeded("\x00"))
    result = await runs.result(here.conn, "bad")
    assert result is not None
    with pytest.raises(EncodingFailed, match="the run's outcome"):
        raise rebuild_run(ErrorRecord.from_json(result.error or ""), "bad")


async def test_what_the_client_cannot_encode_fails_its_own_run_only(here: Bench) -> None:
    run, other = await here.claim("bad", "good")
    broken = StepWrite(index=0, seq=1, name="s", status=RUNNING, input="\ud800")
    outcomes = await asyncio.gather(run.start(broken), other.start(step(0, 1, RUNNING)), return_exceptions=True)
    assert isinstance(outcomes[0], EncodingFailed)
    assert isinstance(outcomes[1], OwnedFlags)
