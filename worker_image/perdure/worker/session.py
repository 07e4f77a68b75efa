"""One registration of a worker: from its row in `workers` to its end, drained or lost.

Everything that must not outlive a registration lives here: machine, journal, claimer, beater and their connections.
After a loss the worker begins a new session under a new id, so nothing of the old one can be taken for the new
(protocol, "Beat": register under a new id, never revive the row).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Container, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, assert_never

from perdure.engine import manifest
from perdure.engine.execute import Execution
from perdure.engine.registry import Registry
from perdure.model.outcome import Ending
from perdure.model.rows import ClaimedRun, OwnedRun, WorkerRow
from perdure.model.states import RunStatus
from perdure.store import versions
from perdure.store import workers as store
from perdure.store.journal import Backoff
from perdure.store.usersql import SqlPool
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.worker import refusals
from perdure.worker.beater import Beater, Heard
from perdure.worker.claimer import Claimer
from perdure.worker.journal import Journal
from perdure.worker.lease import LocalLease, lease_clock
from perdure.worker.link import Link, statement_limit
from perdure.worker.machine import ForceRelease, GiveBack, Instruction, Interrupt, Machine, RunKey, Start
from perdure.worker.managing import Managing
from perdure.worker.runner import RunningRun, Surroundings
from perdure.worker.settings import WorkerSettings
from perdure.worker.wakes import Wakes

log = get_logger(__name__)

NONCE_BYTES = 5
"""Random bytes that make a worker's id its own, at each registration."""

ID_PREFIX_MAX = 50
"""Characters of pod UID or host name in the id: with the nonce it fits a Postgres application name (63)."""

LOST_GRACE = 1.0
"""Seconds that bodies of a lost session get to unwind before the next session begins beside them."""

FLUSH_SHARE = 0.15
"""Share of the drain time kept for writing what bodies left behind, after they were told to stop."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a session is built from; the same for all sessions of a worker."""

    settings: WorkerSettings
    registry: Registry
    database_url: str
    metrics: Metrics
    threads: Executor
    wakes: Wakes
    ready: Callable[[], None]
    ended: Callable[[str], None]
    """A run has ended that somebody waits for."""
    settled: Callable[[ClaimedRun, RunStatus, Ending], None]
    """A run is no longer this worker's: it has ended, or waits, or went to the queue."""
    changed: Callable[[ClaimedRun, bool], None] | None
    exit_process: Callable[[int], None]
    execution: Callable[..., Execution] = Execution
    """See `Surroundings`."""


