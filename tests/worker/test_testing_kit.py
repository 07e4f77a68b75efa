"""The testing kit: time that is skipped, steps that fail, workers that crash, replays at every call, histories."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import perdure
import pytest
from perdure.errors import InvalidArgument, UnexpectedStep
from perdure.model.states import RunStatus, StepStatus
from perdure.testing import Environment

from tests.support.pgwait import eventually
from tests.worker import kitflows as flows

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    flows.done.clear()
    flows.drawn.clear()


@pytest.fixture
async def env(db: str) -> AsyncIterator[Environment]:
    async with Environment(db, registry=flows.registry) as made:
        yield made


# -- time


async def test_a_month_passes_in_a_moment(env: Environment) -> None:
    before = time.monotonic()
    first, last = await flows.month.run()
    print(f"a month took {time.monotonic() - before:.2f} s")
    assert flows.done == [f"day {day + 1}" for day in range(30)]
    assert timedelta(0) <= last - first - 30 * DAY < timedelta(minutes=1)
    assert 30 * DAY - timedelta(minutes=1) < env.skipped <= 30 * DAY


async def test_skipping_wakes_whatever_is_due_on_the_way_and_nothing_else(env: Environment) -> None:
    handle = await flows.month.start()
    await env.skip(3 * DAY + DAY / 2)
    assert flows.done == ["day 1", "day 2", "day 3"]
    assert await handle.status() is RunStatus.WAITING
    await env.skip(DAY.total_seconds())
    assert flows.done[3:] == ["day 4"]
    assert env.skipped == 4.5 * DAY


async def test_every_instant_that_counts_is_moved(env: Environment, conn: Any) -> None:
    """Of a new table somebody has to say here whether its instants are times of runs."""
    from perdure.testing.statements import shifts

    stay = {
        "leaders.held_until",
        "migrations.applied_at",
        "streams.untold_since",
        "worker_versions.registered_at",
        "workers.beat_at",
        "workers.ended_at",
        "workers.lease_until",
        "workers.started_at",
        "workflows.status_due_at",
    }
    rows = await conn.fetch(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = 'perdure' AND data_type = 'timestamp with time zone'"
    )
    there = {f"{row['table_name']}.{row['column_name']}" for row in rows}
    moved = {
        f"{statement.split('UPDATE perdure.')[1].split()[0]}.{line.split(' = ')[0].split()[-1]}"
        for statement in shifts()
        for line in statement.splitlines()
        if "$1::interval" in line
    }
    assert moved | stay == there | stay
    assert not moved & stay


# -- failures


async def test_a_step_fails_at_the_attempt_that_was_named(env: Environment) -> None:
    env.fail(flows.stubborn, OSError("away"))
    env.fail("stubborn", TimeoutError, attempt=2)
    handle = await flows.persistent.start()
    assert await handle.result() == "tried"
    assert flows.done == ["tried"]
    assert env.skipped > timedelta(seconds=170), "a minute, then two"
    (await env.history(handle)).assert_step("kit.stubborn", attempts=2, output="tried")


async def test_a_step_that_fails_as_often_as_it_may_fails_its_run(env: Environment) -> None:
    env.fail(flows.stubborn, OSError("away"), times=3)
    handle = await flows.persistent.start()
    with pytest.raises(perdure.MaxStepRetriesExceeded) as caught:
        await handle.result()
    assert [str(each) for each in caught.value.errors] == ["away"] * 3
    assert flows.done == []


async def test_a_sync_step_and_one_run_alone_can_be_meant(env: Environment) -> None:
    env.fail(flows.sync_note, ValueError("no"), run_id="meant")
    spared = await flows.three.options(id="spared").start()
    meant = await flows.three.options(id="meant").start()
    assert await spared.result() == "one two three"
    with pytest.raises(ValueError, match="no"):
        await meant.result()


async def test_what_was_ordered_and_never_happened_fails_the_test(db: str) -> None:
    with pytest.raises(AssertionError, match=r"never happened: failure in nothing, attempt 1; crash done in kit\.note"):
        async with Environment(db, registry=flows.registry) as env:
            env.fail("nothing", ValueError)
            env.crash(flows.note, "done")


@pytest.mark.parametrize("bad", [{"attempt": 0}, {"times": 0}, {"attempt": True}, {"times": 1.5}])
async def test_an_order_that_makes_no_sense_is_refused(env: Environment, bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="is a whole number of at least 1"):
        env.fail(flows.note, ValueError, **bad)
    with pytest.raises(InvalidArgument, match="a step, or its name, is needed"):
        env.fail(7, ValueError)  # type: ignore[arg-type]
    for error in ("a text", KeyboardInterrupt, int, None):
        with pytest.raises(InvalidArgument, match="a step fails with an exception"):
            env.fail(flows.note, error)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nowhere"):
        env.crash(flows.note, "nowhere")  # type: ignore[arg-type]


# -- crashes


@pytest.mark.parametrize("at", ["before", "started", "done", "committed"])
@pytest.mark.parametrize("step", ["two", "three"], ids=["sync", "async"])
async def test_a_worker_crashes_at_a_step_and_another_goes_on(env: Environment, at: Any, step: str) -> None:
    env.crash("sync_note" if step == "two" else "stubborn", at)
    handle = await flows.sync_and_async.start()
    before = time.monotonic()
    assert await handle.result() == ["one", "two", "three"]
    assert time.monotonic() - before < env.patience, "nobody has waited for a lease"
    again = [step] if at == "done" else []
    assert sorted(flows.done) == sorted(["one", "two", "three", *again])
    assert (await handle.outside.details()).recoveries == 1


async def test_a_crash_is_no_attempt(env: Environment) -> None:
    env.crash(flows.stubborn, "done", times=2)
    handle = await flows.persistent.start()
    assert await handle.result() == "tried"
    assert flows.done == ["tried"] * 3
    (await env.history(handle)).assert_step(flows.stubborn, attempts=0)


@pytest.mark.parametrize(("at", "done"), [("before", 1), ("started", 1), ("done", 2), ("committed", 1)], ids=str)
async def test_a_crash_beside_a_transaction_leaves_both_or_neither(
    env: Environment, conn: Any, at: Any, done: int
) -> None:
    env.crash(flows.insert, at)
    assert await flows.writer.run("row") == "row"
    assert flows.done == ["row"] * done + ["after"]
    assert await conn.fetchval("SELECT count(*) FROM public.gates") == 1


@pytest.mark.parametrize("at", ["before", "started", "done", "committed"])
@pytest.mark.parametrize("call", ["send", "sleep"])
async def test_a_crash_at_a_durable_call_loses_and_doubles_nothing(env: Environment, call: str, at: Any) -> None:
    receiver = await flows.listener.start()
    env.crash(call, at)
    await flows.talker.run(receiver.id)
    assert flows.done == ["before", "after"]
    assert await receiver.result() == "hello"


@pytest.mark.parametrize("at", ["before", "started", "done", "committed"])
async def test_a_crash_in_the_middle_of_a_race_or_a_gather_changes_nothing_of_the_result(
    env: Environment, at: Any
) -> None:
    env.crash("kit.note", at, run_id="race")
    env.crash("kit.sync_note", at)
    handle = await flows.racer.options(id="race").start()
    assert await handle.result() == "early ('left', 'right')"
    assert set(flows.done) == {"early", "left", "right"}
    assert (await handle.outside.details()).recoveries >= 1


async def test_everything_that_the_worker_runs_goes_on_after_its_crash(env: Environment) -> None:
    others = [await flows.sleeper.start(1.0) for _ in range(5)]
    env.crash("kit.note", at="started", run_id="mine")
    assert await flows.three.options(id="mine").run() == "one two three"
    assert [await other.result() for other in others] == ["slept 1.0"] * 5


async def test_a_worker_crashes_where_the_test_says_so(env: Environment) -> None:
    handle = await flows.month.start()
    await env.skip(2 * DAY)
    before = env._worker.id if env._worker else None
    env.crash_now()

    async def another() -> bool:
        return env._worker is not None and env._worker.id != before

    await eventually(another)
    await env.skip(DAY)
    assert flows.done == ["day 1", "day 2", "day 3"]
    assert await handle.status() is RunStatus.WAITING


# -- replays


@pytest.fixture
async def replaying(db: str) -> AsyncIterator[Environment]:
    async with Environment(db, registry=flows.registry, always_replay=True) as made:
        yield made


async def test_every_call_is_replayed_and_no_step_runs_twice(replaying: Environment) -> None:
    handle = await flows.three.start()
    assert await handle.result() == "one two three"
    assert flows.done == ["one", "two", "three"]
    assert (await replaying._database.persist(claims_of, handle.id)) >= 4


async def claims_of(connection: Any, run_id: str) -> Any:
    """How often the owner of a run has changed to a worker."""
    return await connection.fetchval("SELECT (fence + 1) / 2 FROM perdure.workflows WHERE id = $1", run_id)


async def test_races_transactions_and_children_survive_a_replay_of_each_call(replaying: Environment) -> None:
    assert await flows.racer.run() == "early ('left', 'right')"
    assert await flows.writer.run("row") == "row"
    assert await flows.parent.run() == ["slept 1.0", "slept 2.0", "slept 3.0"]
    assert flows.done == ["early", "left", "right", "row", "after", "slept 1.0", "slept 2.0", "slept 3.0"]


async def test_a_failing_step_is_replayed_as_one(replaying: Environment) -> None:
    replaying.fail(flows.sync_note, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await flows.three.run()
    assert flows.done == ["one"]


@pytest.mark.parametrize("at", ["before", "started", "committed"])
async def test_what_is_undone_survives_crashes_and_replays(replaying: Environment, at: Any) -> None:
    replaying.fail(flows.sync_note, ValueError("no"))
    replaying.crash(flows.take_back, at)
    handle = await flows.saga.start()
    with pytest.raises(ValueError, match="no"):
        await handle.result()
    assert flows.done == ["one", "two", "not two", "not one"]
    (await replaying.history(handle)).assert_steps(["note", "note", "sync_note", "undo", "take_back", "take_back"])


async def test_what_a_replay_would_do_otherwise_fails_the_run(replaying: Environment) -> None:
    with pytest.raises(UnexpectedStep, match=r"kit\.sync_note"):
        await flows.careless.run()


async def test_without_replays_the_same_passes(env: Environment) -> None:
    assert await flows.careless.run() == "two"


# -- histories


async def test_a_history_has_the_calls_of_a_run_in_their_order(env: Environment) -> None:
    handle = await flows.talker.start((await flows.listener.start()).id)
    await handle.result()
    history = await env.history(handle)
    history.assert_steps([flows.note, "send", "perdure.sleep", "kit.note"])
    assert history.outputs == ["before", None, None, "after"]
    assert [call.input for call in history.of("note")] == [["before"], ["after"]]
    assert len(history) == 4
    assert history[2].status is StepStatus.SUCCEEDED
    assert [call.index for call in history[1:]] == [1, 2, 3]


async def test_histories_that_differ_show_how(env: Environment) -> None:
    handle = await flows.three.start()
    await handle.result()
    history = await env.history(handle.id)
    with pytest.raises(AssertionError) as caught:
        history.assert_steps(["note", "charge", "note"])
    assert str(caught.value).splitlines()[1:] == ["  note", "- charge", "+ kit.sync_note", "  note"]


async def test_a_call_that_is_not_as_expected_says_in_what(env: Environment) -> None:
    env.fail(flows.sync_note, ValueError("no"))
    handle = await flows.three.start()
    with pytest.raises(ValueError, match="no"):
        await handle.result()
    history = await env.history(handle)
    failed = history.assert_step("sync_note", status=StepStatus.FAILED, error=ValueError)
    assert failed.error is not None
    assert failed.error.message == "no"
    with pytest.raises(AssertionError, match=r"output: expected 'two', recorded None\n  error: expected 'KeyError'"):
        history.assert_step("sync_note", output="two", error="KeyError")
    with pytest.raises(AssertionError, match=r"has 0 calls of charge, not one; it has recorded\n  0: kit\.note succ"):
        history.assert_step("charge")


async def test_a_long_history_is_read_whole(env: Environment) -> None:
    handle = await flows.long.start()
    await handle.result()
    history = await env.history(handle)
    assert [call.index for call in history] == list(range(120))
    assert set(history.names) == {"perdure.now"}


async def test_a_history_is_read_with_the_codecs_that_have_written_it(db: str) -> None:
    async with Environment(db, registry=flows.registry, codecs=[flows.Backwards()]) as env:
        handle = await flows.three.start()
        assert await handle.result() == "one two three"
        [stored, *_] = await env.list_steps(handle.id)
        assert stored.output == '!backwards:"eno"'
        assert (await env.history(handle)).outputs == ["one", "two", "three"]


async def test_the_history_of_no_run_is_an_error(env: Environment) -> None:
    with pytest.raises(perdure.NonExistentWorkflow):
        await env.history("nobody")
    with pytest.raises(InvalidArgument, match="a run is given by its handle or id"):
        await env.history(7)


# -- without anything


async def test_bodies_and_steps_are_functions_that_can_be_called_as_they_are() -> None:
    assert await flows.three() == "one two three"
    assert flows.sync_note.definition.function("plain") == "plain"
    assert await asyncio.wait_for(flows.note("direct"), 1) == "direct"
