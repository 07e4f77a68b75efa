"""What outlives a registration: sweeper, wakes, listener, reporter, notifier, retention, threads, watch on the loop.

One for each `Worker`, which says when all of it begins and ends. Promises: a registration that is lost takes none of
it along, so that ends and statuses of its runs are still told; every connection that was made here is closed by
`close`, after what uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from perdure.store.pooler import pooled
from perdure.telemetry.prometheus import Metrics
from perdure.worker.adoption import Adoption
from perdure.worker.answers import StatusApi
from perdure.worker.link import Link, statement_limit
from perdure.worker.notifier import Ear, Notifier
from perdure.worker.reporter import Reporter
from perdure.worker.retention import Retention
from perdure.worker.service import Service
from perdure.worker.settings import WorkerSettings
from perdure.worker.sweeper import Sweeper
from perdure.worker.wakes import Wakes
from perdure.worker.watch import LoopWatch

STEP_THREADS = "perdure-step"
"""How the names of threads begin that run synchronous steps."""


class Lasting:
    """See the module. `status_api` None writes no statuses. `wake`: there may be runs to claim here. `asked`: something
    is wanted of these runs. `busy`: runs held now. `skipped`: as for `fire_due`."""

    def __init__(
        self,
        settings: WorkerSettings,
        database_url: str,
        status_api: StatusApi | None,
        metrics: Metrics,
        *,
        wake: Callable[[], None],
        asked: Callable[[Container[str]], None],
        busy: Callable[[], int],
        skipped: Callable[[], timedelta],
    ) -> None:
        self._settings = settings
        self._database_url = database_url
        self._status_api = status_api
        self._wake = wake
        self._links: list[Link] = []
        self.threads = ThreadPoolExecutor(settings.threads, thread_name_prefix=STEP_THREADS)
        self.watch = LoopWatch(metrics)
        # Nobody else's: whoever waits for a run's end should not wait behind the reading of a status.
        self.notifier = Notifier(self.link("news"), metrics)
        # A pooler lends sessions for a transaction: nobody can listen in one, and runs are found by polling alone.
        self._ear = None if pooled(database_url) else Ear(database_url, self._ready, wake, asked)
        self.wakes = Wakes(self.link("wakes"), settings.pool, metrics, self.tell)
        adoption = Adoption(settings, metrics, self.tell)
        self._sweeper = Sweeper(self.link("sweeper"), settings.lease_seconds, metrics, self.tell, skipped, adoption)
        self.reporter = None if status_api is None else Reporter(status_api, self.link("reports"), metrics)
        self._retention = (
            Retention(self.link("retention"), settings, metrics, busy) if settings.retention_seconds else None
        )

    def start(self) -> None:
        """Begin with all but the watch, for which no database is needed."""
        self.notifier.start()
        self.wakes.start()
        self._sweeper.start()
        if self._ear is not None:
            self._ear.start()
        if self.reporter is not None:
            self.reporter.start()
        if self._retention is not None:
            self._retention.start()

    async def keep_all(self) -> None:
        """Remove no more runs: the worker drains."""
        if self._retention is not None:
            await self._retention.stop()

    async def flush(self, seconds: float) -> None:
        """Tell of all ends that are still to be told, and write statuses for so many seconds at most."""
        await self.notifier.flush()
        if self.reporter is not None:
            await self.reporter.flush(seconds)

    async def close(self) -> None:
        """End all of it. Sync steps that still run are left behind."""
        services: list[Service | None] = [
            self._retention,
            self.reporter,
            self._ear,
            self._sweeper,
            self.wakes,
            self.notifier,
            self.watch,
        ]
        for service in services:
            if service is not None:
                await service.stop()
        for link in self._links:
            await link.close()
        if self._status_api is not None:
            await self._status_api.close()
        self.threads.shutdown(wait=False, cancel_futures=True)

    def tell(self, namespace: str, pool: str) -> None:
        """This process has made runs ready: others are told, and it tells itself where it cannot listen."""
        self.notifier.ready(namespace, pool)
        if self._ear is None:
            self._ready(namespace, pool)

    def link(self, purpose: str) -> Link:
        """A connection of its own, made at its first use and closed by `close`."""
        link = Link(
            self._database_url,
            application_name=f"perdure-{purpose}",
            statement_timeout=statement_limit(self._settings.lease_seconds),
        )
        self._links.append(link)
        return link

    def _ready(self, namespace: str, pool: str) -> None:
        if (namespace, pool) == (self._settings.namespace, self._settings.pool):
            self._wake()
