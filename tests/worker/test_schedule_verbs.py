"""What a program says of schedules: sets and their owners, triggers, backfills, and that no run says any of it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import perdure
import pytest
from perdure.api import step, workflow
from perdure.errors import ConflictingSchedule, InsideWorkflow, InvalidArgument, NonExistentSchedule
from perdure.model.states import RunStatus
from perdure.store import runs
from perdure.store import schedules as store
from perdure.store.firing import fire_due
from perdure.worker.link import Connection

from tests.support.workerproc import working
from tests.worker.scheduleflows import EVERY_MINUTE, due, fired, registry, report, run_ids, schedule


@pytest.fixture
async def client(db: str) -> AsyncIterator[perdure.Client]:
    async with perdure.Client(db, "ns") as client:
        yield client


# -- what is said


async def test_create_makes_it_once_and_refuses_another_of_the_name(conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(schedule())
    await client.schedules.create(schedule())
    with pytest.raises(ConflictingSchedule, match="schedule s cannot"):
        await client.schedules.create(schedule(overlap="skip"))
    assert (await client.schedules.get("s")).overlap == perdure.Overlap.ALLOW


async def test_apply_makes_changes_and_deletes_the_set_of_its_owner(client: perdure.Client) -> None:
    await client.schedules.create(schedule("mine"))
    await client.schedules.apply([schedule("a"), schedule("b")], owner="billing")
    await client.schedules.apply([schedule("c")], owner="stock")
    await client.schedules.apply([schedule("b", "0 3 * * *"), schedule("d")], owner="billing")
    found = await client.schedules.list()
    assert [(each.name, each.owner) for each in found] == [
        ("b", "billing"),
        ("c", "stock"),
        ("d", "billing"),
        ("mine", ""),
    ]
    assert found[0].cron == "0 3 * * *"


async def test_a_set_with_one_of_another_owner_changes_nothing(client: perdure.Client) -> None:
    await client.schedules.apply([schedule("a"), schedule("b")], owner="billing")
    with pytest.raises(ConflictingSchedule, match=r"schedule b .*another owner"):
        await client.schedules.apply([schedule("b"), schedule("c")], owner="stock")
    with pytest.raises(ConflictingSchedule):
        await client.schedules.apply([schedule("a")])
    assert [each.name for each in await client.schedules.list()] == ["a", "b"]


async def test_an_empty_set_deletes_all_of_its_owner_and_nothing_without_one(client: perdure.Client) -> None:
    await client.schedules.apply([schedule("a")], owner="billing")
    await client.schedules.apply([])
    assert len(await client.schedules.list()) == 1
    await client.schedules.apply([], owner="billing")
    assert await client.schedules.list() == ()


async def test_a_changed_rule_ticks_from_now_on(conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(schedule(cron="0 0 1 1 *"))
    await conn.execute("UPDATE perdure.schedules SET decided = decided - interval '1 hour'")
    await client.schedules.apply([schedule(catch_up="all")])
    assert (await fire_due(conn)).seen == 1
    assert await run_ids(conn) == []


async def test_a_changed_input_loses_no_tick(conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(schedule())
    await due(conn)
    await client.schedules.apply([perdure.Schedule("s", EVERY_MINUTE, report.prepare("us"))])
    [run] = (await fire_due(conn)).runs
    assert await conn.fetchval("SELECT input FROM perdure.workflow_payloads WHERE workflow_id = $1", run.id) == '["us"]'


async def test_what_is_paused_stays_so_when_it_is_applied_again(client: perdure.Client) -> None:
    await client.schedules.apply([schedule()])
    await client.schedules.pause("s")
    await client.schedules.apply([schedule(overlap="skip")])
    assert (await client.schedules.get("s")).paused


async def test_schedules_of_one_name_in_two_namespaces_have_runs_of_their_own(
    db: str, conn: Connection, client: perdure.Client
) -> None:
    await client.schedules.create(schedule())
    async with perdure.Client(db, "other") as second:
        await second.schedules.create(schedule())
        assert len(await fired(conn)) == 2
        assert len(await second.schedules.list()) == 1


async def test_list_has_all_of_them_page_by_page(client: perdure.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.client.schedules.PAGE", 2)
    await client.schedules.apply(schedule(f"s{n}") for n in range(5))
    assert [each.name for each in await client.schedules.list()] == [f"s{n}" for n in range(5)]


async def test_a_schedule_that_is_deleted_starts_nothing_and_its_runs_go_on(
    conn: Connection, client: perdure.Client
) -> None:
    await client.schedules.create(schedule())
    [run_id] = await fired(conn)
    assert await client.schedules.delete("s")
    assert not await client.schedules.delete("s")
    assert (await fire_due(conn)).seen == 0
    assert await runs.get_status(conn, run_id) is RunStatus.ENQUEUED


async def test_unknown_names_are_said_not_to_be_there(client: perdure.Client) -> None:
    schedules = client.schedules
    for call in (schedules.get, schedules.pause, schedules.resume, schedules.trigger):
        with pytest.raises(NonExistentSchedule, match="no schedule s in namespace ns"):
            await call("s")
    with pytest.raises(NonExistentSchedule):
        await schedules.backfill("s", datetime.now(UTC), datetime.now(UTC))


async def test_bad_sets_are_refused(client: perdure.Client) -> None:
    with pytest.raises(InvalidArgument, match="there twice"):
        await client.schedules.apply([schedule(), schedule()])
    with pytest.raises(InvalidArgument, match="more than 1000"):
        await client.schedules.apply(schedule(f"s{n}") for n in range(1001))
    with pytest.raises(InvalidArgument, match="owner"):
        await client.schedules.apply([], owner="\n")


# -- trigger and backfill


async def test_trigger_starts_a_run_now_whatever_the_rule_and_the_pause_say(
    db: str, conn: Connection, client: perdure.Client
) -> None:
    await client.schedules.create(schedule(cron="0 0 1 1 *"))
    await client.schedules.pause("s")
    async with working(db, registry):
        handles = [await client.schedules.trigger("s") for _ in range(2)]
        for handle in handles:
            region, name, *_ = await handle.result(20.0)
            assert (region, name) == ("eu", "s")
    assert len(await run_ids(conn)) == 4


async def test_a_trigger_whose_answer_is_lost_starts_one_run(
    conn: Connection, client: perdure.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.schedules.create(schedule())
    real, lost = store.start, [True]

    async def losing(connection: Any, wanted: Any) -> Any:
        started = await real(connection, wanted)
        if lost and lost.pop():
            raise asyncpg.ConnectionDoesNotExistError("the answer is lost")
        return started

    monkeypatch.setattr(store, "start", losing)
    handle = await client.schedules.trigger("s")
    assert await run_ids(conn) == [handle.id]


async def test_backfill_starts_the_ticks_of_the_past_that_have_no_run(conn: Connection, client: perdure.Client) -> None:
    await client.schedules.create(schedule(cron="0 * * * *", overlap="skip"))
    begin = datetime(2026, 3, 29, 0, tzinfo=UTC)
    first = await client.schedules.backfill("s", begin, begin + timedelta(hours=2))
    assert [handle.id[-20:-4] for handle in first] == ["2026-03-29T00:00", "2026-03-29T01:00", "2026-03-29T02:00"]
    again = await client.schedules.backfill("s", begin, begin + timedelta(hours=3))
    assert [handle.id for handle in again[:3]] == [handle.id for handle in first]
    assert len(await run_ids(conn)) == 4


async def test_backfill_takes_thousands_page_by_page(
    conn: Connection, client: perdure.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.client.schedules.PAGE", 7)
    await client.schedules.create(schedule())
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    assert len(await client.schedules.backfill("s", begin, begin + timedelta(minutes=20))) == 21
    assert len(await run_ids(conn)) == 21


async def test_a_backfill_out_of_range_is_refused(client: perdure.Client) -> None:
    await client.schedules.create(schedule())
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for start, end, why in [
        (begin, begin - timedelta(seconds=1), "earlier to the later"),
        (begin, begin + timedelta(days=10), "more than 10000"),
        (begin, datetime.now(UTC) + timedelta(hours=1), "of the past"),
        (begin.replace(tzinfo=None), begin, "time zone"),
        (begin, "2026-01-01", "time zone"),
    ]:
        with pytest.raises(InvalidArgument, match=why):
            await client.schedules.backfill("s", start, end)  # type: ignore[arg-type]


# -- from within a run

reached: dict[str, perdure.Client] = {}
CALLS = ("create", "apply", "trigger", "backfill")


async def tried(name: str) -> str:
    schedules = reached["client"].schedules
    now = datetime.now(UTC)
    calls: dict[str, Any] = {
        "create": lambda: schedules.create(schedule()),
        "apply": lambda: schedules.apply([schedule()]),
        "trigger": lambda: schedules.trigger("s"),
        "backfill": lambda: schedules.backfill("s", now, now),
        "get": lambda: schedules.get("s"),
        "list": schedules.list,
        "pause": lambda: schedules.pause("s"),
        "resume": lambda: schedules.resume("s"),
        "delete": lambda: schedules.delete("nothing"),
    }
    try:
        await calls[name]()
    except InsideWorkflow:
        return "InsideWorkflow"
    return "done"


@step(name="s.try", registry=registry)
async def try_in_step(name: str) -> str:
    return await tried(name)


@workflow(name="s.inside", registry=registry)
async def inside(names: list[str]) -> list[list[str]]:
    return [[await tried(name), await try_in_step(name)] for name in names]


async def test_what_starts_runs_is_refused_in_a_body_and_in_a_step(db: str, client: perdure.Client) -> None:
    reached["client"] = client
    async with working(db, registry):
        assert await client.run(inside, list(CALLS)) == [["InsideWorkflow"] * 2] * len(CALLS)
    assert await client.schedules.list() == ()


async def test_other_verbs_are_refused_in_a_body_and_plain_in_a_step(db: str, client: perdure.Client) -> None:
    reached["client"] = client
    await client.schedules.create(schedule(cron="0 0 1 1 *"))
    others = ["get", "list", "pause", "resume", "delete"]
    async with working(db, registry):
        assert await client.run(inside, others) == [["InsideWorkflow", "done"]] * len(others)


async def test_two_that_apply_sets_at_once_do_not_wait_for_each_other_for_ever(client: perdure.Client) -> None:
    many = [schedule(f"s{n}") for n in range(20)]
    await asyncio.gather(*(client.schedules.apply(many if turn % 2 else many[::-1]) for turn in range(8)))
    assert len(await client.schedules.list()) == 20
