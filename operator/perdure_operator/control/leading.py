"""Everything that the operator that leads does, put together: queues, intake, pools, sweeps, statuses.

`Leading` is built once; `run` is awaited for as long as this process leads, and may be awaited again later. The
watch feeds `take` all the time, so that the cache is warm when leadership comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from perdure.store.listen import Listener
from perdure.store.pooler import pooled
from perdure.telemetry.prometheus import Metrics

from perdure_operator.control.cache import Cache
from perdure_operator.control.database import APPLICATION_NAME, Database
from perdure_operator.control.housekeeping import Housekeeping
from perdure_operator.control.intake import Intake
from perdure_operator.control.keys import Key, PoolKey
from perdure_operator.control.metrics import Gauges
from perdure_operator.control.notify import Notifier
from perdure_operator.control.pools import Pools
from perdure_operator.control.recovery import Recovery
from perdure_operator.control.resync import Resync
from perdure_operator.control.router import Router
from perdure_operator.control.signals import Signals
from perdure_operator.control.statuses import Statuses
from perdure_operator.control.steady import SteadySession
from perdure_operator.control.supervise import supervise
from perdure_operator.control.waits import Waits
from perdure_operator.control.watch import Event, Watch
from perdure_operator.control.workqueue import WorkQueue
from perdure_operator.kube.access import Access
from perdure_operator.kube.client import Client
from perdure_operator.kube.events import EventPoster
from perdure_operator.kube.status import StatusWriter
from perdure_operator.plan.manifests import WorkerDefaults

RUNS_AT_ONCE = 16
"""Workflows taken in at once: more only wait for the eight database connections."""

POOLS_AT_ONCE = 4
PODS_AT_ONCE = 2
SIGNALS_AT_ONCE = 4

READY_SECONDS = 0.2
"""How long notifications of ready runs are gathered before their pool is looked at."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where this operator works. Times in seconds."""

    namespaces: Sequence[str]
    url: str
    access: Access
    instance: str
    lease: float
    resync: float
    defaults: WorkerDefaults


class Leading:
    """The parts and how they are joined. `leading` says whether this process leads at the moment."""

    def __init__(
        self, place: Place, client: Client, database: Database, metrics: Metrics, leading: Callable[[], bool]
    ) -> None:
        self._leading = leading
        self._url = place.url
        cache = Cache()
        writer = StatusWriter(client, metrics)
        self._events = EventPoster(client, place.instance)
        self._statuses = Statuses(database, writer, self._look_at_run)
        self._notifier = Notifier(database, self._look_at_pool)
        recovery = Recovery(cache, database, self._notifier, self._statuses, self._events, metrics)
        intake = Intake(
            client=client,
            database=database,
            writer=writer,
            events=self._events,
            statuses=self._statuses,
            notifier=self._notifier,
            enqueue=self._look_at_run,
            leading=leading,
        )
        pools = Pools(
            client=client,
            database=database,
            cache=cache,
            writer=writer,
            events=self._events,
            defaults=place.defaults,
        )
        signals = Signals(
            client=client,
            database=database,
            writer=writer,
            notifier=self._notifier,
            enqueue=self._look_at_signal,
        )
        self.runs = WorkQueue[Key]("Workflow", intake.reconcile, limit=RUNS_AT_ONCE, metrics=metrics)
        self.pools = WorkQueue[PoolKey]("WorkerPool", pools.reconcile, limit=POOLS_AT_ONCE, metrics=metrics)
        self.pods = WorkQueue[Key]("Pod", recovery.pod, limit=PODS_AT_ONCE, metrics=metrics)
        self.signals = WorkQueue[Key]("WorkflowSignal", signals.reconcile, limit=SIGNALS_AT_ONCE, metrics=metrics)
        self._router = Router(cache, intake, signals, self._look_at_pool, self._look_at_pod)
        self.watch = Watch(place.access, place.namespaces, self._router.take)
        self.resync = Resync(
            namespaces=place.namespaces,
            client=client,
            database=database,
            cache=cache,
            intake=intake,
            signals=signals,
            watch=self.watch,
            look_at_run=self._look_at_run,
            look_at_pool=self._look_at_pool,
            look_at_pod=self._look_at_pod,
            interval=place.resync,
        )
        self._waits = Waits(place.namespaces, cache, database, self._statuses)
        self._gauges = Gauges(place.namespaces, cache, database, metrics)
        self._housekeeping = Housekeeping(
            SteadySession(place.url, metrics), place.lease, recovery, self._notifier, self._statuses, metrics
        )
        self._listener = Listener(place.url, self._heard, lambda: None, application_name=APPLICATION_NAME)

    def take(self, event: Event) -> None:
        """One event of the watch."""
        self._router.take(event)

    async def run(self) -> None:
        """Lead, until cancelled. What needs no list starts at once; decisions wait for a complete one."""
        async with asyncio.TaskGroup() as group:

            def start(name: str, service: Callable[[], Awaitable[None]]) -> None:
                group.create_task(supervise(name, service), name=name)

            start("events", self._events.run)
            start("notifier", self._notifier.run)
            if not pooled(self._url):  # nobody can listen in a pooler's sessions: pools are looked at in turn
                start("listener", self._listener.run)
            start("statuses", self._statuses.run)
            start("housekeeping", self._housekeeping.run)
            start("intake", self.runs.run)
            await self.resync.first()
            start("pools", self.pools.run)
            start("pods", self.pods.run)
            start("signals", self.signals.run)
            start("waits", self._waits.run)
            start("gauges", self._gauges.run)
            start("resync", self.resync.run)

    def _look_at_run(self, key: Key) -> None:
        if self._leading():
            self.runs.add(key)

    def _look_at_pool(self, key: PoolKey, delay: float = 0.0) -> None:
        if not self._leading():
            return
        if delay:
            self.pools.add_after(key, delay)
        else:
            self.pools.add(key)

    def _look_at_signal(self, key: Key) -> None:
        if self._leading():
            self.signals.add(key)

    def _look_at_pod(self, key: Key) -> None:
        if self._leading():
            self.pods.add(key)

    def _heard(self, namespace: str, pool: str) -> None:
        """A worker or a client says that runs of a pool became ready."""
        self._look_at_pool(PoolKey(namespace, pool), READY_SECONDS)
