"""A worker: waits for a usable database, registers, works, registers anew when it was lost, drains.

`main` runs one as a process; tests and `perdure dev` embed it. Owns what outlives a registration: sweeper, listener,
reporter, notifier, threads, the watch on the loop.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any

import asyncpg

from perdure.engine.registry import Registry
from perdure.errors import SchemaOutOfRange
from perdure.store import role_settings
from perdure.store.migrate import check
from perdure.store.pool import connection_errors
from perdure.store.pooler import pooled
from perdure.telemetry import logs, names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.names import Component
from perdure.telemetry.prometheus import Metrics
from perdure.worker.answers import StatusApi
from perdure.worker.bootstrap import Bootstrap
from perdure.worker.link import Link, statement_limit
from perdure.worker.notifier import Ear, Notifier
from perdure.worker.reporter import Reporter
from perdure.worker.resident import Residence
from perdure.worker.retention import Retention
from perdure.worker.service import Service, backoff
from perdure.worker.session import Parts, Session
from perdure.worker.settings import WorkerSettings
from perdure.worker.sweeper import Sweeper
from perdure.worker.wakes import Wakes
from perdure.worker.watch import LoopWatch

log = get_logger(__name__)

SCHEMA_CHECK_SECONDS = 1.0
"""Between looks at a schema that does not fit yet: the operator migrates within seconds of its start."""

REPORT_SHARE = 0.1
"""Share of the drain time for the last statuses; what is left then the operator writes."""

STEP_THREADS = "perdure-step"
"""How the names of threads begin that run synchronous steps."""


class State(StrEnum):
    """What a worker is doing. `lost` leads back to `registering`."""

    STARTING = "starting"
    BOOTSTRAPPING = "running the bootstrap hook"
    WAITING_FOR_DATABASE = "waiting for the database"
    REGISTERING = "registering"
    WORKING = "working"
    LOST = "lost"
    DRAINING = "draining"
    STOPPED = "stopped"


def new_metrics() -> Metrics:
    """Metrics of a worker."""
    return Metrics(names.declared(Component.WORKER))


class Worker:
    """One worker. Create and use it on the event loop it is to work on."""

    def __init__(
        self,
        settings: WorkerSettings,
        registry: Registry,
        *,
        database_url: str,
        metrics: Metrics | None = None,
        status_api: StatusApi | None = None,
        exit_process: Callable[[int], None] = os._exit,
    ) -> None:
        """`status_api` None writes no statuses. `exit_process` ends the process when its lease is long gone and
        bodies do not stop. Raises `ConfigurationError` for settings that cannot be used."""
        settings.validate_strictly()
        self.settings = settings
        self.metrics = metrics if metrics is not None else new_metrics()
        self.state = State.STARTING
        self.waits_for = ""
        self.registered_once = False
        self.clean = True
        """Whether the last stop gave everything back."""
        self._registry = registry
        self._database_url = database_url
        self._status_api = status_api
        self._exit_process = exit_process
        self._bootstrap = Bootstrap(settings.bootstrap)
        self._links: list[Link] = []
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix=STEP_THREADS)
        self._watch = LoopWatch(self.metrics)
        # Nobody else's: whoever waits for a run's end should not wait behind the reading of a status.
        self._notifier = Notifier(self._link("news"), self.metrics)
        # A pooler lends sessions for a transaction: nobody can listen in one, and runs are found by polling alone.
        self._ear = None if pooled(database_url) else Ear(database_url, self._ready, self._wake)
        self._wakes = Wakes(self._link("wakes"), settings.pool, self.metrics, self._tell)
        self._sweeper = Sweeper(self._link("sweeper"), settings.lease_seconds, self.metrics, self._tell)
        self._reporter = None if status_api is None else Reporter(status_api, self._link("reports"), self.metrics)
        self._retention = (
            Retention(self._link("retention"), settings, self.metrics, lambda: self.busy)
            if settings.retention_seconds
            else None
        )
        self._session: Session | None = None
        self.resident = Residence(settings, registry.manifest(), self._claiming, self.metrics)
        """For clients in this process: `Client(…, worker=worker.resident)`."""
        self._lingering: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._main: asyncio.Task[None] | None = None

    # -- for those who embed it

    async def start(self) -> None:
        """Begin. Returns at once; `wait_until_working` says when it claims."""
        self._watch.start()
        self._main = asyncio.create_task(self._life(), name="worker")

    async def wait_until_working(self) -> None:
        """Return when the worker has registered and claims. Raises what ended it before that."""
        while self.state is not State.WORKING:
            assert self._main is not None, "start it first"
            if self._main.done():
                self._main.result()
                raise RuntimeError("the worker stopped before it worked")
            await asyncio.sleep(0.01)

    def drain(self) -> None:
        """Ask for a clean stop: claim nothing more, finish steps in progress, give back the rest. Returns at once.

        A bootstrap hook that still runs is cancelled."""
        self._stopping.set()
        if self.state is State.BOOTSTRAPPING and self._main is not None:
            self._main.cancel()

    def force(self) -> None:
        """Ask for a stop now: runs are released although their bodies have not ended."""
        self.drain()
        self._hurry.set()

    async def stop(self) -> None:
        """`drain`, and wait until it is done."""
        self.drain()
        await self.wait()

    async def wait(self) -> None:
        """Wait until the worker has stopped. Raises what ended it, if anything did."""
        assert self._main is not None, "start it first"
        await asyncio.shield(self._main)

    @property
    def id(self) -> str | None:
        """Id of the present registration."""
        return None if self._session is None else self._session.id

    @property
    def busy(self) -> int:
        """Runs held now."""
        return 0 if self._session is None else self._session.machine.busy

    # -- for the probes, from any thread

    def loop_silent_for(self) -> float:
        """Seconds since the loop last ticked."""
        return self._watch.silent_for()

    def claimer_silent_for(self) -> float:
        """Seconds since the claimer last turned, 0 while there is none that should."""
        session = self._session
        if self.state is not State.WORKING or session is None:
            return 0.0
        return time.monotonic() - session.claimer.ticked_at

    # -- its life

    async def _life(self) -> None:
        try:
            if await self._set_up() and await self._database_ready():
                await self._work()
        finally:
            self.state = State.STOPPED
            await self._close()
            self.clean = await self._bootstrap.close() and self.clean

    async def _set_up(self) -> bool:
        """Run the bootstrap hook; False when told to stop meanwhile. Not in a task of its own: what it sets in the
        context is to be seen by everything that comes after it."""
        if self._stopping.is_set():
            return False
        self.state = State.BOOTSTRAPPING
        try:
            await self._bootstrap.run()
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise
        while self._stopping.is_set() and self._main is not None and self._main.cancelling():
            self._main.uncancel()
        if logs.left_without_handlers():
            logs.configure(self.settings.log_level)
            log.warning("logs are left to the application, which has set up no handler: written as usual")
        return not self._stopping.is_set()

    async def _work(self) -> None:
        self._notifier.start()
        self._wakes.start()
        self._sweeper.start()
        if self._ear is not None:
            self._ear.start()
        if self._reporter is not None:
            self._reporter.start()
        if self._retention is not None:
            self._retention.start()
        while not self._stopping.is_set():
            session = await self._register()
            if session is None:
                return
            await self._until_lost_or_stopping(session)
            if session.lost.done():
                self.state = State.LOST
                await session.abandon()
                self._lingering = {body for body in self._lingering | session.bodies if not body.done()}
            else:
                await self._drain(session)

    async def _database_ready(self) -> bool:
        """Wait for a database with the right schema; False when told to stop before."""
        self.state = State.WAITING_FOR_DATABASE
        link = self._link("starting")
        failures = 0
        while not self._stopping.is_set():
            try:
                await link.call(check)
                if pooled(self._database_url) and (missing := await link.call(role_settings.missing)):
                    log.warning(
                        "settings of the role are missing, which a pooler does not let a session set: run the "
                        "statements that `perdure migrate --role-settings` prints, then RECONNECT the pooler",
                        missing=sorted(missing),
                    )
            except SchemaOutOfRange as error:
                said, pause = error.message, SCHEMA_CHECK_SECONDS
            except (asyncpg.PostgresError, *connection_errors) as error:
                # A wrong password is waited out, too: a secret may be on its way, and the probe says what is wrong.
                failures += 1
                said, pause = f"the database does not answer: {type(error).__name__}: {error}", backoff(failures)
            else:
                await link.close()
                return True
            if said != self.waits_for:
                log.warning("waiting for the database", why=said)
                self.waits_for = said
            await self._pause(pause)
        return False

    async def _register(self) -> Session | None:
        """A session that is registered; None when told to stop before."""
        self.state = State.REGISTERING
        slots = max(1, self.settings.slots - len(self._lingering))
        session = Session(self._parts(), slots=slots)
        failures = 0
        while not self._stopping.is_set():
            try:
                await session.open()
            except (asyncpg.PostgresError, *connection_errors) as error:
                failures += 1
                self.waits_for = f"{type(error).__name__}: {error}"
                if failures & (failures - 1) == 0:
                    log.warning("could not register", error=error, failures=failures)
                await self._pause(backoff(failures))
            else:
                self.waits_for = ""
                self._session = session
                self.registered_once = True
                self.state = State.WORKING
                return session
        await session.abandon()
        return None

    async def _until_lost_or_stopping(self, session: Session) -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        waits: list[asyncio.Future[Any]] = [session.lost, stopping]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()

    async def _drain(self, session: Session) -> None:
        self.state = State.DRAINING
        seconds = self.settings.drain_seconds
        if self._retention is not None:
            await self._retention.stop()
        log.info("draining", worker=session.id, runs=session.machine.busy, seconds=seconds)
        self.clean = await session.drain(seconds * (1 - REPORT_SHARE), self._hurry)
        await self._notifier.flush()
        if self._reporter is not None:
            await self._reporter.flush(max(1.0, seconds * REPORT_SHARE))
        log.info("stopped", worker=session.id, clean=self.clean)

    async def _close(self) -> None:
        services: list[Service | None] = [
            self._retention,
            self._reporter,
            self._ear,
            self._sweeper,
            self._wakes,
            self._notifier,
            self._watch,
        ]
        for service in services:
            if service is not None:
                await service.stop()
        for link in self._links:
            await link.close()
        if self._status_api is not None:
            await self._status_api.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _parts(self) -> Parts:
        return Parts(
            settings=self.settings,
            registry=self._registry,
            database_url=self._database_url,
            metrics=self.metrics,
            threads=self._threads,
            wakes=self._wakes,
            ready=lambda: self._tell(self.settings.namespace, self.settings.pool),
            ended=self._notifier.ended,
            settled=self.resident.settled,
            changed=None if self._reporter is None else self._reporter.changed,
            exit_process=self._exit_process,
        )

    def _tell(self, namespace: str, pool: str) -> None:
        """This process has made runs ready: others are told, and it tells itself where it cannot listen."""
        self._notifier.ready(namespace, pool)
        if self._ear is None:
            self._ready(namespace, pool)

    def _ready(self, namespace: str, pool: str) -> None:
        if (namespace, pool) == (self.settings.namespace, self.settings.pool):
            self._wake()

    def _claiming(self) -> Session | None:
        return self._session if self.state is State.WORKING else None

    def _wake(self) -> None:
        if self._session is not None:
            self._session.claimer.wake()

    def _link(self, purpose: str) -> Link:
        link = Link(
            self._database_url,
            application_name=f"perdure-{purpose}",
            statement_timeout=statement_limit(self.settings.lease_seconds),
        )
        self._links.append(link)
        return link

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
