"""Claims: takes as many ready runs as there are free slots, queue by queue in the pool's order.

It claims when a notification says that something became ready, when a slot comes free that the last claim left
hungry, and every poll interval as the truth behind both. One claim at a time, so slots that come free meanwhile make
the next one larger. A claim whose answer is lost is found by the beats (rule R6).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from perdure.model.rows import ClaimedRun
from perdure.store import claims as store
from perdure.store.pool import is_transient
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.worker.lease import LocalLease
from perdure.worker.link import Link, error_class
from perdure.worker.machine import Instruction, Machine
from perdure.worker.service import Service, backoff
from perdure.worker.settings import WorkerSettings

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
        self._worker_id = worker_id
        self._manifest = tuple(manifest)
        self._machine = machine
        self._lease = lease
        self._link = link
        self._metrics = metrics
        self._carry_out = carry_out
        self._wake = asyncio.Event()
        self._hungry = True
        self._quiet = False
        self._outstanding = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.ticked_at = time.monotonic()
        """Instant of the last turn, for the liveness probe. A database that does not answer does not stop it."""

    def wake(self) -> None:
        """Something became ready: claim now."""
        self._wake.set()

    def slot_freed(self) -> None:
        """A run left. Worth a claim only when the last one was cut short by the slots."""
        if self._hungry:
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

    async def _round(self) -> None:
        """Fill the free slots from the queues, in their order."""
        self._hungry = False
        for queue in self._settings.queues:
            while not self._quiet:
                free = self._machine.free
                if free <= 0:
                    self._hungry = True
                    return
                limit = min(free, MAX_CLAIM)
                if await self._claim(queue, limit) < limit:
                    break

    async def _claim(self, queue: str, limit: int) -> int:
        started = time.monotonic()
        self._machine.claim_sent()
        self._idle.clear()
        try:
            runs = await self._link.call(
                store.claim,
                worker_id=self._worker_id,
                namespace=self._settings.namespace,
                pool=self._settings.pool,
                queue=queue,
                manifest=self._manifest,
                version=self._settings.version,
                limit=limit,
            )
        except BaseException:
            self._machine.claim_failed()
            raise
        else:
            self._metrics.observe(names.CLAIM_SECONDS, time.monotonic() - started)
            self._arrived(queue, runs)
        finally:
            self._idle.set()
        return len(runs)

    def _arrived(self, queue: str, runs: Sequence[ClaimedRun]) -> None:
        if runs:
            self._metrics.count(names.CLAIMED_RUNS, queue, by=len(runs))
            for run in runs:
                self._metrics.observe(names.CLAIM_LATENCY_SECONDS, max(0.0, run.ready_seconds), queue)
        self._carry_out(self._machine.claim_answered(runs))

    def _report(self, error: Exception, failures: int) -> None:
        self._metrics.count(names.STORE_ERRORS, "claim", error_class(error))
        if failures & (failures - 1) == 0:
            report = log.warning if is_transient(error) else log.error
            report("a claim failed", error=error, failures=failures)
