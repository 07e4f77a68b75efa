"""Takes runs from workers that are dead: by proof from their pods at once, by their lease otherwise.

Proof is that the kubelet reported the worker's container as ended. A pod object that vanished proves nothing: after
a forced deletion on a cut-off node the process still runs. The fence keeps the data right either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg
from perdure.model.states import RunStatus
from perdure.store import status, workers
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.telemetry.settles import tell_moved

from perdure_operator.control.cache import Cache
from perdure_operator.control.database import Database
from perdure_operator.control.keys import Key
from perdure_operator.control.notify import Notifier
from perdure_operator.control.statuses import Statuses
from perdure_operator.control.workqueue import Again
from perdure_operator.kube.events import EventPoster
from perdure_operator.plan.events import EventReason, pool_notice, run_notice

log = get_logger(__name__)

BATCH = 100
"""Runs moved in one statement."""

MOST_TOLD = 20
"""Runs of one move that get an Event: with more, the Event of the pool says what happened."""


class Recovery:
    """`pod` is the reconcile of one worker pod; `move_all` the sweep over workers that are marked dead."""

    def __init__(
        self,
        cache: Cache,
        database: Database,
        notifier: Notifier,
        statuses: Statuses,
        events: EventPoster,
        metrics: Metrics,
    ) -> None:
        self._cache = cache
        self._database = database
        self._notifier = notifier
        self._statuses = statuses
        self._events = events
        self._metrics = metrics

    async def pod(self, key: Key) -> Again | None:
        """Mark the workers of a pod dead if its newest state proves that none of them can be at work."""
        entry = self._cache.pods.get(key.uid)
        if entry is None or not entry.value.worker_ended:
            return None
        async with self._database.connection("proof") as connection:
            dead = await workers.mark_dead(connection, [key.uid])
            await end_sessions(connection, dead, pooled=self._database.pooled)
        if dead:
            log.warning("worker container ended, its workers marked dead", pod=str(key), workers=dead)
            moved = await self.move_all()
            self._tell_pool(entry.namespace, entry.pool, f"worker pod {entry.name} ended", moved)
        return None

    async def move_all(self) -> int:
        """Move the runs of all dead and stopped workers, until none is found; how many were moved."""
        total = 0
        while True:
            async with self._database.connection("move") as connection:
                dead = await workers.dead_with_runs(connection, BATCH)
                moved = await workers.move(connection, dead, BATCH) if dead else []
                sources = await status.read(connection, [each.id for each in moved[:MOST_TOLD]]) if moved else []
            if not moved:
                return total
            total += len(moved)
            for each in moved:
                tell_moved(each)
                parked = each.status == RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED
                self._metrics.count(names.RECOVERIES, "parked" if parked else "requeued")
                self._notifier.ready(each.namespace, each.pool)
            for source in sources:
                run = source.run
                if run.name is not None and not run.status.finished:
                    text = "its worker died; it goes on from its last finished step in another one"
                    self._events.post(run_notice(run.namespace, run.name, run.id, EventReason.RUN_RECOVERED, text))
            log.info("runs moved from dead workers", count=len(moved))
            self._statuses.kick()

    def _tell_pool(self, namespace: str, pool: str, what: str, moved: int) -> None:
        obj = self._cache.pool(namespace, pool)
        if obj is not None and moved:
            text = f"{what}; {moved} {'run goes' if moved == 1 else 'runs go'} on elsewhere"
            self._events.post(pool_notice(obj, EventReason.WORKER_DIED, text))


async def end_sessions(connection: Any, worker_ids: Sequence[str], *, pooled: bool) -> None:
    """End the database sessions of workers that are marked dead, so that their late statements and row locks end too.

    Without the right to do so, and behind a pooler, whose sessions are everybody's, they end by their own timeouts.
    """
    if pooled:
        return
    for worker_id in worker_ids:
        try:
            await workers.terminate_backends(connection, worker_id)
        except asyncpg.InsufficientPrivilegeError:
            log.info("no right to end the sessions of a dead worker; they time out", worker=worker_id)
