"""Tells workers that runs were started, so that an idle one claims at once: one NOTIFY for all of a moment.

Used by the client, after what it started is durable. Only hurries what polling finds anyway, so nobody waits for it
and a failure is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from perdure.client.database import Database
from perdure.errors import PerdureError
from perdure.store.listen import notify_ready

PAUSE_SECONDS = 0.002
"""Least time between two notifications: the first goes at once, those of a burst together. Less than a run takes, so
that whoever starts one after the other is never held up."""


class News:
    """Sends what `ready` was told."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pools: set[tuple[str, str]] = set()
        self._task: asyncio.Task[None] | None = None

    def ready(self, pools: Iterable[tuple[str, str]]) -> None:
        """Runs of these pools, each in a namespace, became ready. Returns at once."""
        self._pools.update(pools)
        if self._pools and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._send(), name="perdure client: news")

    async def close(self) -> None:
        """Send what is left, if the database takes it at once."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=1.0)
            self._task.cancel()

    async def _send(self) -> None:
        while self._pools:
            pools, self._pools = self._pools, set()
            try:
                for namespace, pool in sorted(pools):
                    await self._database.call(notify_ready, namespace, pool)
            except PerdureError:
                return
            await asyncio.sleep(PAUSE_SECONDS)
