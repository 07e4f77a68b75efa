"""The gauges that only the operator can know: runs by phase, ready runs by queue, workers and replicas by pool.

Read every few seconds by the operator that leads; bounded statements, so that scraping costs the database nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from perdure.errors import StoreUnavailable
from perdure.model.states import PHASE_OF
from perdure.store import backlog
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Labels, Metrics

from perdure_operator.control.cache import Cache
from perdure_operator.control.database import Database

log = get_logger(__name__)

LOOK_SECONDS = 10.0
"""Time between two looks: below the shortest usual scrape interval of 15 s."""

GAUGES = (names.RUNS, names.QUEUE_READY, names.QUEUE_OLDEST_READY_SECONDS, names.POOL_WORKERS, names.POOL_REPLICAS)


class Gauges:
    """Looks until cancelled; then its series disappear, so that only the leader's are there."""

    def __init__(self, namespaces: Sequence[str], cache: Cache, database: Database, metrics: Metrics) -> None:
        self._namespaces = tuple(namespaces)
        self._cache = cache
        self._database = database
        self._metrics = metrics

    async def run(self) -> None:
        """One look after the other. What cannot be read keeps its last values."""
        try:
            while True:
                try:
                    await self._look()
                except StoreUnavailable as error:
                    log.debug("gauges keep their values", error=str(error))
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            for gauge in GAUGES:
                self._metrics.replace(gauge, {})

    async def _look(self) -> None:
        pools = [
            (entry.namespace, entry.name) for ns in self._namespaces for entry in self._cache.pools.of_namespace(ns)
        ]
        async with self._database.connection("metrics") as connection:
            phases = await backlog.phase_counts(connection)
            queues = await backlog.queue_depths(connection)
            places = sorted({*pools, *((each.namespace, each.pool) for each in queues)})
            workers: dict[Labels, float] = {
                (*place, state): float(count)
                for place in places
                for state, count in Counter(
                    each.state.name.lower() for each in await backlog.live_workers(connection, *place)
                ).items()
            }
        runs: dict[Labels, float] = {}
        for each in (found for found in phases if found.namespace in self._namespaces):
            labels = (each.namespace, PHASE_OF[each.status].value)
            runs[labels] = runs.get(labels, 0.0) + each.runs
        served = [each for each in queues if each.namespace in self._namespaces]
        self._metrics.replace(names.RUNS, runs)
        ready: dict[Labels, float] = {}
        oldest: dict[Labels, float] = {}
        for queue in served:
            place = (queue.namespace, queue.pool, queue.queue)
            ready[place], oldest[place] = float(queue.ready), queue.oldest_seconds
        self._metrics.replace(names.QUEUE_READY, ready)
        self._metrics.replace(names.QUEUE_OLDEST_READY_SECONDS, oldest)
        self._metrics.replace(names.POOL_WORKERS, workers)
        self._metrics.replace(names.POOL_REPLICAS, self._replicas(pools))

    def _replicas(self, pools: Sequence[tuple[str, str]]) -> dict[Labels, float]:
        found: dict[Labels, float] = {}
        for namespace, pool in pools:
            deployments = self._cache.deployments.of_pool(namespace, pool)
            found[namespace, pool, "desired"] = float(sum(each.replicas for each in deployments))
            found[namespace, pool, "current"] = float(sum(each.pods for each in deployments))
        return found
