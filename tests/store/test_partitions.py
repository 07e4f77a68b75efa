"""Partitions of a queue take turns, and runs past their deadline cost a claim nothing."""

import json
from typing import Any

from perdure.model.states import CancelMode, RunStatus
from perdure.store import claims
from perdure.store.claims import Place, RangeKey, Scope
from perdure.store.pool import connect
from perdure.store.statements import sql

from tests.store.builders import MANIFEST, Connection, add_run, add_worker, claim, let_time_pass, row
from tests.store.scale import INDEXES
from tests.store.test_plans import nodes, rows_touched

SCOPE = Scope("w1", "ns", "default", "default", MANIFEST, "v1")


async def taken(conn: Connection, limit: int, after: str = "", partitions: int = 100) -> list[str]:
    """Look and take; ids of what came, sorted."""
    look = await claims.look(conn, SCOPE, after, partitions)
    got = await claims.take(conn, SCOPE, list(look.ranges.items()), limit)
    return sorted(run.id for run in got.runs)


async def test_one_partition_with_many_runs_leaves_room_for_the_others(conn: Connection) -> None:
    await add_worker(conn)
    for n in range(20):
        await add_run(conn, f"big-{n:02}", partition_key="big")
    await add_run(conn, "small-0", partition_key="small")
    await add_run(conn, "none-0")

    assert await taken(conn, 4) == ["big-00", "big-01", "none-0", "small-0"]


async def test_priority_orders_within_a_partition_and_not_among_them(conn: Connection) -> None:
    await add_worker(conn)
    for n in range(4):
        await add_run(conn, f"urgent-{n}", partition_key="a", priority=1 + n % 2)
    await add_run(conn, "plain", partition_key="b", priority=100)

    assert await taken(conn, 3) == ["plain", "urgent-0", "urgent-2"]


async def test_a_look_begins_behind_the_partition_served_last_and_comes_round(conn: Connection) -> None:
    await add_worker(conn)
    for partition in ("", "a", "b", "c"):
        await add_run(conn, f"run-{partition}", partition_key=partition)

    async def order(after: str, partitions: int = 100) -> list[str]:
        return [key.partition_key for key in (await claims.look(conn, SCOPE, after, partitions)).ranges]

    assert await order("") == ["a", "b", "c", ""]
    assert await order("a") == ["b", "c", "", "a"]
    assert await order("aa") == ["b", "c", "", "a"]
    assert await order("z") == ["", "a", "b", "c"]
    assert await order("b", 2) == ["c", ""]
    assert (await claims.look(conn, SCOPE, "b", 2)).cut
    assert not (await claims.look(conn, SCOPE, "b", 5)).cut


async def test_a_partition_is_one_whatever_its_runs_require_and_are_bound_to(conn: Connection) -> None:
    """It has one turn, not one for each set of required names."""
    await add_worker(conn)
    for n in range(4):
        await add_run(conn, f"big-x{n}", partition_key="big")
        await add_run(conn, f"big-y{n}", partition_key="big", requires=("workflow:x", "step:s"))
    for n in range(4):
        await add_run(conn, f"small-{n}", partition_key="small")

    assert await taken(conn, 4) == ["big-x0", "big-y0", "small-0", "small-1"]


async def test_what_cannot_be_run_hides_no_partition(conn: Connection) -> None:
    await add_worker(conn)
    for n in range(10):
        await add_run(conn, f"foreign-{n}", partition_key=f"a{n}", requires=("workflow:nobody",))
    await add_run(conn, "mine", partition_key="z")

    assert await taken(conn, 4, partitions=2) == ["mine"]


