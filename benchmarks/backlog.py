"""Many runs at once: one is stored as clients store it, the others are copies of its rows."""

from __future__ import annotations

import json
from typing import Any

from perdure.model.rows import NewRun, workflow_requirement
from perdure.store import runs

from benchmarks.host import NAMESPACE, POOL, Connection

STEPS = 5
"""Of the runs that are compared with the peers'."""

TABLES = {"workflows": "id", "workflow_payloads": "workflow_id", "workflow_steps": "workflow_id"}
"""Tables with rows of a run, and their column with its id."""

COLUMNS = """
SELECT quote_ident(attname) FROM pg_attribute
 WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' AND attname <> $2
"""

INDEXES = """
SELECT format('DROP INDEX perdure.%I', i.indexname) AS drop, i.indexdef AS create
  FROM pg_indexes i
 WHERE i.schemaname = 'perdure' AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conname = i.indexname)
"""

FINISH = """
UPDATE perdure.workflows SET status = 50, fence = 2, started_at = now(), finished_at = now(), waiting_since = NULL
 WHERE id = $1
"""


def new_run(run_id: str, workflow: str, **arguments: Any) -> NewRun:
    return NewRun(
        id=run_id,
        namespace=NAMESPACE,
        name=None,
        workflow=workflow,
        requires=(workflow_requirement(workflow),),
        input=json.dumps(arguments),
        pool=POOL,
    )


async def store(connection: Connection, run_id: str, workflow: str, **arguments: Any) -> None:
    """One run, ready to be claimed."""
    await runs.upsert(connection, new_run(run_id, workflow, **arguments))


async def store_many(connection: Connection, prefix: str, count: int, workflow: str, **arguments: Any) -> None:
    """`count` runs whose ids begin with `prefix`; they become visible at once."""
    async with connection.transaction():
        await store(connection, prefix, workflow, **arguments)
        await copy(connection, prefix, count - 1)


async def copy(connection: Connection, run_id: str, count: int) -> None:
    """Copies of a run and all that belongs to it, with ids that begin with its own."""
    for table, key in TABLES.items():
        columns = ", ".join(row[0] for row in await connection.fetch(COLUMNS, f"perdure.{table}", key))
        await connection.execute(
            f"INSERT INTO perdure.{table} ({key}, {columns}) "
            f"SELECT $1 || '-' || lpad(n::text, 8, '0'), {columns} "
            f"FROM perdure.{table}, generate_series(1, $2::integer) n WHERE {key} = $1",
            run_id,
            count,
        )


async def fill(connection: Connection, ready: int, finished: int) -> None:
    """Runs that wait for a worker and runs that have ended. Indexes come last, in half the time."""
    await connection.execute("SET synchronous_commit = off; SET maintenance_work_mem = '512MB'")
    indexes = await connection.fetch(INDEXES)
    for index in indexes:
        await connection.execute(index["drop"])
    if finished:
        await store(connection, "finished", "bench.chain", steps=STEPS)
        await connection.execute(FINISH, "finished")
        await copy(connection, "finished", finished - 1)
    await store_many(connection, "ready", ready, "bench.chain", steps=STEPS)
    for index in indexes:
        await connection.execute(index["create"])
    await connection.execute("RESET synchronous_commit; RESET maintenance_work_mem")
