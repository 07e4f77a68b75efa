"""WorkerPools into Deployments: observes one pool, asks the plan, applies it, writes the status.

Looked at when the pool, its Deployments or its pods change, when runs became ready, and every few seconds besides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from perdure.errors import StoreUnavailable
from perdure.resources.acceptance import Accepted, Rejected, validate_worker_pool
from perdure.resources.kinds import WORKER_POOL
from perdure.resources.workerpool import WorkerPoolResource
from perdure.store import backlog as store
from perdure.store import workers
from perdure.telemetry.logs import get_logger

from perdure_operator.control.cache import Cache
from perdure_operator.control.database import Database
from perdure_operator.control.keys import PoolKey
from perdure_operator.control.workqueue import Again
from perdure_operator.kube import deployments
from perdure_operator.kube.client import Client
from perdure_operator.kube.deployments import NotOurs
from perdure_operator.kube.errors import ApiRefused
from perdure_operator.kube.events import EventPoster
from perdure_operator.kube.status import StatusWriter
from perdure_operator.plan.connections import Connections
from perdure_operator.plan.events import EventReason, pool_notice
from perdure_operator.plan.manifests import WorkerDefaults
from perdure_operator.plan.pool import IDLE_RECHECK, Observed, Plan, plan
from perdure_operator.plan.pool_status import status_of_invalid
from perdure_operator.plan.scale import Backlog, Memory

log = get_logger(__name__)


@dataclass(slots=True)
class PoolState:
    """What this process remembers of a pool between two looks; losing it costs nothing but patience."""

    uid: str
    memory: Memory = field(default_factory=Memory)
    refused: str | None = None
    backlog: Mapping[str | None, Backlog] | None = None
    most_connections: int | None = None


class Pools:
    """Reconciles pools by name. `states` of pools that are gone are dropped with them."""

    def __init__(
        self,
        *,
        client: Client,
        database: Database,
        cache: Cache,
        writer: StatusWriter,
        events: EventPoster,
        defaults: WorkerDefaults,
    ) -> None:
        self._client = client
        self._database = database
        self._cache = cache
        self._writer = writer
        self._events = events
        self._defaults = defaults
        self._states: dict[PoolKey, PoolState] = {}

    async def reconcile(self, key: PoolKey) -> Again | None:
        """One look at a pool. Its Deployments are removed by the garbage collector of the cluster when it is gone."""
        obj = self._cache.pool(key.namespace, key.name)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            self._states.pop(key, None)
            return None
        match validate_worker_pool(obj):
            case Rejected(message=message):
                await self._write_status(obj, status_of_invalid(obj, message, _clock()))
                return Again(IDLE_RECHECK)
            case Accepted(resource=pool):
                return await self._reconcile(key, obj, pool)

    async def _reconcile(self, key: PoolKey, obj: Mapping[str, Any], pool: WorkerPoolResource) -> Again:
        state = self._states.get(key)
        if state is None or state.uid != pool.metadata.uid:
            state = self._states[key] = PoolState(pool.metadata.uid)
        state.backlog = await self._backlog(key, state)
        decided = plan(self._observe(key, pool, state), self._defaults)
        state.memory = decided.memory
        refused = await self._apply(obj, pool, decided)
        if refused != state.refused:
            state.refused = refused
            decided = plan(self._observe(key, pool, state), self._defaults)
        await self._write_status(obj, decided.status)
        return Again(decided.recheck)

    def _observe(self, key: PoolKey, pool: WorkerPoolResource, state: PoolState) -> Observed:
        known = self._cache.deployments.of_pool(key.namespace, key.name)
        return Observed(
            pool=pool,
            deployments=[each for each in known if each.owner_uid == pool.metadata.uid],
            pods=self._cache.pods.of_pool(key.namespace, key.name),
            backlog=state.backlog,
            now=asyncio.get_running_loop().time(),
            clock=_clock(),
            memory=state.memory,
            unknown_for=self._database.silent_for,
            refused=state.refused,
            connections=self._connections(key, pool, state),
        )

    def _connections(self, key: PoolKey, pool: WorkerPoolResource, state: PoolState) -> Connections | None:
        """None for a pool that is on another server than this operator, and behind a pooler, which shares them."""
        if state.most_connections is None or pool.spec.database is not None or self._database.pooled:
            return None
        others = (each for each in self._cache.deployments.everywhere() if PoolKey(each.namespace, each.pool) != key)
        return Connections(state.most_connections, sum(each.value.replicas for each in others))

    async def _backlog(self, key: PoolKey, state: PoolState) -> Mapping[str | None, Backlog] | None:
        """Runs by version; None when the database does not answer, which is not the same as none."""
        try:
            async with self._database.connection("backlog") as connection:
                rows = await store.pool_backlog(connection, key.namespace, key.name)
                state.most_connections = await store.most_connections(connection)
        except StoreUnavailable as error:
            log.debug("backlog unknown, replicas stay", pool=str(key), error=str(error))
            return None
        return {row.version: Backlog(row.ready, row.running, row.waiting) for row in rows}

    async def _apply(self, obj: Mapping[str, Any], pool: WorkerPoolResource, decided: Plan) -> str | None:
        """Apply the plan; what the API server has against the Deployment, if anything."""
        namespace = pool.metadata.namespace
        refused = None
        if decided.apply is not None:
            refused = await self._apply_manifest(obj, decided)
        if decided.retire is not None:
            async with self._database.connection("retire") as connection:
                await workers.retire(connection, namespace, pool.metadata.name, decided.retire)
        for change in decided.scale:
            await deployments.scale(self._client, namespace, change.name, change.replicas)
            text = f"{change.name}: {change.before} to {change.replicas} pods, {change.why}"
            self._tell(obj, EventReason.POOL_SCALED, text)
        for old in decided.delete:
            await deployments.delete(self._client, namespace, old.name, old.uid)
            self._tell(obj, EventReason.VERSION_REMOVED, f"{old.name}: no run belongs to it any more")
        return refused

    async def _apply_manifest(self, obj: Mapping[str, Any], decided: Plan) -> str | None:
        manifest = decided.apply
        assert manifest is not None
        name = manifest["metadata"]["name"]
        uid = obj["metadata"]["uid"]
        known = self._cache.deployments.of_pool(obj["metadata"]["namespace"], obj["metadata"]["name"])
        present = next((each for each in known if each.name == name and each.owner_uid == uid), None)
        try:
            if present is None:
                await deployments.create(self._client, manifest, decided.initial)
                self._tell(obj, EventReason.VERSION_ADDED, f"{name}: starts with {decided.initial} pods")
            else:
                await deployments.update(self._client, manifest, present.replicas)
        except NotOurs as error:
            return str(error)
        except ApiRefused as error:
            if error.status not in (400, 403, 422):
                raise
            return f"the API server refuses the Deployment of this template: {error.message}"
        return None

    async def _write_status(self, obj: Mapping[str, Any], status: dict[str, Any]) -> None:
        """Write what differs from the stored status; say it as an Event when the pool has got stuck."""
        before = obj.get("status") or {}
        if status == before:
            return
        metadata = obj["metadata"]
        await self._writer.write(WORKER_POOL, metadata["namespace"], metadata["name"], metadata["uid"], status)
        stuck, was = _stalled(status), _stalled(before)
        if stuck is not None and (was is None or was["reason"] != stuck["reason"]):
            self._tell(obj, EventReason.POOL_STALLED, stuck["message"])

    def _tell(self, obj: Mapping[str, Any], reason: EventReason, message: str) -> None:
        metadata = obj["metadata"]
        log.info(message, namespace=metadata["namespace"], pool=metadata["name"], reason=reason.value)
        self._events.post(pool_notice(obj, reason, message))


def _stalled(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for condition in status.get("conditions") or []:
        if condition.get("type") == "Stalled" and condition.get("status") == "True":
            found: Mapping[str, Any] = condition
            return found
    return None


def _clock() -> datetime:
    return datetime.now(UTC)
