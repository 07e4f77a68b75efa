"""Removal of old runs: what is old and nobody's goes with everything it had, and nothing else does."""

from datetime import timedelta
from typing import Any

import pytest
from perdure.model.outcome import Succeeded
from perdure.model.states import RunStatus
from perdure.store import retention, runs
from perdure.store.retention import Page, Place
from perdure.store.runs import Purged

from tests.store.builders import Connection, add_run, add_worker, claimed, finish, write

DAY = 86400.0


async def ended(conn: Connection, run_id: str, *, days: float = 40, **fields: Any) -> str:
    """An ended run without a resource that has a step."""
    run = await claimed(conn, run_id, **{"name": None, **fields})
    await write(conn, run, finish(), ending=Succeeded("1"))
    await conn.execute(
        "UPDATE perdure.workflows SET finished_at = now() - $2::interval WHERE id = $1", run_id, timedelta(days=days)
    )
    return run_id


async def mark(conn: Connection, *, limit: int = 100, place: Place | None = None, pool: str = "default") -> Page:
    return await retention.mark(conn, "ns", pool, age=30 * DAY, place=place or Place(), limit=limit)


async def left(conn: Connection) -> set[str]:
    """Runs that are not marked."""
    return {row["id"] for row in await conn.fetch("SELECT id FROM perdure.workflows WHERE NOT deleted")}


async def test_an_old_run_goes_with_everything_that_it_had(conn: Connection) -> None:
    await ended(conn, "r1")
    await conn.execute(
        """
        INSERT INTO perdure.messages (workflow_id, topic, key, value) VALUES ('r1', '', 'k', '1');
        INSERT INTO perdure.events (workflow_id, name, value, fence, seq) VALUES ('r1', 'e', '1', 1, 1);
        INSERT INTO perdure.events_history (workflow_id, step_index, name, value) VALUES ('r1', 0, 'e', '1');
        INSERT INTO perdure.event_waits (run_id, name, workflow_id, step_index) VALUES ('other', 'e', 'r1', 0);
        INSERT INTO perdure.event_waits (run_id, name, workflow_id, step_index) VALUES ('r1', 'e', 'gone', 0);
        """
    )
    page = await mark(conn)
    assert (page.seen, page.marked) == (1, 1)
    purged = await runs.purge(conn, 10)
    assert (purged.runs, purged.rows) == (1, 6)
    for table in ("workflows", "workflow_payloads", "workflow_steps", "messages", "events", "events_history"):
        assert await conn.fetchval(f"SELECT count(*) FROM perdure.{table}") == 0
    assert await conn.fetchval("SELECT count(*) FROM perdure.event_waits") == 0
    assert await mark(conn) == Page(0, 0, Place())


@pytest.mark.parametrize(
    "fields", [{"days": 29}, {"name": "has-a-resource"}, {"pool": "other"}], ids=["young", "resource", "pool"]
)
async def test_what_is_young_or_has_a_resource_or_is_of_another_pool_stays(
    conn: Connection, fields: dict[str, Any]
) -> None:
    await add_worker(conn, "w1")
    if "pool" in fields:
        await ended(conn, "r1")
        await conn.execute("UPDATE perdure.workflows SET pool = 'other'")
    else:
        await ended(conn, "r1", **fields)
    assert (await mark(conn)).marked == 0
    assert await left(conn) == {"r1"}


async def test_a_run_that_has_not_ended_stays_however_old(conn: Connection) -> None:
    await claimed(conn, "running", name=None)
    await add_run(conn, "ready", name=None)
    await conn.execute("UPDATE perdure.workflows SET created_at = now() - interval '900 days'")
    assert (await mark(conn)).seen == 0


async def test_the_child_of_a_live_run_stays_until_that_has_ended(conn: Connection) -> None:
    await ended(conn, "child")
    await claimed(conn, "parent")
    await conn.execute("UPDATE perdure.workflows SET parent_id = 'parent' WHERE id = 'child'")
    assert (await mark(conn)).marked == 0
    await conn.execute(
        "UPDATE perdure.workflows SET status = 50, worker_id = NULL, finished_at = now() WHERE id = 'parent'"
    )
    assert (await mark(conn)).marked == 1


async def test_the_parent_of_a_live_run_stays(conn: Connection) -> None:
    await ended(conn, "parent")
    await add_run(conn, "child", name=None)
    await conn.execute("UPDATE perdure.workflows SET parent_id = 'parent' WHERE id = 'child'")
    assert (await mark(conn)).marked == 0


