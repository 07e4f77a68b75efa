"""Many runs at once: one is stored as clients store it, the others are copies of its rows."""

from __future__ import annotations

import json
from typing import Any

from perdure.model.rows import NewRun, workflow_requirement
from perdure.store import runs

from benchmarks.host import NAMESPACE, POOL, Connection

STEPS = 5
"""Of the runs that are compared with the peers'."""

TABLES = """
SELECT c.oid::regclass::text AS name, a.attname AS key,
       (SELECT string_agg(quote_ident(o.attname), ', ')
          FROM pg_attribute o
         WHERE o.attrelid = c.oid AND o.attnum > 0 AND NOT o.attisdropped AND o.attgenerated = '' AND o.attidentity = ''
           AND o.attname <> a.attname) AS others
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind = 'r'
   AND a.attname = CASE c.relname WHEN 'workflows' THEN 'id' ELSE 'workflow_id' END
"""
"""Tables with rows of a run, their column with its id, and the other columns."""

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
    for table in await connection.fetch(TABLES):
        name, key, others = table["name"], table["key"], table["others"]
        await connection.execute(
            f"INSERT INTO {name} ({key}, {others}) SELECT $1 || '-' || lpad(n::text, 8, '0'), {others} "
            f"FROM {name}, generate_series(1, $2::integer) n WHERE {key} = $1",
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
