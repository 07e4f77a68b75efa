"""Workers: registration, lease, death, and what is done with the runs they leave.

Called by the worker's beater and sweeper and by the operator. A worker's state never goes back; its lease is
tested only where it is marked dead, under the lock of its row; moving its runs is always a later transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from perdure.model.rows import MovedRun, OwnedRun, WorkerRow
from perdure.model.states import CancelMode, RunStatus
from perdure.store.statements import sql


async def register(connection: asyncpg.Connection[Any], worker: WorkerRow, lease: float) -> list[str]:
    """Make a worker known, live for `lease` seconds; ids of the same pod's earlier workers, now marked dead.

    An empty `pod_uid` proves nothing about others. Sending it again changes nothing.
    """
    rows = await connection.fetch(
        sql("worker_register"),
        worker.id,
        worker.namespace,
        worker.pool,
        worker.pod,
        worker.pod_uid,
        worker.version,
        list(worker.queues),
        list(worker.manifest),
        worker.slots,
        lease,
    )
    return [row["id"] for row in rows]


async def beat(connection: asyncpg.Connection[Any], worker_id: str, lease: float) -> list[OwnedRun] | None:
    """Extend the lease to `lease` seconds from now; all runs of this worker. None: marked dead, register anew."""
    rows = await connection.fetch(sql("worker_beat"), worker_id, lease)
    if not rows:
        return None
    return [
        OwnedRun(
            id=row["id"],
            fence=row["fence"],
            cancel_mode=None if row["cancel_mode"] is None else CancelMode(row["cancel_mode"]),
            suspended=row["suspended"],
            deadline_passed=row["deadline_passed"],
        )
        for row in rows
        if row["id"] is not None
    ]


async def drain(connection: asyncpg.Connection[Any], worker_id: str) -> bool:
    """Take no further runs (claims of a draining worker find nothing). False: it was not live any more."""
    return await connection.fetchval(sql("worker_drain"), worker_id) is not None


async def stop(connection: asyncpg.Connection[Any], worker_id: str) -> bool:
    """A clean end: runs found under its name later move without counting. False: it was marked dead before."""
    return await connection.fetchval(sql("worker_stop"), worker_id) is not None


async def retire(connection: asyncpg.Connection[Any], namespace: str, pool: str, version: str) -> list[str]:
    """From now on workers of other versions than this one take only runs that are bound to theirs; ids of those for
    which that is news."""
    return [row["id"] for row in await connection.fetch(sql("worker_retire"), namespace, pool, version)]


async def mark_expired(connection: asyncpg.Connection[Any], limit: int) -> list[str]:
    """Mark workers dead whose lease is out (after a restart of Postgres: one lease later). Their ids.

    Only for a caller that has itself had one lease of unbroken contact with the same database.
    """
    return [row["id"] for row in await connection.fetch(sql("worker_mark_expired"), limit)]


async def mark_dead(connection: asyncpg.Connection[Any], pod_uids: Sequence[str]) -> list[str]:
    """Mark the workers of these pods dead on proof of death, whatever their lease. Their ids."""
    uids = sorted({uid for uid in pod_uids if uid})
    return [row["id"] for row in await connection.fetch(sql("worker_mark_dead"), uids)]


async def dead_with_runs(connection: asyncpg.Connection[Any], limit: int) -> list[str]:
    """Workers that are dead, stopped or unknown and still named by RUNNING rows: the argument of `move`."""
    return [row["id"] for row in await connection.fetch(sql("worker_ended_owners"), limit)]


async def move(connection: asyncpg.Connection[Any], worker_ids: Sequence[str], limit: int) -> list[MovedRun]:
    """Take up to `limit` runs from ended workers. Call until `dead_with_runs` finds none, not until a batch is
    short: rows that somebody holds just now are skipped."""
    rows = await connection.fetch(sql("worker_move"), sorted(set(worker_ids)), limit)
    return [MovedRun(**{**row, "status": RunStatus(row["status"])}) for row in rows]


async def terminate_backends(connection: asyncpg.Connection[Any], worker_id: str) -> int:
    """End the sessions whose application name is this worker's id; how many. Only for a worker marked dead."""
    ended: int = await connection.fetchval(sql("worker_terminate"), worker_id)
    return ended


async def give_back(connection: asyncpg.Connection[Any], worker_id: str, runs: Sequence[tuple[str, int]]) -> list[str]:
    """Release runs (id, fence) that this worker owns without knowing them; ids of those that were."""
    ordered = sorted(set(runs))
    rows = await connection.fetch(
        sql("worker_give_back"), worker_id, [run_id for run_id, _ in ordered], [fence for _, fence in ordered]
    )
    return [row["id"] for row in rows]


async def forget(connection: asyncpg.Connection[Any], older_than: float, limit: int = 1000) -> int:
    """Remove workers that ended more than `older_than` seconds ago and own nothing; how many."""
    return len(await connection.fetch(sql("worker_forget"), older_than, limit))
