"""Rows of queues that have limits: said by programs, kept by claims. Called by the client.

The seam for resources that say limits: whoever reads them there gives its mark as `managed_by`. What one manages,
others cannot change.
"""

from __future__ import annotations

from typing import Any

import asyncpg

from perdure.model.queues import Queue, QueueLimits, RateLimit
from perdure.store.statements import sql

PROGRAMS = ""
"""Mark of queues whose limits programs say."""


async def apply(
    connection: asyncpg.Connection[Any],
    namespace: str,
    name: str,
    limits: QueueLimits,
    paused: bool | None,
    managed_by: str = PROGRAMS,
) -> Queue | None:
    """Say the limits of a queue. `paused` None: as it is. None: another one manages it. Durable on return."""
    return _maybe(await connection.fetchrow(sql("queue_apply"), namespace, name, *_columns(limits), paused, managed_by))


async def create(
    connection: asyncpg.Connection[Any],
    namespace: str,
    name: str,
    limits: QueueLimits,
    paused: bool,
    managed_by: str = PROGRAMS,
) -> Queue | None:
    """Say the limits of a queue that has none yet; None: it has. Durable on return."""
    return _maybe(
        await connection.fetchrow(sql("queue_create"), namespace, name, *_columns(limits), paused, managed_by)
    )


async def listed(connection: asyncpg.Connection[Any], namespace: str, name: str | None = None) -> list[Queue]:
    """The queues of the namespace that have limits, by name; with a name only that one."""
    return [_queue(row) for row in await connection.fetch(sql("queue_list"), namespace, name)]


async def pause(
    connection: asyncpg.Connection[Any], namespace: str, name: str, paused: bool, managed_by: str = PROGRAMS
) -> Queue | None:
    """Pause or resume. None: it has no row, or another one manages it. Once this has returned no claim takes runs of a
    paused queue."""
    return _maybe(await connection.fetchrow(sql("queue_pause"), namespace, name, paused, managed_by))


async def delete(connection: asyncpg.Connection[Any], namespace: str, name: str, managed_by: str = PROGRAMS) -> bool:
    """Take the limits off. False: it has no row, or another one manages it. Durable on return."""
    return await connection.fetchval(sql("queue_delete"), namespace, name, managed_by) is not None


def _columns(limits: QueueLimits) -> tuple[int | None, int | None, int | None, int | None, float | None]:
    rate = limits.rate
    return (
        limits.concurrency,
        limits.worker_concurrency,
        limits.partition_concurrency,
        None if rate is None else rate.runs,
        None if rate is None else rate.seconds,
    )


def _maybe(row: asyncpg.Record | None) -> Queue | None:
    return None if row is None else _queue(row)


def _queue(row: asyncpg.Record) -> Queue:
    rate = None if row["rate_runs"] is None else RateLimit(row["rate_runs"], row["rate_seconds"])
    return Queue(
        namespace=row["namespace"],
        name=row["name"],
        limits=QueueLimits(row["concurrency"], row["worker_concurrency"], row["partition_concurrency"], rate),
        paused=row["paused"],
        generation=row["generation"],
        managed_by=row["managed_by"],
        created_at=row["created_at"],
        changed_at=row["changed_at"],
    )
