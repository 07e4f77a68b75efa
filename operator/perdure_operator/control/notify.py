"""Tells workers, and the pools' reconcile, that runs became ready: coalesced, never in a transaction of a write.

A lost notification costs a poll interval, nothing else, so errors are dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from perdure.errors import StoreUnavailable
from perdure.store.listen import notify_ready

from perdure_operator.control.database import Database
from perdure_operator.control.keys import PoolKey

GATHER_SECONDS = 0.01
"""How long notifications of one pool are gathered: below what anybody notices, above the time between two upserts."""


class Notifier:
    """`ready` may be called for every run; each pool is told once a moment."""

    def __init__(self, database: Database, look_at_pool: Callable[[PoolKey], None]) -> None:
        self._database = database
        self._look_at_pool = look_at_pool
        self._pending: set[PoolKey] = set()
        self._wake = asyncio.Event()

    def ready(self, namespace: str, pool: str) -> None:
        """Runs of this pool became ready."""
        self._pending.add(PoolKey(namespace, pool))
        self._wake.set()

    async def run(self) -> None:
        """Send what is pending, until cancelled."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._wake.clear()
            pools, self._pending = self._pending, set()
            for key in pools:
                self._look_at_pool(key)
            try:
                async with self._database.connection("notify") as connection:
                    for key in pools:
                        await notify_ready(connection, key.namespace, key.name)
            except StoreUnavailable:
                continue  # workers poll
