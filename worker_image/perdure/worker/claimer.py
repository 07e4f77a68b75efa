"""Claims: takes as many ready runs as there are free slots, the queues in turn.

It claims when a notification says that something became ready, when a slot comes free that the last claim left
hungry, and every poll interval as the truth behind both. One claim at a time, so slots that come free meanwhile make
the next one larger. A claim whose answer is lost is found by the beats (rule R6). Where it takes from and what it
remembers is decided in `floor`, how the slots divide among the queues in `turns`.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Sequence

from perdure.model.rows import ClaimedRun
from perdure.store import claims as store
from perdure.store.pool import is_transient
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.worker.floor import Floor, Next
from perdure.worker.lease import LocalLease
from perdure.worker.limits import Limits
from perdure.worker.link import Link, error_class
from perdure.worker.machine import Instruction, Machine, RunKey
from perdure.worker.service import Service, backoff
from perdure.worker.settings import WorkerSettings
from perdure.worker.turns import Turns

log = get_logger(__name__)

MAX_CLAIM = 100
"""Runs per claim: their inputs and recorded steps come along, and all of them wait for one answer."""

LEASE_PAUSE = 0.2
"""Seconds before another look at a lease that does not hold now: the database would refuse the claim."""


class Claimer(Service):
    """Claims for one registration and hands what it gets to the machine."""

    name = "claimer"

    def __init__(
        self,
        settings: WorkerSettings,
        worker_id: str,
        manifest: Sequence[str],
        machine: Machine,
        lease: LocalLease,
        link: Link,
        metrics: Metrics,
        carry_out: Callable[[list[Instruction]], None],
    ) -> None:
        super().__init__()
        self._settings = settings
        self._turns = Turns(settings.queues)
        self._limits = Limits(settings.poll_seconds)
        self._floors = {queue: Floor() for queue in settings.queues}
        self._scopes = {
            queue: store.Scope(worker_id, settings.namespace, settings.pool, queue, tuple(manifest), settings.version)
            for queue in settings.queues
        }
        self._machine = machine
        self._lease = lease
        self._link = link
        self._metrics = metrics
        self._carry_out = carry_out
        self._wake = asyncio.Event()
        self._hungry = False
        self._quiet = False
        self._outstanding = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.ticked_at = time.monotonic()
        """Instant of the last turn, for the liveness probe. A database that does not answer does not stop it."""

    def wake(self) -> None:
        """Something became ready: claim now."""
        for floor in self._floors.values():
            floor.news()
        self._wake.set()

    @property
    def hungry(self) -> bool:
        """Whether runs may be ready that have to wait for a slot."""
        return self._hungry

    def limited(self, queue: str) -> bool:
        """Whether the queue is known to have limits: its runs begin by claims alone, which count them."""
        return self._limits.limited(queue)

    def slot_freed(self, key: RunKey) -> None:
        """A run left. Worth a claim only when the last was cut short, by the slots or by the limits of its queue."""
        queue = self._limits.left(key)
        if queue is not None:
            self._floors[queue].news()
        if self._hungry or queue is not None:
            self._wake.set()

    def quiesce(self) -> None:
        """Claim nothing more. A claim under way is still answered."""
        self._quiet = True
        self._wake.set()

    async def settled(self) -> None:
        """Wait until no claim is under way."""
        await self._idle.wait()

    async def run(self) -> None:
        """Claim until told to be quiet."""
        failures = 0
        while not self._quiet:
            self.ticked_at = time.monotonic()
            self._wake.clear()
            pause = self._settings.poll_seconds * random.uniform(0.8, 1.2)  # noqa: S311 - spreads workers, no secret
            if not self._lease.holds():
                pause = LEASE_PAUSE
            else:
                try:
                    await self._round()
                    failures = 0
                    pause = min(pause, self._look_in())
                except Exception as error:
                    failures += 1
                    pause = backoff(failures)
                    self._report(error, failures)
                    # Notifications do not hurry a database that does not answer.
                    await asyncio.sleep(pause)
                    continue
            await self._wait(pause)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    def _look_in(self) -> float:
        """Seconds until a look that was put off may be made, or a queue's rate lets a run begin; for ever when nothing
        was put off, or there is no room for runs."""
        if self._machine.free <= 0:
            return math.inf
        now = time.monotonic()
        waits = [floor.look_in(now) for queue, floor in self._floors.items() if self._limits.open(queue, now)]
        return min((wait for wait in (*waits, self._limits.opens_in(now)) if wait is not None), default=math.inf)

    async def _round(self) -> None:
        """Fill the free slots: as many of each queue as there are, in turns, until none has any more."""
        self._hungry = False
        for floor in self._floors.values():
            floor.begin()
        queues = self._turns.order()
        while queues:
            share = self._turns.share(self._machine.free, len(queues))
            left = []
            for queue in queues:
                limit = min(share, self._machine.free, MAX_CLAIM)
                if limit <= 0:
                    self._hungry = True
                    return
                if self._quiet:
                    return
                if await self._fill(queue, limit):
                    left.append(queue)
            queues = left

    async def _fill(self, queue: str, wanted: int) -> bool:
        """Claim so many runs of one queue, if it has them; whether it may have more."""
        floor = self._floors[queue]
        got = 0
        while got < wanted and not self._quiet:
            now = time.monotonic()
            if not self._limits.open(queue, now):
                return False
            match floor.next(now):
                case Next.NOTHING:
                    return False
                case Next.LOOK:
                    await self._look(queue, floor)
                case Next.TAKE:
                    # Slots may have gone to runs that this process has started itself.
                    room = min(wanted - got, self._machine.free)
                    if room <= 0:
                        self._hungry = True
                        return False
                    got += await self._claim(queue, floor, room)
        return got >= wanted

    async def _look(self, queue: str, floor: Floor) -> None:
        started = time.monotonic()
        found = await self._link.call(store.look, self._scopes[queue], floor.served_last)
        ended = time.monotonic()
        floor.found(found, ended, ended - started)

    async def _claim(self, queue: str, floor: Floor, wanted: int) -> int:
        started = time.monotonic()
        # Partitions of a limited queue may be at their limit: it is offered more of them than there are slots.
        limited = self._limits.limited(queue)
        ranges, asked = floor.offer(wanted, MAX_CLAIM if limited else wanted)
        self._machine.claim_sent(asked)
        self._idle.clear()
        try:
            taken = await self._link.call(store.take, self._scopes[queue], ranges, asked, limited)
        except BaseException:
            self._machine.claim_failed()
            raise
        else:
            self._limits.claimed(queue, taken, asked, time.monotonic())
            if taken.room != 0:
                # Else it was not looked at what is ready.
                floor.took(taken, asked if taken.room is None else min(asked, taken.room))
            if taken.runs:
                self._turns.served(queue)
            self._metrics.observe(names.CLAIM_SECONDS, time.monotonic() - started)
            self._arrived(queue, taken.runs)
        finally:
            self._idle.set()
        return len(taken.runs)

    def _arrived(self, queue: str, runs: Sequence[ClaimedRun]) -> None:
        if runs:
            self._metrics.count(names.CLAIMED_RUNS, queue, by=len(runs))
            observe = self._metrics.observer(names.CLAIM_LATENCY_SECONDS, queue)
            for run in runs:
                observe(max(0.0, run.ready_seconds))
        self._carry_out(self._machine.claim_answered(runs))

    def _report(self, error: Exception, failures: int) -> None:
        self._metrics.count(names.STORE_ERRORS, "claim", error_class(error))
        if failures & (failures - 1) == 0:
            report = log.warning if is_transient(error) else log.error
            report("a claim failed", error=error, failures=failures)
