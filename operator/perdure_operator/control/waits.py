"""Says of every run that is ready and not claimed why: keeps invariant 4, no silent wait, within five seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.errors import StoreUnavailable
from perdure.model.rows import WaitingFor
from perdure.resources.acceptance import Accepted, validate_worker_pool
from perdure.store import backlog
from perdure.telemetry.logs import get_logger

from perdure_operator.control.cache import Cache
from perdure_operator.control.database import Database
from perdure_operator.control.statuses import Statuses
from perdure_operator.plan.manifests import version_of
from perdure_operator.plan.pods import worst
from perdure_operator.plan.waiting import PoolFacts, Unclaimed, Worker, differs, waiting_for

log = get_logger(__name__)

LOOK_SECONDS = 1.5
"""Time between two looks: with the two seconds after which a run counts as unclaimed, its reason stands in the row
within four."""

BATCH = 300
"""Runs of a namespace looked at in one look, those that have waited longest without a reason first."""


class Waits:
    """Looks until cancelled."""

    def __init__(self, namespaces: Sequence[str], cache: Cache, database: Database, statuses: Statuses) -> None:
        self._namespaces = namespaces
        self._cache = cache
        self._database = database
        self._statuses = statuses

    async def run(self) -> None:
        """One look after the other. When the database is away there is nothing to say and nobody to say it to."""
        while True:
            for namespace in self._namespaces:
                try:
                    await self._look(namespace)
                except StoreUnavailable as error:
                    log.debug("no look at waiting runs", error=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, namespace: str) -> None:
        async with self._database.connection("waits") as connection:
            rows = await backlog.unclaimed(connection, namespace, BATCH)
            if not rows:
                return
            limited = {each.name: each for each in await backlog.reached_limits(connection, namespace)}
            pools = {entry.name: entry.value for entry in self._cache.pools.of_namespace(namespace)}
            facts = {
                name: await self._facts(connection, namespace, name, pools[name])
                for name in {row.pool for row in rows} & pools.keys()
            }
            changes = []
            reasons: dict[Unclaimed, WaitingFor] = {}  # runs that wait in numbers wait for the same
            for row in rows:
                queue = limited.get(row.queue)
                key = row.partition_key if queue is not None and queue.limits.partition_concurrency is not None else ""
                run = Unclaimed(namespace, row.pool, row.queue, tuple(row.requires), row.version, row.suspended, key)
                reason = reasons.get(run)
                if reason is None:
                    reason = reasons[run] = waiting_for(run, facts.get(row.pool), sorted(pools), queue)
                if differs(row.waiting_for, reason, queue, key):
                    changes.append((row.id, row.fence, reason))
            if changes:
                await backlog.set_waiting(connection, changes)
                self._statuses.kick()

    async def _facts(self, connection: Any, namespace: str, name: str, obj: Mapping[str, Any]) -> PoolFacts | None:
        validated = validate_worker_pool(obj)
        if not isinstance(validated, Accepted):
            return None
        spec = validated.resource.spec
        version = version_of(spec)
        pods = self._cache.pods.of_pool(namespace, name)
        deployments = self._cache.deployments.of_pool(namespace, name)
        blocked = next((each.trouble for each in deployments if each.version == version and each.trouble), None)
        workers = await backlog.live_workers(connection, namespace, name)
        running = await backlog.pool_backlog(connection, namespace, name)
        return PoolFacts(
            name=name,
            queues=tuple(spec.queues),
            suspended=spec.suspend,
            version=version,
            versions=frozenset(each.version for each in deployments),
            trouble=blocked or worst(pods),
            max_replicas=spec.scaling.max if spec.replicas is None else spec.replicas,
            workers=tuple(
                Worker(
                    version=each.version,
                    manifest=frozenset(each.manifest),
                    queues=frozenset(each.queues),
                    slots=each.slots,
                    accepts=each.accepts,
                    retired=each.retired,
                    id=each.id,
                )
                for each in workers
            ),
            running={each.version: each.running for each in running if each.version is not None},
        )
