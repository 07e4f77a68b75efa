"""The sweeps over the database that any healthy process may do: marks the dead, moves their runs, wakes, ends, removes.

Each is one bounded statement, safe beside the same sweep in every worker. The operator does them as well, so that
a namespace without a single worker still wakes and ends its runs.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import asyncpg
from perdure.errors import StoreUnavailable
from perdure.store import runs, sweeps, wakes, workers
from perdure.store.firing import fire_due
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics

from perdure_operator.control.notify import Notifier
from perdure_operator.control.recovery import Recovery, end_sessions
from perdure_operator.control.statuses import Statuses
from perdure_operator.control.steady import SteadySession

log = get_logger(__name__)

ROUND_SECONDS = 1.0
"""Time between two rounds: the precision with which delayed runs start and deadlines end them without a worker."""

BATCH = 100
AWAITED_BATCH = 500
"""Runs looked at in a round that other runs wait for: a few milliseconds of Postgres' time."""

FIRINGS = 20
"""Transactions in a round that fire schedules: hundreds of one minute, before the other sweeps have their turn."""

FORGET_SECONDS = 600.0
"""Time between two removals of old worker rows."""

REMEMBER_WORKERS = 3600.0
"""Seconds for which the row of a worker that is gone is kept, for people who look for it."""


class Housekeeping:
    """One round after the other until cancelled. `lease` is that of the workers, in seconds."""

    def __init__(
        self,
        session: SteadySession,
        lease: float,
        recovery: Recovery,
        notifier: Notifier,
        statuses: Statuses,
        metrics: Metrics,
    ) -> None:
        self._session = session
        self._lease = lease
        self._recovery = recovery
        self._notifier = notifier
        self._statuses = statuses
        self._metrics = metrics
        self._awaited_behind = ""

    async def run(self) -> None:
        """Rounds are spread at random, so that processes started together do not sweep together."""
        loop = asyncio.get_running_loop()
        forget_at = loop.time()
        try:
            while True:
                try:
                    await self._round()
                    if loop.time() >= forget_at:
                        async with self._session.connection("forget") as connection:
                            await workers.forget(connection, REMEMBER_WORKERS)
                        forget_at = loop.time() + FORGET_SECONDS
                except StoreUnavailable as error:
                    log.debug("no sweep", error=str(error))
                await asyncio.sleep(ROUND_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311 # spreads load, no secret
        finally:
            self._session.close()

    async def _round(self) -> None:
        async with self._session.connection("sweep") as connection:
            await self._wake(connection)
            if await sweeps.cancel_overdue(connection, BATCH) or await wakes.cascade(connection, BATCH):
                self._statuses.kick()
            while await runs.purge_gone(connection, BATCH) >= BATCH:
                pass
        if self._session.unbroken_for(self._lease) >= self._lease:
            await self._mark_expired()
        await self._recovery.move_all()
        await self._fire_schedules()

    async def _mark_expired(self) -> None:
        async with self._session.connection("expire") as connection:
            dead = await workers.mark_expired(connection, BATCH)
            await end_sessions(connection, dead, pooled=self._session.pooled)
        if dead:
            self._metrics.count(names.LEASE_EXPIRIES, by=len(dead))
            log.warning("leases ran out, workers marked dead", workers=dead)

    async def _fire_schedules(self) -> None:
        """Schedules tick also while no worker is there: their runs are what brings workers back."""
        try:
            async with self._session.connection("schedules") as connection:
                for _ in range(FIRINGS):
                    fired = await fire_due(connection)
                    if not fired.seen:
                        return
                    for outcome, ticks in fired.outcomes.items():
                        self._metrics.count(names.SCHEDULE_TICKS, outcome, by=ticks)
                    for namespace, pool in {(run.namespace, run.pool) for run in fired.runs}:
                        self._notifier.ready(namespace, pool)
        except asyncpg.PostgresError as error:
            log.warning("schedules could not be fired; they are in the next round", error=error)

    async def _wake(self, connection: Any) -> None:
        woken = set(await sweeps.wake_due(connection, BATCH))
        told = await wakes.announce_untold(connection, BATCH)
        ended, self._awaited_behind = await wakes.announce_ended(connection, self._awaited_behind, AWAITED_BATCH)
        woken |= {(each.namespace, each.pool) for each in (*told, *ended) if each.ready}
        for namespace, pool in woken:
            self._metrics.count(names.WAKES, namespace, pool)
            self._notifier.ready(namespace, pool)
            self._statuses.kick()
