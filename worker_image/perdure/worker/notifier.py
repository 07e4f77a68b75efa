"""News between processes: runs that became ready, for workers; awaited ends, for clients; and an ear for the former.

Used by runner, sweeper, journal and session. One NOTIFY for all of a moment, never inside a hot transaction. Only
hurries what polling finds anyway, so a failure is logged and forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container

from perdure.store.listen import Listener, notify_ended, notify_ready
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.worker.link import Link
from perdure.worker.service import Service

log = get_logger(__name__)

COALESCE_SECONDS = 0.002
"""Least time between two sendings: the first news goes at once, those of a burst together. Less than any run takes,
so that whoever waits for one, starts the next and waits again is never held up."""


class Notifier(Service):
    """Sends what `ready` and `ended` were told."""

    name = "notifier"

    def __init__(self, link: Link, metrics: Metrics) -> None:
        super().__init__()
        self._link = link
        self._metrics = metrics
        self._pools: set[tuple[str, str]] = set()
        self._ended: list[str] = []
        self._news = asyncio.Event()

    def ready(self, namespace: str, pool: str) -> None:
        """Runs of this pool became ready. Returns at once."""
        self._pools.add((namespace, pool))
        self._news.set()

    def ended(self, run_id: str) -> None:
        """This run has ended, and somebody waits for that. Returns at once."""
        self._ended.append(run_id)
        self._news.set()

    async def run(self) -> None:
        """Send for ever."""
        while True:
            await self._news.wait()
            await self.flush()
            await asyncio.sleep(COALESCE_SECONDS)

    async def flush(self) -> None:
        """Send what is there now."""
        self._news.clear()
        pools, self._pools = self._pools, set()
        ended, self._ended = self._ended, []
        try:
            if ended:
                await self._link.call(notify_ended, ended)
            for namespace, pool in sorted(pools):
                await self._link.call(notify_ready, namespace, pool)
                self._metrics.count(names.WAKES, namespace, pool)
        except Exception as error:
            log.debug("notifications were not sent", pools=pools, ended=len(ended), error=error)


class Ear(Service):
    """Hears what others send; `heard` is told the namespace and pool, `asked` which runs were cancelled, `missed` that
    something may have been missed."""

    name = "listener"

    def __init__(
        self,
        url: str,
        heard: Callable[[str, str], None],
        missed: Callable[[], None],
        asked: Callable[[Container[str]], None],
    ) -> None:
        super().__init__()
        self._listener = Listener(url, heard, missed, application_name="perdure-listener", on_cancelled=asked)

    async def run(self) -> None:
        """Listen for ever."""
        await self._listener.run()
