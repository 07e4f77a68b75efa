"""The sweeps: what no single worker owns and every worker does, a little each, over and over.

Marks workers dead whose lease ran out, moves their runs, wakes what waited for a time, ends what passed its deadline,
forgets old workers. Each is one bounded statement, safe beside any number of others; jitter spreads them. Marks
nobody before it has itself had one lease of unbroken contact with the database: after an outage or a cut network
everybody's lease has run out and nobody is dead.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Concatenate, ParamSpec, TypeVar

from perdure.model.states import RunStatus
from perdure.store import debounce as debounce_store
from perdure.store import idempotency as idempotency_store
from perdure.store import sweeps as sweeps_store
from perdure.store import wakes as wakes_store
from perdure.store import workers as workers_store
from perdure.store.firing import NOT_AHEAD, fire_due
from perdure.store.pool import is_transient
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.telemetry.settles import tell_moved
from perdure.worker.adoption import Adoption
from perdure.worker.lease import lease_clock
from perdure.worker.link import Connection, Link, error_class
from perdure.worker.service import Service, backoff

log = get_logger(__name__)

LONGEST_INTERVAL = 1.0
"""Seconds between rounds: how late a wake or a recovery may be, at about ten cheap statements a round."""

EXPIRE_LIMIT = 20
"""Workers marked dead in one statement: a node's worth."""

MOVE_LIMIT = 200
"""Runs moved, woken or cancelled in one statement: it holds their row locks for a few milliseconds."""

AWAITED_LIMIT = 500
"""Awaited runs looked at in a round: a few milliseconds of Postgres' time. More of them take turns."""

WAKE_PAUSE = 0.05
"""Seconds between statements that wake, while there is more to wake: the room they fill is claimed meanwhile."""

MAX_REPEATS = 20
"""Statements of one kind in a round before the others have their turn."""

KEYS_EVERY, KEYS_LIMIT = 10.0, 500
"""Seconds between removals of expired keys, of idempotency and of debounced starts, and how many go in one statement:
with the repeats of a round a thousand a second, more than anybody makes."""

FORGET_EVERY = 300.0
"""Seconds between removals of old worker rows."""

FORGET_AFTER = 3600.0
"""Seconds for which a worker that is gone stays readable, for people who look for it."""

P = ParamSpec("P")
T = TypeVar("T")


