"""Runs as wanted from outside: intake, cancel, removal, result. Called by the operator, clients and the commands.

Nothing here carries a fence: a resource's changes are guarded by its generation, so that a slow reconcile never
undoes a newer one, and whatever ends a run that nobody owns lifts the fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from perdure.model.rows import NewRun
from perdure.model.states import CancelMode, RunStatus
from perdure.store.statements import sql
from perdure.store.waiting import clean

PURGE_STEPS = 10_000
"""Steps removed by one statement: some 50 ms, far below the statement's timeout."""


@dataclass(frozen=True, slots=True)
class Upserted:
    """What an upsert found and did. `changed` = the row is new or was edited; `generation` is the row's, which is
    newer than the one sent when a newer spec was there first."""

    created: bool
    changed: bool
    status: RunStatus
    generation: int


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run stands or ended; `output` and `error` are JSON texts."""

    status: RunStatus
    output: str | None
    error: str | None


async def upsert(connection: asyncpg.Connection[Any], run: NewRun) -> Upserted:
    """Create the run, or change priority, timeout, suspend, cancel and the limits of tries. Durable on return.

    An older generation changes nothing; the same content twice changes nothing.
    """
    row = await connection.fetchrow(
        sql("run_upsert"),
        run.id,
        run.namespace,
        run.name,
        run.workflow,
        list(run.requires),
        run.pool,
        run.queue,
        run.priority,
        run.timeout,
        run.suspended,
        run.cancel_mode,
        run.max_recoveries,
        run.max_run_attempts,
        run.generation,
        run.input,
        run.definition,
        run.partition_key,
    )
    if row is None:
        row = await connection.fetchrow(sql("run_result"), run.id)
        if row is None:
            # Created by a twin and removed again, between two statements.
            return Upserted(False, False, RunStatus.CANCELLED, run.generation)
        return Upserted(False, False, RunStatus(row["status"]), row["generation"])
    return Upserted(row["created"], row["written"], RunStatus(row["status"]), row["generation"])


async def cancel(
    connection: asyncpg.Connection[Any], run_id: str, mode: CancelMode, reason: str, *, cascade: bool = True
) -> RunStatus | None:
    """Ask for the end of a run; its status afterwards, None when there is no such run.

    CANCELLED: it was owned by nobody and has ended (or had before). RUNNING: its owner sees the flag at its next
    checkpoint. Another final status: it had ended, nothing changed. `cascade`: the runs that it has started follow. A
    cancel never gets weaker. Durable on return.
    """
    return (await cancel_all(connection, [run_id], mode, reason, cascade=cascade)).get(run_id)


async def cancel_all(
    connection: asyncpg.Connection[Any], ids: Sequence[str], mode: CancelMode, reason: str, *, cascade: bool
) -> dict[str, RunStatus]:
    """`cancel` of many in one statement; the status of each that exists."""
    rows = await connection.fetch(sql("run_cancel"), sorted(set(ids)), mode, clean(reason), cascade)
    return {row["id"]: RunStatus(row["status"]) for row in rows}


async def remove(connection: asyncpg.Connection[Any], ids: Sequence[str], reason: str) -> int:
    """Cancel what has not ended of these runs, for this reason, and mark all for removal. How many were new."""
    return len(await connection.fetch(sql("run_gone"), sorted(set(ids)), clean(reason)))


async def resource_gone(connection: asyncpg.Connection[Any], ids: Sequence[str]) -> int:
    """The resources of these runs are deleted: `remove` them."""
    return await remove(connection, ids, "the resource was deleted")


@dataclass(frozen=True, slots=True)
class Purged:
    """What one call removed: whole runs, and rows of runs (steps, messages, events) beside them."""

    runs: int
    rows: int


async def purge(connection: asyncpg.Connection[Any], limit: int) -> Purged:
    """Remove up to `limit` ended runs that are marked for it (their resource is gone, or they are old), everything
    else of them first. Runs with very many steps take several calls, which may each remove no run."""
    steps = await connection.execute(sql("run_purge_steps"), limit, PURGE_STEPS)
    rows = int(steps.rpartition(" ")[2]) + await connection.fetchval(sql("run_purge_calls"), limit, PURGE_STEPS)
    return Purged(len(await connection.fetch(sql("run_purge"), limit)), rows)


async def purge_gone(connection: asyncpg.Connection[Any], limit: int) -> int:
    """`purge`; how many runs went."""
    return (await purge(connection, limit)).runs


async def resource_ids(connection: asyncpg.Connection[Any], namespace: str, after_id: str, limit: int) -> list[str]:
    """A page of ids of runs behind resources, in order, for the search of ghosts; start with an empty `after_id`."""
    rows = await connection.fetch(sql("run_ids"), namespace, after_id, limit)
    return [row["id"] for row in rows]


async def get_status(connection: asyncpg.Connection[Any], run_id: str) -> RunStatus | None:
    """Status of a run, None when there is none of this id."""
    found = await result(connection, run_id)
    return None if found is None else found.status


async def result(connection: asyncpg.Connection[Any], run_id: str) -> RunResult | None:
    """Status, output and error of a run, None when there is none of this id."""
    row = await connection.fetchrow(sql("run_result"), run_id)
    return None if row is None else RunResult(RunStatus(row["status"]), row["output"], row["error"])
