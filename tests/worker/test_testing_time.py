"""Time in tests: what passes, in which order, how far, and what is said when none can."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import perdure
import pytest
from asyncpg import UndefinedTableError
from perdure.errors import InvalidArgument, NotLaunched, WorkflowCancelled
from perdure.model.states import RunStatus
from perdure.testing import Environment, TimeStands

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


async def test_skipping_until_idle_ends_what_only_waits_for_time(env: Environment) -> None:
    sleeping, listening = await flows.parent.start(), await flows.listener.start()
    assert 3 * DAY - timedelta(minutes=1) < await env.skip_until_idle() <= 3 * DAY
    assert await sleeping.status() is RunStatus.SUCCEEDED
    assert await listening.status() is RunStatus.WAITING


async def test_runs_wake_in_the_order_of_their_times(env: Environment) -> None:
    for days in (3.0, 1.0, 2.0):
        await flows.sleeper.start(days)
    await env.skip(5 * DAY)
    assert flows.done == ["slept 1.0", "slept 2.0", "slept 3.0"]


async def test_no_time_passes_while_nobody_waits_for_a_result(env: Environment) -> None:
    handle = await flows.sleeper.start(1.0)
    await env.settle()
    assert (await handle.outside.details()).status is RunStatus.WAITING
    assert env.skipped == timedelta()


async def test_no_time_passes_by_itself_where_a_test_does_not_want_it(db: str) -> None:
    async with Environment(db, registry=flows.registry, auto_skip=False) as env:
        handle = await flows.sleeper.start(1.0)
        with pytest.raises(perdure.WaitTimeout):
            await handle.outside.result(timeout=0.3)
        await env.skip(DAY)
        assert await handle.result() == "slept 1.0"


async def test_a_deadline_passes_as_any_time(env: Environment) -> None:
    handle = await flows.limited.start()
    await env.skip(timedelta(minutes=59))
    assert await handle.status() is RunStatus.WAITING
    await env.skip(timedelta(minutes=2))
    assert await handle.status() is RunStatus.CANCELLED
    with pytest.raises(WorkflowCancelled, match="deadline"):
        await handle.result()


async def test_a_receive_gives_up_when_its_time_has_passed(env: Environment) -> None:
    handle = await flows.listener.start(3600.0)
    await env.skip(timedelta(minutes=59))
    await env.send(handle.id, "in time")
    assert await handle.result() == "in time"
    assert await flows.listener.run(3600.0) is None


async def test_a_wait_for_an_event_or_a_stream_has_time_pass_up_to_it_and_no_further(env: Environment) -> None:
    handle = await flows.publisher.start()
    assert await env.get_event(handle.id, "progress") == "half"
    assert [await anext(env.read_stream(handle.id, "lines"))] == ["one"]
    await env.settle()
    assert DAY - timedelta(minutes=1) < env.skipped <= DAY
    assert await handle.status() is RunStatus.WAITING


async def test_a_run_that_time_ends_is_waited_for_no_longer_than_to_its_end(env: Environment) -> None:
    """Its end comes by a sweep, of which nobody tells the client."""
    limited, other = await flows.limited.start(), await flows.month.start()
    with pytest.raises(WorkflowCancelled):
        await limited.result()
    assert env.skipped <= timedelta(hours=1)
    assert await other.status() is RunStatus.WAITING


async def test_a_wait_beside_a_step_is_skipped_when_that_has_ended(env: Environment) -> None:
    assert await flows.beside.run() == ("left", None, "right")
    assert env.skipped > DAY - timedelta(minutes=1)
    assert sorted(flows.done) == ["left", "right"]


async def test_a_delayed_start_and_a_run_that_is_tried_again_wait_for_skipped_time(env: Environment) -> None:
    handle = await flows.broken.options(delay=DAY).start()
    await env.settle()
    assert flows.done == []
    with pytest.raises(ValueError, match="broken"):
        await handle.result()
    assert flows.done == ["tried"], "the second attempt replays the step"
    assert env.skipped > DAY


async def test_the_time_of_workflows_and_steps_is_the_skipped_one(env: Environment) -> None:
    started = datetime.now(UTC)
    in_body, in_step = await flows.clocks.run()
    for instant in (in_body, in_step, env.now()):
        assert timedelta(0) <= instant - started - 10 * DAY < timedelta(minutes=1)


async def test_schedules_tick_at_their_own_instants_in_skipped_time(env: Environment) -> None:
    await env.schedules.apply([perdure.Schedule("daily", "30 9 * * *", flows.tick.prepare())])
    start = env.now()
    await env.skip(3 * DAY)
    first = start.replace(hour=9, minute=30, second=0, microsecond=0)
    first += DAY * (first <= start)
    assert flows.done == [(first + day * DAY).isoformat() for day in range(3)]


async def test_a_schedule_that_comes_after_a_skip_does_not_tick_for_the_time_before(env: Environment) -> None:
    await env.skip(10 * DAY)
    await env.schedules.apply([perdure.Schedule("hourly", "0 * * * *", flows.tick.prepare())])
    await env.settle()
    assert flows.done == []
    await env.skip(timedelta(hours=2))
    assert len(flows.done) == 2
    assert all(datetime.fromisoformat(each) > env.now() - timedelta(hours=3) for each in flows.done)


async def test_a_rate_lets_runs_begin_as_skipped_time_passes(env: Environment) -> None:
    await env.queues.apply("default", rate=perdure.RateLimit(1, timedelta(hours=1)))
    handles = [await flows.three.start() for _ in range(3)]
    await env.skip(timedelta(minutes=30))
    assert flows.done == ["one", "two", "three"]
    await env.skip(timedelta(hours=2))
    assert [await handle.status() for handle in handles] == [RunStatus.SUCCEEDED] * 3


async def test_time_that_cannot_pass_says_who_is_at_work(db: str) -> None:
    async with Environment(db, registry=flows.registry, patience=0.3) as env:
        handle = await flows.stuck.start()
        with pytest.raises(TimeStands, match=rf"still is something to do: {handle.id} \(kit\.stuck\)"):
            await env.skip(DAY)
        await handle.outside.cancel(mode=perdure.CancelMode.IMMEDIATE)
        await env.settle()


async def test_waiting_for_what_no_time_brings_fails_and_says_what_it_waits_for(db: str) -> None:
    async with Environment(db, registry=flows.registry, patience=0.3):
        handle = await flows.listener.start()
        with pytest.raises(TimeStands, match=r"kit\.listener\): it waits for a message"):
            await handle.result()


async def test_waiting_for_an_event_or_a_stream_that_never_comes_fails_and_does_not_hang(db: str) -> None:
    async with Environment(db, registry=flows.registry, patience=0.3) as env:
        handle = await flows.listener.start()
        with pytest.raises(TimeStands, match="it waits for a message"):
            await env.get_event(handle.id, "never")
        with pytest.raises(TimeStands, match="it waits for a message"):
            [value async for value in env.read_stream(handle.id, "never")]


async def test_a_run_of_a_queue_that_nobody_serves_is_told_by_that_queue(db: str) -> None:
    async with Environment(db, registry=flows.registry, patience=0.3) as env:
        with pytest.raises(TimeStands, match=r"kit\.listener\): its queue mails is none of those that are served"):
            await (await env.start(flows.listener.options(queue="mails"))).result()


async def test_schedules_that_tick_for_ever_do_not_keep_a_test_waiting(db: str) -> None:
    async with Environment(db, registry=flows.registry, patience=0.3) as env:
        await env.schedules.apply([perdure.Schedule("daily", "0 0 * * *", flows.tick.prepare())])
        handle = await flows.listener.start()
        with pytest.raises(TimeStands, match=r"kit\.listener\): it waits for a message"):
            await handle.result()
    assert flows.done, "it has ticked meanwhile"


async def test_two_who_have_time_pass_do_not_skip_it_twice(env: Environment) -> None:
    handle = await flows.month.start()
    await asyncio.gather(env.skip(2 * DAY), handle.outside.wait(), env.skip(3 * DAY))
    assert 30 * DAY - timedelta(minutes=1) < env.skipped <= 30 * DAY


async def test_what_goes_wrong_with_the_time_is_told_to_who_waits(db: str, conn: Any) -> None:
    env = await Environment(db, registry=flows.registry).launch()
    handle = await flows.sleeper.start(1.0)
    await env.settle()
    await conn.execute("ALTER TABLE perdure.queues RENAME TO gone")
    with pytest.raises(UndefinedTableError):
        await handle.result()
    await conn.execute("ALTER TABLE perdure.gone RENAME TO queues")
    with pytest.raises(UndefinedTableError):
        await env.shutdown()


async def test_more_time_than_is_allowed_is_not_skipped(env: Environment) -> None:
    await flows.sleeper.start(20.0)
    with pytest.raises(TimeStands, match="still wait for a time after 10 days"):
        await env.skip_until_idle(10 * DAY)


async def test_time_does_not_go_back(env: Environment) -> None:
    with pytest.raises(InvalidArgument, match="time does not go back"):
        await env.skip(-1)
    for bad in (float("nan"), float("inf"), "3 d"):
        with pytest.raises(InvalidArgument, match="a timedelta or seconds are skipped"):
            await env.skip(bad)  # type: ignore[arg-type]


async def test_outside_of_its_life_an_environment_has_no_time(db: str) -> None:
    env = Environment(db, registry=flows.registry)
    with pytest.raises(NotLaunched, match="is not launched yet"):
        await env.skip(1)
    await env.shutdown()
