"""Removes ended runs without a resource once they are old, a little at a time.

Owned by `worker`. It keeps out of the way: its connection is open only while there is something to do, it begins in
a moment in which the worker has a free slot, and it rests longer than it works. Several workers may do it at once,
each skips what another one holds. Keeps the promise that nothing is removed that a live run has to do with.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from perdure.store import retention as store
from perdure.store import runs
from perdure.store.pool import is_transient
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.worker.link import Link, error_class
from perdure.worker.service import Service, backoff
from perdure.worker.settings import WorkerSettings

log = get_logger(__name__)

EVERY_SECONDS = 60.0
"""Between looks for runs that have become old: late by a minute is nothing for an age of hours."""

BATCH = 200
"""Runs marked or removed in one statement: it holds their row locks for some milliseconds."""

REST = 4.0
"""How many times as long as a batch took it rests: at most a fifth of one connection's time."""

LEAST_REST = 0.05

PATIENCE = 20
"""Looks for a free slot before it begins all the same: a worker that is always busy must remove, too."""

LOOK_SECONDS = 0.5


class Retention(Service):
    """`busy` gives the number of runs in progress; with `retention_seconds` 0 there is nothing to start."""

    name = "retention"

    def __init__(self, link: Link, settings: WorkerSettings, metrics: Metrics, busy: Callable[[], int]) -> None:
        super().__init__()
        self._link = link
        self._settings = settings
        self._metrics = metrics
        self._busy = busy
        self._place = store.Place()

    async def run(self) -> None:
        """Mark and remove for ever."""
        failures = 0
        while True:
            pause = EVERY_SECONDS * random.uniform(0.5, 1.5)  # noqa: S311 - spreads workers, no secret
            try:
                await self._pass()
                failures = 0
            except Exception as error:
                failures += 1
                pause = max(pause, backoff(failures))
                self._metrics.count(names.STORE_ERRORS, "retention", error_class(error))
                if failures & (failures - 1) == 0:
                    report = log.warning if is_transient(error) else log.error
                    report("old runs could not be removed", error=error, failures=failures)
            await self._link.close()
            await asyncio.sleep(pause)

    async def _pass(self) -> None:
        """All that is old now, then again from the beginning: what was let be may have become free."""
        self._place = store.Place()
        total = 0
        await self._quiet()
        while True:
            begun = time.monotonic()
            page = await self._link.call(
                store.mark,
                self._settings.namespace,
                self._settings.pool,
                age=self._settings.retention_seconds,
                place=self._place,
                limit=BATCH,
            )
            self._place = page.place
            purged = await self._link.call(runs.purge, BATCH)
            total += purged.runs
            self._metrics.count(names.RUNS_REMOVED, by=purged.runs)
            if page.seen < BATCH and purged.runs < BATCH and not purged.rows:
                break
            await asyncio.sleep(max(LEAST_REST, REST * (time.monotonic() - begun)))
        if total:
            log.info("removed old runs", runs=total, older_than_seconds=self._settings.retention_seconds)

    async def _quiet(self) -> None:
        for _ in range(PATIENCE):
            if self._busy() < self._settings.slots:
                return
            await asyncio.sleep(LOOK_SECONDS)
