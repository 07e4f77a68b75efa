"""The shipped statements, explained at scale: the expected index, no scan of a large table, bounded work."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from perdure.store.migrate import migrate
from perdure.store.pool import connect
from perdure.store.statements import sql

from tests.store.builders import Connection, add_worker
from tests.store.plan_cases import CASES, WITHOUT_TABLES, Case
from tests.store.scale import seed
from tests.support.postgres import PostgresServer

LARGE = {"workflows", "workflow_steps", "workflow_payloads", "idempotency_keys"}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def large_url(_server: PostgresServer) -> Iterator[str]:
    """One database for all cases: they roll back."""

    async def make() -> str:
        name = await _server.create_database()
        await migrate(_server.url(name))
        await seed(_server.url(name))
        return name

    name = asyncio.run(make())
    yield _server.url(name)
    asyncio.run(_server.drop_database(name))


def test_every_statement_has_a_case() -> None:
    folder = Path(__file__).parents[2] / "worker_image" / "perdure" / "store" / "sql"
    shipped = {path.stem for path in folder.glob("*.sql")}
    assert shipped == {each.statement for each in CASES} | WITHOUT_TABLES


@pytest.mark.parametrize("mode", ["custom", "generic"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.statement)
async def test_plan(large_url: str, case: Case, mode: str) -> None:
    """`generic` is what a long-lived session uses after a few calls, without knowing the arguments."""
    plan = await explain(large_url, case, mode)
    scanned = {node["Relation Name"] for node in plan if node["Node Type"] == "Seq Scan"}
    assert scanned & LARGE == set()
    assert {node["Index Name"] for node in plan if "Index Name" in node} >= case.indexes
    assert rows_touched(plan) <= case.most_rows


async def test_a_claim_planned_on_an_empty_table_stays_good_when_it_grows(pg_url: str, conn: Connection) -> None:
    """A burst of runs comes faster than statistics: the session's plan is old, and a new one knows nothing."""
    await conn.execute("ALTER TABLE perdure.workflows SET (autovacuum_enabled = off)")
    await add_worker(conn, "w0002")
    old = await connect(pg_url, application_name="old", statement_timeout=0)
    await prepare(old, "claim", "auto")
    for _ in range(10):
        await explain_on(old, claim_of_four())
    await conn.execute(BURST)
    new = await connect(pg_url, application_name="new", statement_timeout=0)
    await prepare(new, "claim", "auto")

    for session in (old, new):
        plan = await explain_on(session, claim_of_four())
        assert rows_touched(plan) <= 60
        await session.close()


async def test_what_a_claim_counts_of_a_queue_with_limits_is_no_more_than_they_say(large_url: str) -> None:
    """Hundreds of its runs run, and a hundred thousand are ready."""
    connection = await connect(large_url, application_name="plans", statement_timeout=0)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(
        "INSERT INTO perdure.queues (namespace, name, concurrency, worker_concurrency, partition_concurrency)"
        " VALUES ('ns', 'default', 1000, 10, 1000)"
    )
    ask = "perdure.queue_room('w0050', 'ns', 'default', 10, '{tenant,other}')"
    for _ in range(10):  # it is planned for any arguments then
        assert await connection.fetchval(f"SELECT room FROM {ask}") == 0
    await connection.execute("UPDATE perdure.queues SET worker_concurrency = 1000 WHERE name = 'default'")
    assert await connection.fetchval(f"SELECT room FROM {ask}") == 10
    await connection.execute("UPDATE perdure.queues SET concurrency = 10 WHERE name = 'default'")
    found = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM {ask}")
    await transaction.rollback()
    await connection.close()
    plan = json.loads(found)[0]["Plan"]
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 60


BURST = """
INSERT INTO perdure.workflows (id, namespace, name, workflow, requires, pool, queue, priority, status, waiting_since,
                               status_due_at)
SELECT n::text, 'ns', 'n', 'x', '{workflow:x}', 'default', 'default', 100, 10, now(), now()
  FROM generate_series(1, 20000) n
"""


def claim_of_four() -> Case:
    return next(each for each in CASES if each.statement == "claim")


async def explain(url: str, case: Case, mode: str) -> list[dict[str, Any]]:
    """All nodes of the plan of the statement as it runs; nothing of it stays."""
    connection = await connect(url, application_name="plans", statement_timeout=0)
    try:
        await prepare(connection, case.statement, f"force_{mode}_plan")
        return await explain_on(connection, case)
    finally:
        await connection.close()


async def prepare(connection: Connection, statement: str, mode: str) -> None:
    await connection.execute(f"SET plan_cache_mode = {mode}")
    await connection.execute(f"PREPARE shipped AS {sql(statement)}")


async def explain_on(connection: Connection, case: Case) -> list[dict[str, Any]]:
    arguments = ", ".join(literal(each) for each in case.arguments)
    transaction = connection.transaction()
    await transaction.start()
    found = await connection.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE shipped({arguments})")
    await transaction.rollback()
    return list(nodes(json.loads(found)[0]["Plan"]))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


def rows_touched(plan: Sequence[dict[str, Any]]) -> int:
    """Rows read from tables: returned, or looked at and thrown away."""
    return round(
        sum(
            node["Actual Loops"]
            * (
                node["Actual Rows"]
                + node.get("Rows Removed by Filter", 0)
                + node.get("Rows Removed by Index Recheck", 0)
            )
            for node in plan
            if node["Node Type"].endswith("Scan") and "Relation Name" in node
        )
    )


def literal(value: Any) -> str:
    """As EXECUTE takes it; the parameter's type comes from the statement's cast."""
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, list):
        inside = ",".join("NULL" if each is None else json.dumps(str(each)) for each in value)
        return "'{" + inside.replace("'", "''") + "}'"
    return "'" + str(value).replace("'", "''") + "'"