async def test_runs_past_their_deadline_are_ended_in_passing(conn: Connection) -> None:
    """Skipped, they would be read by every claim until the sweep has come to them."""
    await add_worker(conn)
    for n in range(3):
        await add_run(conn, f"late-{n}")
    await conn.execute("UPDATE perdure.workflows SET deadline_at = now()")
    await let_time_pass(conn, "deadline_at", 10)
    await add_run(conn, "in-time")

    look = await claims.look(conn, SCOPE, "")
    first = await claims.take(conn, SCOPE, list(look.ranges.items()), 2)
    second = await claim(conn, limit=2)

    assert (first.runs, first.ended, first.total) == ([], 2, 2)
    assert [run.id for run in second] == ["in-time"]
    late = await row(conn, "late-2")
    assert (late["status"], late["cancel_mode"], late["cancel_reason"]) == (
        RunStatus.CANCELLED,
        CancelMode.IMMEDIATE,
        "its deadline has passed",
    )
    assert (late["fence"], late["worker_id"], late["started_at"], late["version"]) == (1, None, None, None)
    assert late["finished_at"] is not None and late["status_due_at"] is not None


async def test_a_retired_worker_takes_from_no_range_of_unbound_runs(conn: Connection) -> None:
    """Also when it has looked before it was retired."""
    await add_worker(conn)
    await add_run(conn)
    look = await claims.look(conn, SCOPE, "")
    await conn.execute("UPDATE perdure.workers SET retired = true")

    assert (await claims.take(conn, SCOPE, list(look.ranges.items()), 4)).runs == []


async def test_a_single_run_behind_a_hundred_thousand_of_another_tenant_is_taken_in_its_turn(
    conn: Connection, pg_url: str
) -> None:
    """With a million ready runs in two hundred partitions: few rows are read, and the next round has it."""
    session = await connect(pg_url, application_name="large", statement_timeout=0)
    await fill(session)
    await add_worker(session)
    await add_run(session, "single", partition_key="tenant-050-single")

    served: list[str] = []
    read = looks = 0
    after = ""
    while "single" not in served:
        look = await claims.look(session, SCOPE, after)
        looks += 1
        ranges = list(look.ranges.items())
        read += await rows_read(session, "claim_ranges", *WHO, after, 100)
        read += await rows_read(session, "claim", *WHO, 100, *columns(ranges))
        got = await claims.take(session, SCOPE, ranges, 100)
        served += [run.id for run in got.runs]
        after = max(got.counts)

    assert looks == 1
    assert len(served) == 100
    assert read < 1500
    await session.close()


async def fill(session: Connection) -> None:
    """A million rows, the index last, which takes half the time."""
    indexes = {each["drop"]: each["create"] for each in await session.fetch(INDEXES)}
    for drop in indexes:
        await session.execute(drop)
    await session.execute(MILLION)
    await session.execute(indexes["DROP INDEX perdure.workflows_ready"])


MILLION = """
SET synchronous_commit = off;
ALTER TABLE perdure.workflows SET (autovacuum_enabled = off);
INSERT INTO perdure.workflows (id, namespace, workflow, requires, pool, queue, partition_key, priority, status)
SELECT 'r' || lpad(n::text, 7, '0'), 'ns', 'x', '{workflow:x}', 'default', 'default',
       CASE WHEN n <= 800000 THEN 'tenant-000' ELSE 'tenant-' || lpad((n % 200)::text, 3, '0') END, 100, 10
  FROM generate_series(1, 1000000) n;
"""


WHO = ("w1", "ns", "default", "default", list(MANIFEST), "v1")


def columns(ranges: list[tuple[RangeKey, Place]]) -> list[list[Any]]:
    """As the claim takes them, each range in a partition of its own."""
    keys = [list(column) for column in zip(*(key for key, _ in ranges), strict=True)]
    places = [list(column) for column in zip(*(place for _, place in ranges), strict=True)]
    return [*keys, list(range(len(ranges))), *places]


async def rows_read(session: Connection, statement: str, *arguments: Any) -> int:
    """Rows that the statement reads from tables; what it changes is undone."""
    transaction = session.transaction()
    await transaction.start()
    found = await session.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql(statement)}", *arguments)
    await transaction.rollback()
    return rows_touched(list(nodes(json.loads(found)[0]["Plan"])))
