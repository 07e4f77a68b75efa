"""Has runs of earlier versions go on with this worker's, and forgets versions that nothing needs any more.

A part of the sweeper, on its connection. What goes wrong here holds up no other sweep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from perdure.store import versions as store
from perdure.store.pool import is_transient
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.worker.lease import lease_clock
from perdure.worker.link import error_class
from perdure.worker.settings import WorkerSettings

log = get_logger(__name__)

EVERY = 5.0
"""Seconds between looks for runs of earlier versions: how late they are after a new version has come."""

BATCH = 500
"""Runs in one statement: it holds their row locks for some ten milliseconds, and nobody runs them."""

MAX_BATCHES = 20
"""Statements in a row before the other sweeps have their turn."""

PAUSE = 0.05
"""Seconds between them: a million runs are moved in some minutes, beside everything else."""

FORGET_EVERY = 300.0
"""Seconds between removals."""

FORGET_AFTER = 86_400.0
"""Seconds for which a version without workers and runs stays readable, for people who look for it."""


class Call(Protocol):
    """Runs an operation on the sweeper's connection."""

    def __call__(self, operation: Callable[..., Awaitable[Any]], *args: Any) -> Awaitable[Any]:
        """Its result. Raises what the database says."""
        ...


class Adoption:
    """`ready` is told of the pool when runs that can be claimed have become this version's."""

    def __init__(self, settings: WorkerSettings, metrics: Metrics, ready: Callable[[str, str], None]) -> None:
        self._settings = settings
        self._metrics = metrics
        self._ready = ready
        self._due = self._forget_due = 0.0

    async def round(self, call: Call) -> None:
        """What is due now."""
        if not self._settings.version:
            return
        try:
            if lease_clock() >= self._due:
                await self._adopt(call)
            if lease_clock() >= self._forget_due:
                await call(store.forget, FORGET_AFTER)
                self._forget_due = lease_clock() + FORGET_EVERY
        except Exception as error:
            self._metrics.count(names.STORE_ERRORS, "versions", error_class(error))
            report = log.warning if is_transient(error) else log.error
            report("runs of earlier versions could not be looked for; they are later", error=error)
            self._due = lease_clock() + EVERY

    async def _adopt(self, call: Call) -> None:
        settings, total = self._settings, 0
        for _ in range(MAX_BATCHES):
            adopted = await call(store.adopt, settings.namespace, settings.pool, settings.version, BATCH)
            if adopted.ready:
                self._ready(settings.namespace, settings.pool)
            total += adopted.runs
            if adopted.runs < BATCH:
                self._due = lease_clock() + EVERY
                break
            await asyncio.sleep(PAUSE)
        if total:
            self._metrics.count(names.RUNS_ADOPTED, by=total)
            log.info("runs of earlier versions go on with this one", runs=total, version=settings.version)
