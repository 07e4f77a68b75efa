"""News of ready runs between workers: one NOTIFY per pool and moment, never inside a hot transaction; and its ear.

Used by runner, sweeper and session. Only hurries what polling finds anyway, so a failure is logged and forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from perdure.store.listen import Listener, notify_ready
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.worker.link import Link
from perdure.worker.service import Service

log = get_logger(__name__)

COALESCE_SECONDS = 0.01
"""How long news of one pool are gathered: a drain releases many runs in one moment."""


class Notifier(Service):
    """Sends what `ready` was told."""

    name = "notifier"

    def __init__(self, link: Link, metrics: Metrics) -> None:
        super().__init__()
        self._link = link
        self._metrics = metrics
        self._pools: set[tuple[str, str]] = set()
        self._news = asyncio.Event()

    def ready(self, namespace: str, pool: str) -> None:
        """Runs of this pool became ready. Returns at once."""
        self._pools.add((namespace, pool))
        self._news.set()

    async def run(self) -> None:
        """Send for ever."""
        while True:
            await self._news.wait()
            await asyncio.sleep(COALESCE_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Send what is there now."""
        self._news.clear()
        pools, self._pools = self._pools, set()
        for namespace, pool in sorted(pools):
            try:
                await self._link.call(notify_ready, namespace, pool)
            except Exception as error:
                log.debug("a notification was not sent", namespace=namespace, pool=pool, error=error)
                return
            self._metrics.count(names.WAKES, namespace, pool)


class Ear(Service):
    """Hears what others send; `heard` is told the namespace and pool, `missed` that something may have been missed."""

    name = "listener"

    def __init__(self, url: str, heard: Callable[[str, str], None], missed: Callable[[], None]) -> None:
        super().__init__()
        self._listener = Listener(url, heard, missed, application_name="perdure-listener")

    async def run(self) -> None:
        """Listen for ever."""
        await self._listener.run()
