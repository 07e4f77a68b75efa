"""Claims stay cheap while an old snapshot keeps the entries of claimed runs in the index, and lose no run by it."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from perdure.model.outcome import Released
from perdure.store import claims
from perdure.store.claims import BEGINNING, RangeKey, Scope
from perdure.store.pool import connect
from perdure.store.statements import sql
from perdure.worker.floor import TRUST_SECONDS, Floor, Next

from tests.store.builders import MANIFEST, Connection, add_run, add_worker, row, write
from tests.store.plan_cases import CASES
from tests.store.test_plans import literal, nodes

SCOPE = Scope("w1", "ns", "default", "default", MANIFEST, "v1")
RANGE = RangeKey("", 3203986688490748913, "")
DONE, LEFT, BATCH = 50_000, 1_000, 100

FILL = f"""
SET synchronous_commit = off;
ALTER TABLE perdure.workflows SET (autovacuum_enabled = off);
INSERT INTO perdure.workflows (id, namespace, workflow, requires, pool, queue, priority, status)
SELECT 'r' || lpad(n::text, 6, '0'), 'ns', 'x', '{{workflow:x}}', 'default', 'default', 100, 10
  FROM generate_series(1, {DONE + LEFT}) n;
"""

CLAIM_AND_FINISH = f"""
UPDATE perdure.workflows SET status = 30, worker_id = 'w1', fence = fence + 1 WHERE id <= 'r{DONE:06}';
UPDATE perdure.workflows SET status = 50, worker_id = NULL, fence = fence + 1, finished_at = now()
 WHERE id <= 'r{DONE:06}';
