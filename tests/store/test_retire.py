"""Workers of an earlier version: what they may still take, and that a change of version can be undone."""

from __future__ import annotations

from typing import Any

import asyncpg
from perdure.model.rows import NewRun, WorkerRow
from perdure.store import claims, runs, workers

KNOWS = ("workflow:w",)


async def worker(conn: asyncpg.Connection[Any], name: str, version: str) -> WorkerRow:
    row = WorkerRow(name, "ns", "pool", name, f"uid-{name}", version, ("default",), KNOWS, 4)
    await workers.register(conn, row, 60)
    return row


async def new_run(conn: asyncpg.Connection[Any], name: str) -> None:
    await runs.upsert(
        conn, NewRun(id=name, namespace="ns", name=name, workflow="w", requires=KNOWS, input="{}", pool="pool")
    )


async def claim(conn: asyncpg.Connection[Any], row: WorkerRow, limit: int = 10) -> list[str]:
    found = await claims.claim(
        conn,
        worker_id=row.id,
        namespace="ns",
        pool="pool",
        queue="default",
        manifest=KNOWS,
        version=row.version,
        limit=limit,
    )
    return [run.id for run in found]


async def test_a_retired_worker_takes_only_what_is_bound_to_its_version(conn: asyncpg.Connection[Any]) -> None:
    old, new = await worker(conn, "old", "v1"), await worker(conn, "new", "v2")
    await new_run(conn, "begun")
    assert await claim(conn, old) == ["begun"]
    await workers.give_back(conn, old.id, [("begun", 1)])
    assert await workers.retire(conn, "ns", "pool", "v2") == ["old"]
    assert await workers.retire(conn, "ns", "pool", "v2") == [], "said once"
    await new_run(conn, "fresh")
    assert await claim(conn, old) == ["begun"]
    assert await claim(conn, new) == ["fresh"]


async def test_a_rollback_takes_the_retirement_back(conn: asyncpg.Connection[Any]) -> None:
    old, new = await worker(conn, "old", "v1"), await worker(conn, "new", "v2")
    await workers.retire(conn, "ns", "pool", "v2")
    assert sorted(await workers.retire(conn, "ns", "pool", "v1")) == ["new", "old"]
    await new_run(conn, "fresh")
    assert await claim(conn, new) == []
    assert await claim(conn, old) == ["fresh"]


async def test_other_pools_and_namespaces_are_left_alone(conn: asyncpg.Connection[Any]) -> None:
    await worker(conn, "old", "v1")
    assert await workers.retire(conn, "ns", "other", "v2") == []
    assert await workers.retire(conn, "other", "pool", "v2") == []
