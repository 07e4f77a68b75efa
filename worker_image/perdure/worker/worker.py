"""A worker: waits for a usable database, registers, works, registers anew when it was lost, drains.

`main` runs one as a process; tests and `perdure dev` embed it. What outlives a registration is in `Lasting`, what
ends with one in `Session`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Container
from datetime import timedelta
from enum import StrEnum
from typing import Any

import asyncpg

from perdure.engine.execute import Execution
from perdure.engine.registry import Registry
from perdure.store.firing import NOT_AHEAD
from perdure.store.pool import connection_errors
from perdure.store.pooler import pooled
from perdure.telemetry import logs, names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.names import Component
from perdure.telemetry.prometheus import Metrics
from perdure.worker.answers import StatusApi
from perdure.worker.bootstrap import Bootstrap
from perdure.worker.lasting import Lasting
from perdure.worker.resident import Residence
from perdure.worker.service import backoff
from perdure.worker.session import Parts, Session
from perdure.worker.settings import WorkerSettings
from perdure.worker.usable import Looks

log = get_logger(__name__)

REPORT_SHARE = 0.1
"""Share of the drain time for the last statuses; what is left then the operator writes."""


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
        execution: Callable[..., Execution] = Execution,
        skipped: Callable[[], timedelta] = lambda: NOT_AHEAD,
    ) -> None:
        """`status_api` None writes no statuses. `exit_process` ends the process when its lease is long gone and
        bodies do not stop. `execution` and `skipped` are the testing kit's: what carries out a claim, and by how much
        time is ahead of the clocks. Raises `ConfigurationError` for settings that cannot be used."""
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
        self._exit_process = exit_process
        self._execution = execution
        self._bootstrap = Bootstrap(settings.bootstrap)
        self.when_set_up: Callable[[], None] = lambda: None
        """Called when the bootstrap hook has returned; set before the start."""
        self._lasting = Lasting(
            settings,
            database_url,
            status_api,
            self.metrics,
            wake=self.wake,
            asked=self._asked,
            busy=lambda: self.busy,
            skipped=skipped,
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
        self._lasting.watch.start()
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

    def lose(self, why: str) -> None:
        """As if this worker were killed: its bodies stop, nothing of them is written any more. It registers anew, as
        another worker. `why` is a sentence."""
        if self._session is not None:
            self._session.lose(why)

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
        return self._lasting.watch.silent_for()

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
            await self._lasting.close()
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
        if self.settings.serializer or self.settings.codecs:
            self._registry.serializers.use(self.settings.serializer, self.settings.codecs)
        self.when_set_up()
        if logs.left_without_handlers():
            logs.configure(self.settings.log_level)
            log.warning("logs are left to the application, which has set up no handler: written as usual")
        return not self._stopping.is_set()

    async def _work(self) -> None:
        self._lasting.start()
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
        link = self._lasting.link("starting")
        looks = Looks(link, behind_pooler=pooled(self._database_url))
        while not self._stopping.is_set():
            found = await looks.look()
            if found is None:
                await link.close()
                return True
            if found.why != self.waits_for:
                log.warning("waiting for the database", why=found.why)
                self.waits_for = found.why
            await self._pause(found.pause)
        return False

    async def _register(self) -> Session | None:
        """A session that is registered; None when told to stop before."""
        self.state = State.REGISTERING
        slots = max(1, self.settings.slots - len(self._lingering))
        session = Session(self._parts(), slots=slots, first=not self.registered_once)
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
        await self._lasting.keep_all()
        log.info("draining", worker=session.id, runs=session.machine.busy, seconds=seconds)
        self.clean = await session.drain(seconds * (1 - REPORT_SHARE), self._hurry)
        await self._lasting.flush(max(1.0, seconds * REPORT_SHARE))
        log.info("stopped", worker=session.id, clean=self.clean)

    def _parts(self) -> Parts:
        lasting = self._lasting
        return Parts(
            settings=self.settings,
            registry=self._registry,
            database_url=self._database_url,
            metrics=self.metrics,
            threads=lasting.threads,
            wakes=lasting.wakes,
            ready=lambda: lasting.tell(self.settings.namespace, self.settings.pool),
            ended=lasting.notifier.ended,
            settled=self.resident.settled,
            changed=None if lasting.reporter is None else lasting.reporter.changed,
            exit_process=self._exit_process,
            execution=self._execution,
        )

    def _claiming(self) -> Session | None:
        return self._session if self.state is State.WORKING else None

    def wake(self) -> None:
        """There may be runs to claim."""
        if self._session is not None:
            self._session.claimer.wake()

    def _asked(self, run_ids: Container[str]) -> None:
        if self._session is not None:
            self._session.asked(run_ids)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