async def test_a_marked_parent_is_not_removed_before_its_children_have_ended(conn: Connection) -> None:
    await ended(conn, "parent", name="n")
    await ended(conn, "second", name="m")
    await runs.resource_gone(conn, ["parent", "second"])
    await add_run(conn, "child", name=None)
    await conn.execute("UPDATE perdure.workflows SET parent_id = 'parent' WHERE id = 'child'")
    # Nor does it hold up others that stand behind it.
    assert [await runs.purge(conn, 1) for _ in range(2)] == [Purged(1, 1), Purged(0, 0)]
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflow_steps WHERE workflow_id = 'parent'") == 1
    await conn.execute("UPDATE perdure.workflows SET status = 70, finished_at = now() WHERE id = 'child'")
    assert await runs.purge(conn, 1) == Purged(1, 1)


async def test_a_run_whose_event_a_live_run_waits_for_stays(conn: Connection) -> None:
    await ended(conn, "r1")
    await claimed(conn, "waiter")
    await conn.execute(
        "INSERT INTO perdure.event_waits (run_id, name, workflow_id, step_index) VALUES ('r1', 'paid', 'waiter', 0)"
    )
    assert (await mark(conn)).marked == 0
    await conn.execute(
        "UPDATE perdure.workflows SET status = 50, worker_id = NULL, finished_at = now() WHERE id = 'waiter'"
    )
    assert (await mark(conn)).marked == 1


async def test_pages_go_on_behind_what_must_stay(conn: Connection) -> None:
    await claimed(conn, "parent")
    for number in range(6):
        await ended(conn, f"r{number}", days=50 - number)
    await conn.execute("UPDATE perdure.workflows SET parent_id = 'parent' WHERE id IN ('r0', 'r1', 'r2')")
    place, marked = Place(), []
    while (page := await mark(conn, limit=2, place=place)).seen:
        place = page.place
        marked.append((page.seen, page.marked))
    assert marked == [(2, 0), (2, 1), (2, 2)]
    assert await left(conn) == {"parent", "r0", "r1", "r2"}


async def test_runs_that_ended_in_one_moment_are_all_found(conn: Connection) -> None:
    for number in range(5):
        await ended(conn, f"r{number}")
    await conn.execute("UPDATE perdure.workflows SET finished_at = now() - interval '40 days'")
    place, seen = Place(), 0
    while (page := await mark(conn, limit=2, place=place)).seen:
        place, seen = page.place, seen + page.seen
    assert seen == 5
    assert await left(conn) == set()


async def test_a_run_that_another_holds_is_skipped(conn: Connection, observer: Connection) -> None:
    await ended(conn, "r1")
    await ended(conn, "r2")
    async with observer.transaction():
        await observer.execute("SELECT FROM perdure.workflows WHERE id = 'r1' FOR UPDATE")
        assert (await mark(conn)).marked == 1
    assert await left(conn) == {"r1"}


async def test_steps_are_removed_a_bounded_number_at_a_time(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    await ended(conn, "r1")
    await conn.execute(
        "INSERT INTO perdure.workflow_steps (workflow_id, step_index, name, status, fence, seq, started_fence,"
        " started_seq, input) SELECT 'r1', n, 's', 30, 1, 1, 1, 1, '[]' FROM generate_series(1, 24) n"
    )
    await mark(conn)
    monkeypatch.setattr(runs, "PURGE_STEPS", 10)
    told = [await runs.purge(conn, 10) for _ in range(3)]
    assert [(each.runs, each.rows) for each in told] == [(0, 10), (0, 10), (1, 5)]


async def test_two_at_once_mark_each_run_once(conn: Connection, observer: Connection) -> None:
    await ended(conn, "r1")
    async with conn.transaction():
        assert (await mark(conn)).marked == 1
        second = await mark(observer)
    assert second.marked == 0
    assert await runs.get_status(conn, "r1") is RunStatus.SUCCEEDED


async def test_hot_tables_are_vacuumed_early_and_without_pauses(conn: Connection) -> None:
    tables = await conn.fetch(
        """
        SELECT c.relname AS name, coalesce(c.reloptions, '{}') AS options FROM pg_class c
         WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind = 'r'
           AND EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid)
        """
    )
    seldom = {"migrations", "leaders"}
    without = {
        each["name"]
        for each in tables
        if each["name"] not in seldom
        and {option.partition("=")[0] for option in each["options"]}
        < {"autovacuum_vacuum_scale_factor", "autovacuum_vacuum_cost_delay"}
    }
    assert without == set()