class Sweeper(Service):
    """All sweeps, one after the other, on a connection of their own. `lease_seconds` is this worker's lease;
    `ready` is told of each pool in which something became claimable; `skipped`: as for `fire_due`; `adoption`: of runs
    of earlier versions."""

    name = "sweeper"

    def __init__(
        self,
        link: Link,
        lease_seconds: float,
        metrics: Metrics,
        ready: Callable[[str, str], None],
        skipped: Callable[[], timedelta] = lambda: NOT_AHEAD,
        adoption: Adoption | None = None,
    ) -> None:
        super().__init__()
        self._skipped = skipped
        self._link = link
        self._lease_seconds = lease_seconds
        self._metrics = metrics
        self._ready = ready
        self._adoption = adoption
        self._interval = min(LONGEST_INTERVAL, lease_seconds / 3)
        self._contact_since: float | None = None
        self._contact_at = 0.0
        self._awaited_behind = ""
        self._forgotten_at = lease_clock()
        self._keys_swept_at = lease_clock()

    async def run(self) -> None:
        """Sweep for ever."""
        failures = 0
        while True:
            pause = self._interval * random.uniform(0.5, 1.5)  # noqa: S311 - spreads workers, no secret
            try:
                await self._round()
                failures = 0
            except Exception as error:
                failures += 1
                self._contact_since = None
                pause = max(pause, backoff(failures))
                self._metrics.count(names.STORE_ERRORS, "sweep", error_class(error))
                if failures & (failures - 1) == 0:
                    report = log.warning if is_transient(error) else log.error
                    report("a sweep failed", error=error, failures=failures)
            await asyncio.sleep(pause)

    async def _round(self) -> None:
        await self._wake_due()
        await self._fire_schedules()
        await self._wake_untold()
        await self._cancel_overdue()
        await self._cascade()
        if self._trusted():
            await self._mark_expired()
        await self._move()
        if self._adoption is not None:
            await self._adoption.round(self._call)
        if lease_clock() - self._keys_swept_at > KEYS_EVERY:
            await self._sweep_keys()
        if lease_clock() - self._forgotten_at > FORGET_EVERY:
            await self._call(workers_store.forget, FORGET_AFTER)
            self._forgotten_at = lease_clock()

    def _trusted(self) -> bool:
        """Whether contact has been unbroken for one lease. A pause of this process breaks it, as an error does."""
        return self._contact_since is not None and lease_clock() - self._contact_since >= self._lease_seconds

    async def _call(
        self, operation: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if not self._link.open or lease_clock() - self._contact_at > self._lease_seconds:
            self._contact_since = None
        result = await self._link.call(operation, *args, **kwargs)
        self._contact_at = lease_clock()
        if self._contact_since is None:
            self._contact_since = self._contact_at
        return result

    async def _wake_due(self) -> None:
        for _ in range(MAX_REPEATS):
            woken = await self._call(sweeps_store.wake_due, MOVE_LIMIT)
            for namespace, pool in set(woken):
                self._ready(namespace, pool)
            if not woken:
                return
            await asyncio.sleep(WAKE_PAUSE)

    async def _wake_untold(self) -> None:
        """What a worker brought about and did not come to tell; and ends that nobody tells of, of runs that others wait
        for."""
        woken = await self._call(wakes_store.announce_untold, MOVE_LIMIT)
        more, self._awaited_behind = await self._call(wakes_store.announce_ended, self._awaited_behind, AWAITED_LIMIT)
        for namespace, pool in {(each.namespace, each.pool) for each in (*woken, *more) if each.ready}:
            self._ready(namespace, pool)

    async def _fire_schedules(self) -> None:
        """Start the runs of ticks that have come. What goes wrong here holds up no other sweep."""
        try:
            for _ in range(MAX_REPEATS):
                fired = await self._call(fire_due, self._skipped())
                if not fired.seen:
                    return
                for outcome, ticks in fired.outcomes.items():
                    self._metrics.count(names.SCHEDULE_TICKS, outcome, by=ticks)
                for namespace, pool in {(run.namespace, run.pool) for run in fired.runs}:
                    self._ready(namespace, pool)
        except Exception as error:
            self._metrics.count(names.STORE_ERRORS, "schedules", error_class(error))
            report = log.warning if is_transient(error) else log.error
            report("schedules could not be fired; they are in the next round", error=error)

    async def _cascade(self) -> None:
        """Level by level; what is left is found in the next round."""
        for _ in range(MAX_REPEATS):
            if not await self._call(wakes_store.cascade, MOVE_LIMIT):
                return

    async def _cancel_overdue(self) -> None:
        for _ in range(MAX_REPEATS):
            if len(await self._call(sweeps_store.cancel_overdue, MOVE_LIMIT)) < MOVE_LIMIT:
                return

    async def _sweep_keys(self) -> None:
        for _ in range(MAX_REPEATS):
            if await self._call(idempotency_store.sweep, KEYS_LIMIT) < KEYS_LIMIT:
                break
        for _ in range(MAX_REPEATS):
            if await self._call(debounce_store.sweep, KEYS_LIMIT) < KEYS_LIMIT:
                break
        self._keys_swept_at = lease_clock()

    async def _mark_expired(self) -> None:
        dead = await self._call(workers_store.mark_expired, EXPIRE_LIMIT)
        for worker_id in dead:
            log.warning("a worker is dead: its lease ran out", worker=worker_id)
            self._metrics.count(names.LEASE_EXPIRIES)
            await self._end_sessions(worker_id)

    async def _move(self) -> None:
        """Until a read that takes no locks finds nothing: a batch may be short because others hold rows (R5)."""
        for _ in range(MAX_REPEATS):
            owners = await self._call(workers_store.dead_with_runs, EXPIRE_LIMIT)
            if not owners:
                return
            moved = await self._call(workers_store.move, owners, MOVE_LIMIT)
            if not moved:
                for owner in owners:
                    await self._end_sessions(owner)
                return
            for run in moved:
                tell_moved(run)
                parked = run.status is RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED
                self._metrics.count(names.RECOVERIES, "parked" if parked else "requeued")
                if run.status is RunStatus.ENQUEUED:
                    self._ready(run.namespace, run.pool)
            log.info("moved runs of workers that are gone", runs=len(moved), workers=len(owners))

    async def _end_sessions(self, worker_id: str) -> None:
        """Late statements of a dead worker end, and their row locks go. A pooler's sessions are everybody's: theirs
        end by the limits on the role."""
        if not self._link.pooled:
            await self._call(workers_store.terminate_backends, worker_id)