"""
"""What so many claims and settles leave behind: two dead versions of each row and their entries in the indexes."""


@asynccontextmanager
async def horizon(url: str) -> AsyncIterator[None]:
    """A transaction with an old snapshot, as of a backup: while it is open nothing dead is removed."""
    session = await asyncpg.connect(url)
    transaction = session.transaction(isolation="repeatable_read")
    await transaction.start()
    await session.fetch("SELECT count(*) FROM perdure.workers")
    try:
        yield
    finally:
        await session.close()


async def buffers(session: Connection, ranges: list[tuple[RangeKey, claims.Place]]) -> int:
    """Pages that a claim from these ranges touches; it is rolled back."""
    columns: list[Any] = [list(each) for each in zip(*(key for key, _ in ranges), strict=True)]
    places: list[Any] = [list(each) for each in zip(*(place for _, place in ranges), strict=True)]
    explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql('claim')}"
    transaction = session.transaction()
    await transaction.start()
    found = await session.fetchval(
        explained, "w1", "ns", "default", "default", list(MANIFEST), "v1", 4, *columns, [0] * len(ranges), *places
    )
    await transaction.rollback()
    plan = json.loads(found)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.timeout(120)
async def test_a_claim_reads_nothing_that_was_claimed_before_it(pg_url: str, conn: Connection) -> None:
    """Fifty thousand runs were claimed and finished under an old snapshot."""
    await add_worker(conn)
    session = await connect(pg_url, application_name="worker", statement_timeout=0)
    await session.execute(FILL)
    fresh = await buffers(session, [(RANGE, BEGINNING)])
    async with horizon(pg_url):
        await session.execute(CLAIM_AND_FINISH)
        await session.execute("VACUUM perdure.workflows")
        floor = Floor()
        floor.found(await claims.look(session, SCOPE, ""), 0.0, 0.001)
        counts = []
        for _ in range(3):
            ranges, asked = floor.offer(BATCH)
            counts.append(await buffers(session, ranges))
            floor.took(await claims.take(session, SCOPE, ranges, asked), asked)
            assert floor.next(0.1) is Next.TAKE

        assert max(counts) < 2 * fresh
        # Without a place to go on from, the same claim has to read what is dead.
        assert await buffers(session, [(RANGE, BEGINNING)]) > 10 * fresh
    await session.close()


BY_ID = sorted({each.statement for each in CASES if "status + 0 = 30" in sql(each.statement)})


@pytest.mark.parametrize("statement", BY_ID)
async def test_what_is_known_by_its_id_is_found_by_its_id(conn: Connection, statement: str) -> None:
    """Few runs are RUNNING, so the index of those looks cheaper; but under an old snapshot it keeps entries of
    all that ever were."""
    case = next(each for each in CASES if each.statement == statement)
    await conn.execute(f"PREPARE shipped AS {sql(statement)}")
    arguments = ", ".join(literal(each) for each in case.arguments)
    explained = await conn.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE shipped({arguments})")
    plan = list(nodes(json.loads(explained)[0]["Plan"]))
    used = {node["Index Name"] for node in plan if node.get("Relation Name") == "workflows" and "Index Name" in node}
    assert used & {"workflows_owned", "workflows_open", "workflows_running"} == set()


def test_every_statement_about_runs_of_given_ids_is_among_them() -> None:
    tempting = re.compile(r"WHERE w\.id = [^\n]*w\.status = 30")
    assert [each.statement for each in CASES if tempting.search(sql(each.statement))] == []
    assert "journal_commit" in BY_ID


async def test_a_run_that_comes_back_before_the_place_is_found_by_a_look(conn: Connection) -> None:
    """Given back it is bound to the version, with another priority it goes before the place: both are found."""
    await add_worker(conn)
    for n in range(20):
        await add_run(conn, f"r{n:02}")
    floor = Floor()
    first = await claim_on(conn, floor, 4, 1.0)
    second = await claim_on(conn, floor, 4, 1.1)
    assert [run.id for run in second] == ["r04", "r05", "r06", "r07"]

    await write(conn, first[0], ending=Released("drain"))
    await conn.execute("UPDATE perdure.workflows SET priority = 1 WHERE id = 'r19'")
    unheard = await claim_on(conn, floor, 2, 1.2)
    floor.news()
    heard = await claim_on(conn, floor, 2, 1.3)

    assert [run.id for run in unheard] == ["r08", "r09"]
    assert [run.id for run in heard] == ["r19", "r00"]


async def test_what_came_back_unheard_of_is_found_when_trust_ends(conn: Connection) -> None:
    await add_worker(conn)
    for n in range(20):
        await add_run(conn, f"r{n:02}")
    floor = Floor()
    [run] = await claim_on(conn, floor, 1, 1.0)
    await write(conn, run, ending=Released("drain"))

    assert [each.id for each in await claim_on(conn, floor, 1, 1.1)] == ["r01"]
    assert [each.id for each in await claim_on(conn, floor, 1, 1.1 + TRUST_SECONDS)] == ["r00"]


async def test_a_claim_goes_on_until_nothing_is_ready_wherever_it_came_back(conn: Connection) -> None:
    await add_worker(conn)
    for n in range(6):
        await add_run(conn, f"r{n}")
    floor = Floor()
    [run] = await claim_on(conn, floor, 1, 1.0)
    await write(conn, run, ending=Released("drain"))

    assert sorted(each.id for each in await claim_on(conn, floor, 100, 1.1)) == [f"r{n}" for n in range(6)]
    assert (await row(conn, "r0"))["fence"] == 3


async def claim_on(conn: Connection, floor: Floor, wanted: int, now: float) -> list[Any]:
    """A round of the claimer, at a time of the test's choice."""
    floor.begin()
    runs: list[Any] = []
    for now_ in moments(now):
        match floor.next(now_):
            case Next.NOTHING:
                break
            case Next.LOOK:
                floor.found(await claims.look(conn, SCOPE, floor.served_last), now_, 0.001)
            case Next.TAKE:
                ranges, asked = floor.offer(wanted - len(runs))
                taken = await claims.take(conn, SCOPE, ranges, asked)
                floor.took(taken, asked)
                runs += taken.runs
        if len(runs) >= wanted:
            break
    return runs


def moments(start: float) -> Iterator[float]:
    """Instants of a round: far enough apart for a cheap look after a cheap look."""
    while True:
        yield start
        start += 0.01
