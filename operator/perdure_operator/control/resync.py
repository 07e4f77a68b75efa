"""The full comparison: lists everything, hands it to intake and cache, and finds runs whose resource is gone.

Done when this process begins to lead and then every few minutes; what any watch may have missed is found here.
Keeps invariant 8: a run counts as a ghost only if it was in the database before a list of its whole namespace was
read to the end, is not in that list, and the API server says of its name that there is no such object.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from perdure.errors import StoreUnavailable
from perdure.resources.kinds import WORKER_POOL, WORKFLOW, WORKFLOW_SIGNAL
from perdure.store import runs, status
from perdure.telemetry.logs import get_logger

from perdure_operator.control.cache import Cache, Shelf
from perdure_operator.control.database import Database
from perdure_operator.control.intake import Intake
from perdure_operator.control.keys import Key, PoolKey
from perdure_operator.control.signals import Signals
from perdure_operator.control.watch import Watch
from perdure_operator.kube.client import Client
from perdure_operator.kube.deployments import path as deployments_path
from perdure_operator.kube.errors import ApiRefused, ApiUnavailable
from perdure_operator.plan.manifests import POOL_LABEL

log = get_logger(__name__)

PAGE = 1000
"""Run ids read in one statement."""

RETRY_SECONDS = 5.0
"""Wait after a comparison that could not be finished."""

DEAF_SECONDS = 10.0
"""How long the watch may take to tell of what a list has; longer, and it is started anew."""


class Resync:
    """Compares when asked and every `interval` seconds. `age` tells the liveness probe that it goes on."""

    def __init__(
        self,
        *,
        namespaces: Sequence[str],
        client: Client,
        database: Database,
        cache: Cache,
        intake: Intake,
        signals: Signals,
        watch: Watch,
        look_at_run: Callable[[Key], None],
        look_at_pool: Callable[[PoolKey], None],
        look_at_pod: Callable[[Key], None],
        interval: float,
    ) -> None:
        self._namespaces = namespaces
        self._client = client
        self._database = database
        self._cache = cache
        self._intake = intake
        self._signals = signals
        self._watch = watch
        self._look_at_run = look_at_run
        self._look_at_pool = look_at_pool
        self._look_at_pod = look_at_pod
        self._interval = interval
        self.done_at = self.tried_at = time.monotonic()

    @property
    def silent_for(self) -> float:
        """Seconds since a comparison was begun."""
        return time.monotonic() - self.tried_at

    @property
    def age(self) -> float:
        """Seconds since a comparison ended well; since this process became leader before the first one. The alert on an
        operator that does not reconcile reads it, so a try that fails must not make it young again."""
        return time.monotonic() - self.done_at

    async def first(self) -> None:
        """Compare until it succeeds once: nothing is decided about pools before all their parts are known."""
        self.done_at = self.tried_at = time.monotonic()
        self._intake.forget_all()
        self._signals.forget_all()
        await self._until_done()

    async def run(self) -> None:
        """Compare every `interval` seconds, until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            await self._until_done()
            await self._listen_to_watch()

    async def _until_done(self) -> None:
        said: Exception | None = None
        while True:
            self.tried_at = time.monotonic()
            try:
                for namespace in self._namespaces:
                    await self._namespace(namespace)
            except (ApiUnavailable, ApiRefused, StoreUnavailable) as error:
                if type(error) is not type(said):
                    log.warning("comparison of resources and runs not finished; it is tried again", error=str(error))
                said = error
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.done_at = time.monotonic()
                return

    async def _listen_to_watch(self) -> None:
        """What a list has, the watch must tell of within a moment; else it is deaf, whatever its connection says."""
        untold = self._intake.untold()
        if untold:
            await asyncio.sleep(DEAF_SECONDS)
            untold &= self._intake.untold()
        if untold:
            log.warning("the watch does not tell of changes that a list has; it is started anew", objects=len(untold))
            self._watch.restart()

    async def _namespace(self, namespace: str) -> None:
        rows = await self._row_ids(namespace)
        await self._refill(self._cache.deployments, namespace, deployments_path(namespace), POOL_LABEL)
        await self._refill(self._cache.pods, namespace, f"/api/v1/namespaces/{namespace}/pods", POOL_LABEL)
        await self._refill(self._cache.pools, namespace, WORKER_POOL.path(namespace), None)
        for pool in self._cache.pools.of_namespace(namespace):
            self._look_at_pool(PoolKey(namespace, pool.name))
        for pod in self._cache.pods.of_namespace(namespace):
            if pod.value.worker_ended:
                self._look_at_pod(Key(namespace, pod.name, pod.value.uid))
        known = self._intake.known()
        listed: set[str] = set()
        async for page in self._client.list(WORKFLOW.path(namespace)):
            for obj in page:
                uid = obj["metadata"]["uid"]
                listed.add(uid)
                self._intake.listed(obj, has_row=uid in rows)
            await asyncio.sleep(0)  # a page is some milliseconds of work; the loop has other things to do as well
        self._intake.keep_only(namespace, known, listed)
        await self._ghosts(namespace, rows - listed)
        async for page in self._client.list(WORKFLOW_SIGNAL.path(namespace)):
            for obj in page:
                self._signals.offer(obj)
            await asyncio.sleep(0)

    async def _row_ids(self, namespace: str) -> set[str]:
        found: set[str] = set()
        after = ""
        while True:
            async with self._database.connection("resync") as connection:
                page = await runs.resource_ids(connection, namespace, after, PAGE)
            found.update(page)
            if len(page) < PAGE:
                return found
            after = page[-1]

    async def _refill(self, shelf: Shelf[Any], namespace: str, path: str, selector: str | None) -> None:
        known = shelf.uids()
        listed: set[str] = set()
        async for page in self._client.list(path, selector=selector):
            for obj in page:
                listed.add(obj["metadata"]["uid"])
                shelf.put(obj)
        shelf.keep_only(namespace, known, listed)

    async def _ghosts(self, namespace: str, ids: set[str]) -> None:
        """Have each looked at: its reconcile asks the API server once more before anything is cancelled."""
        pending = sorted(ids)
        while pending:
            batch, pending = pending[:100], pending[100:]
            async with self._database.connection("resync") as connection:
                sources = await status.read(connection, batch)
            for source in sources:
                if source.run.name is not None:
                    self._look_at_run(Key(namespace, source.run.name, source.run.id))
        if ids:
            log.info("runs without a resource", namespace=namespace, count=len(ids))