class Session:
    """See the module. Use: `open`, then either `drain` or `abandon`."""

    def __init__(self, parts: Parts, *, slots: int, first: bool = True) -> None:
        """`first`: this process has not registered before."""
        settings = parts.settings
        self._parts = parts
        self._first = first
        self.id = f"{(settings.pod_uid or settings.pod_name)[:ID_PREFIX_MAX]}-{secrets.token_hex(NONCE_BYTES)}"
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Set to a sentence when this registration is dead."""
        self.machine = Machine(slots)
        self.lease = LocalLease(settings.lease_seconds)
        self._runs: dict[RunKey, RunningRun] = {}
        self.bodies: set[asyncio.Task[None]] = set()
        self._chores: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._first_sent_at = 0.0
        self._link = self._new_link()
        journal_links = [self._new_link(refusals.LOCK_SECONDS) for _ in range(settings.journal_connections)]
        claim_link = self._new_link()
        managing_link = self._new_link(refusals.LOCK_SECONDS)
        self._links = [self._link, claim_link, managing_link, *journal_links]
        backoff = Backoff(run_retry=settings.retry_backoff_seconds, run_attempts=settings.run_attempts)
        self._sql = SqlPool(parts.database_url, application_name=self.id, size=settings.transaction_connections)
        self._journal = Journal(self.id, journal_links, self.lease, parts.metrics, backoff)
        self._journal.ended = parts.ended
        self._journal.wakes = parts.wakes
        self._journal.managing = Managing(managing_link, self.id, parts.wakes)
        self.claimer = Claimer(
            settings,
            self.id,
            parts.registry.manifest(),
            self.machine,
            self.lease,
            claim_link,
            parts.metrics,
            self.carry_out,
        )
        self._around = Surroundings(
            registry=parts.registry,
            journal=self._journal,
            machine=self.machine,
            threads=parts.threads,
            link=self._link,
            worker_id=self.id,
            sql=self._sql,
            metrics=parts.metrics,
            wakes=parts.wakes,
            ready=parts.ready,
            left=self._left,
            settled=parts.settled,
            changed=parts.changed,
            execution=parts.execution,
        )
        self._beater = Beater(
            parts.database_url,
            self.id,
            self.lease,
            Heard(
                pong=self.machine.pong,
                rows=self._beat,
                dead=self.lose,
                bodies=lambda: len(self.bodies),
                exit_process=parts.exit_process,
            ),
            parts.metrics,
        )

    # -- beginning

    async def open(self) -> None:
        """Register and begin to work. Raises what the database says; may be called again until it succeeds."""
        settings = self._parts.settings
        row = WorkerRow(
            id=self.id,
            namespace=settings.namespace,
            pool=settings.pool,
            pod=settings.pod_name,
            pod_uid=settings.pod_uid,
            version=settings.version,
            queues=settings.queues,
            manifest=self._parts.registry.manifest(),
            slots=settings.slots,
        )
        has = manifest.versions(self._parts.registry, settings.version_policy)
        await self._link.call(
            versions.register, settings.namespace, settings.pool, settings.version, has, first=self._first
        )
        # Of the first attempt, if this is not it: its answer may have been lost, and the row be as old as that.
        self._first_sent_at = self._first_sent_at or lease_clock()
        predecessors = await self._link.call(store.register, row, settings.lease_seconds)
        self.lease.extend(self._first_sent_at)
        self._parts.metrics.set(names.SLOTS, self.machine.slots)
        self._parts.metrics.read_from(names.SLOTS_BUSY, lambda: float(self.machine.busy))
        self._parts.metrics.read_from(names.HEARTBEAT_AGE_SECONDS, self.lease.age)
        self._journal.start()
        self._beater.start()
        self.claimer.start()
        log.info("registered", worker=self.id, pool=settings.pool, slots=self.machine.slots, predecessors=predecessors)

    def takes_starts(self, queue: str) -> bool:
        """Whether a run of this process may begin here now, if a slot is free: none is known to wait for one, and the
        queue is not known to have limits."""
        return not self.claimer.hungry and not self.claimer.limited(queue) and self.lease.holds()

    def _new_link(self, lock_timeout: float | None = None) -> Link:
        limit = statement_limit(self._parts.settings.lease_seconds)
        return Link(
            self._parts.database_url, application_name=self.id, statement_timeout=limit, lock_timeout=lock_timeout
        )

    # -- what the machine says

    def carry_out(self, instructions: list[Instruction]) -> None:
        """Do what the machine says."""
        for instruction in instructions:
            match instruction:
                case Start(run):
                    self._start(run)
                case Interrupt(key, why):
                    self._runs[key].interrupt(why)
                case ForceRelease(key):
                    self._runs[key].force()
                case GiveBack(keys):
                    self._chore(self._give_back(keys))
                case _:
                    assert_never(instruction)

    def _start(self, run: ClaimedRun) -> None:
        running = RunningRun(run, self._around)
        self._runs[running.key] = running
        self._idle.clear()
        body = asyncio.create_task(running.execute(), name=f"run {run.id}")
        self.bodies.add(body)
        body.add_done_callback(self.bodies.discard)

    def _left(self, key: RunKey) -> None:
        self._runs.pop(key, None)
        self.machine.run_left(key)
        if not self.machine.busy:
            self._idle.set()
        self.claimer.slot_freed(key)

    async def _give_back(self, keys: Sequence[RunKey]) -> None:
        try:
            await self._link.call(store.give_back, self.id, keys)
        except Exception as error:
            log.warning("runs could not be given back; the beats will show them again", runs=len(keys), error=error)
            return
        log.info("gave back runs that do not run here", runs=len(keys))
        self._parts.metrics.count(names.RUNS_GIVEN_BACK, "unknown", by=len(keys))
        self._parts.ready()

    def _chore(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            # A beat's answer may still have been on its way to the loop.
            work.close()
            return
        task = asyncio.create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    # -- what the beater says

    def _beat(self, stamp: int, rows: Sequence[OwnedRun]) -> None:
        self.carry_out(self.machine.beat(stamp, rows))

    def asked(self, run_ids: Container[str]) -> None:
        """Something is wanted of these runs: if one is here, hear soon what it is."""
        if any(key.id in run_ids for key in self._runs):
            self._beater.hurry()

    def lose(self, why: str) -> None:
        """This registration is dead: every body stops, nothing more is written."""
        if not self.lost.done():
            self._parts.metrics.count(names.WORKER_LOST)
            log.error("this worker is lost: every body stops", worker=self.id, why=why, runs=self.machine.busy)
            self.carry_out(self.machine.lost())
            self._journal.abandon()
            self.lost.set_result(why)

    # -- ending

    async def drain(self, seconds: float, hurry: asyncio.Event) -> bool:
        """Give everything back within `seconds` and say so in the database; at once when `hurry` is set.

        Steps in progress are finished and recorded, then their runs released; no attempt is counted. Whether
        everything was released.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        self._parts.metrics.set(names.DRAINING, 1)
        self.claimer.quiesce()
        self.carry_out(self.machine.drain())
        try:
            async with asyncio.timeout_at(ends_at - seconds * FLUSH_SHARE):
                await self.claimer.settled()
                self._chore(self._say_draining())
                await self._until_idle_or(hurry)
        except TimeoutError:
            log.warning("the time to drain is over: runs are released by force", runs=self.machine.busy)
        self.carry_out(self.machine.force())
        try:
            async with asyncio.timeout_at(max(ends_at, loop.time() + 1.0)):
                await self._idle.wait()
                if self._chores:
                    await asyncio.wait(self._chores)
                await self._link.call(store.stop, self.id)
        except Exception as error:
            log.error("could not give everything back; its lease has to run out", runs=self.machine.busy, error=error)
        released = self.machine.busy == 0
        await self._close()
        return released

    async def _say_draining(self) -> None:
        try:
            await self._link.call(store.drain, self.id)
        except Exception as error:
            log.warning("could not say that this worker drains", error=error)

    async def _until_idle_or(self, hurry: asyncio.Event) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (self._idle, hurry)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def abandon(self) -> None:
        """End a lost session: bodies get a moment to unwind, nothing is written."""
        if self.bodies:
            await asyncio.wait(self.bodies, timeout=LOST_GRACE)
        await self._close()

    async def _close(self) -> None:
        self._closed = True
        await self.claimer.stop()
        await self._journal.stop()
        await self._beater.stop()
        for chore in list(self._chores):
            chore.cancel()
        await self._sql.close()
        for link in self._links:
            await link.close()
