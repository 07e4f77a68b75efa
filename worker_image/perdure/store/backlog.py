"""How much there is to do and why it is not being done: counts for scaling and metrics, reasons for waiting.

Called by the operator. Every count stops at a bound: beyond it nobody decides differently, and a huge backlog must
not make the looking slow.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from perdure.model.queues import QueueLimits, RateLimit, ReachedLimits
from perdure.model.rows import WaitingFor
from perdure.model.states import RunStatus, WorkerState
from perdure.store import waiting
from perdure.store.statements import sql

COUNT_LIMIT = 2000
"""Counts stop here: 500 workers of four slots; looking at more would cost more than it tells."""

RATE_AHEAD_SECONDS = 30.0
"""What the rate of a queue lets begin so soon is there for a worker that is started now: a pod takes about that long,
and a pool does not come and go with each single run of a slow rate."""

PARTITION_LIMIT = 200
"""So many partitions of a queue are looked at, two look-ups each: with more that have something to do, there is enough
for many workers."""

PHASE_COUNT_LIMIT = 20_000
"""Counts for metrics stop here; an index scan of some milliseconds."""

UNCLAIMED_AFTER_SECONDS = 2.0
"""A ready run is claimed within a poll interval of a second; after two there is a reason."""


@dataclass(frozen=True, slots=True)
class VersionBacklog:
    """Open runs of a pool bound to one version (None: not started yet). `waiting` = parked, delayed, suspended, or held
    back by the limits of their queue.

    Counts stop at `COUNT_LIMIT`; the oldest is searched among the counted.
    """

    version: str | None
    ready: int
    running: int
    waiting: int
    oldest_ready_seconds: float


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker that is live or draining."""

    id: str
    pod: str
    version: str
    slots: int
    queues: tuple[str, ...]
    manifest: tuple[str, ...]
    state: WorkerState
    retired: bool
    """Of an earlier version: takes only runs that are bound to it."""

    @property
    def accepts(self) -> bool:
        """Whether it takes further runs."""
        return self.state == WorkerState.LIVE


@dataclass(frozen=True, slots=True)
class UnclaimedRun:
    """A ready or suspended run that nobody has taken, with what decides who could."""

    id: str
    fence: int
    name: str | None
    pool: str
    queue: str
    requires: tuple[str, ...]
    version: str | None
    suspended: bool
    waiting_for: WaitingFor | None
    waiting_since: datetime
    partition_key: str


@dataclass(frozen=True, slots=True)
class PhaseCount:
    """Open runs of a namespace in one status, at most `PHASE_COUNT_LIMIT`."""

    namespace: str
    status: RunStatus
    runs: int


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Ready runs of one queue, at most `COUNT_LIMIT`, and for how long the oldest of the counted has been ready."""

    namespace: str
    pool: str
    queue: str
    ready: int
    oldest_seconds: float


async def most_connections(connection: asyncpg.Connection[Any]) -> int:
    """How many connections the server lets in, without those reserved for superusers."""
    most: int = await connection.fetchval(sql("connections_most"))
    return most


async def pool_backlog(connection: asyncpg.Connection[Any], namespace: str, pool: str) -> list[VersionBacklog]:
    """Open runs of a pool by version; versions without any are left out."""
    rows = await connection.fetch(
        sql("backlog_pool"), namespace, pool, COUNT_LIMIT, RATE_AHEAD_SECONDS, PARTITION_LIMIT
    )
    return [
        VersionBacklog(row["version"], row["ready"], row["running"], row["waiting"], row["oldest_ready_seconds"])
        for row in rows
    ]


async def live_workers(connection: asyncpg.Connection[Any], namespace: str, pool: str) -> list[LiveWorker]:
    """The pool's workers that are live or draining; whether their leases hold is not asked here."""
    rows = await connection.fetch(sql("backlog_live_workers"), namespace, pool)
    return [
        LiveWorker(
            id=row["id"],
            pod=row["pod"],
            version=row["version"],
            slots=row["slots"],
            queues=tuple(row["queues"]),
            manifest=tuple(row["manifest"]),
            state=WorkerState(row["state"]),
            retired=row["retired"],
        )
        for row in rows
    ]


async def unclaimed(
    connection: asyncpg.Connection[Any], namespace: str, limit: int, *, round_from: str | None = None
) -> list[UnclaimedRun]:
    """Runs untaken for two seconds: those without a reason first, then some whose reason may have changed.

    Of the latter another part each time: from the id `round_from`, or from anywhere (ids are random).
    """
    start = str(uuid.uuid4()) if round_from is None else round_from
    rows = await connection.fetch(sql("backlog_unclaimed"), namespace, limit, UNCLAIMED_AFTER_SECONDS, start)
    return [
        UnclaimedRun(
            id=row["id"],
            fence=row["fence"],
            name=row["name"],
            pool=row["pool"],
            queue=row["queue"],
            requires=tuple(row["requires"]),
            version=row["version"],
            suspended=row["suspended"],
            waiting_for=waiting.decode(row["waiting_for"]),
            waiting_since=row["waiting_since"],
            partition_key=row["partition_key"],
        )
        for row in rows
    ]


async def reached_limits(connection: asyncpg.Connection[Any], namespace: str) -> list[ReachedLimits]:
    """The queues of the namespace that have limits. Of each at most `COUNT_LIMIT` running runs are looked at."""
    return [
        ReachedLimits(
            name=row["name"],
            limits=QueueLimits(
                row["concurrency"],
                row["worker_concurrency"],
                row["partition_concurrency"],
                None if row["rate_runs"] is None else RateLimit(row["rate_runs"], row["rate_seconds"]),
            ),
            paused=row["paused"],
            full=row["is_full"],
            full_workers=frozenset(row["full_workers"]),
            full_partitions=frozenset(row["full_partitions"]),
            spent=row["is_spent"],
        )
        for row in await connection.fetch(sql("backlog_limits"), namespace, COUNT_LIMIT)
    ]


async def set_waiting(
    connection: asyncpg.Connection[Any], reasons: Sequence[tuple[str, int, WaitingFor | None]]
) -> list[str]:
    """Write (id, fence, reason) where the run is still ENQUEUED under that fence and says something else; whose
    changed. Their status becomes due."""
    latest = {run_id: (fence, reason) for run_id, fence, reason in reasons}
    ids = sorted(latest)
    rows = await connection.fetch(
        sql("backlog_set_waiting"),
        ids,
        [latest[each][0] for each in ids],
        [None if (reason := latest[each][1]) is None else waiting.encode(reason) for each in ids],
    )
    return [row["id"] for row in rows]


async def queue_depths(connection: asyncpg.Connection[Any]) -> list[QueueDepth]:
    """Every queue with ready runs, whether or not its pool exists, for metrics and alerts."""
    rows = await connection.fetch(sql("backlog_queues"), COUNT_LIMIT)
    return [
        QueueDepth(row["namespace"], row["pool"], row["queue"], row["ready"], row["oldest_seconds"]) for row in rows
    ]


async def phase_counts(connection: asyncpg.Connection[Any]) -> list[PhaseCount]:
    """Open runs by namespace and status, for metrics; what has ended is counted where it ends."""
    rows = await connection.fetch(sql("backlog_phases"), PHASE_COUNT_LIMIT)
    return [PhaseCount(row["namespace"], RunStatus(row["status"]), row["runs"]) for row in rows]
