"""The operator's process: puts the parts together, starts them in order, ends them on SIGTERM.

It never ends because something it needs is away: without Postgres it tries again, without the CRDs it waits, and is
not ready meanwhile. It ends by itself only for settings that cannot be used.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable

from asyncpg import PostgresError
from perdure import __version__
from perdure.errors import ConfigurationError, MigrationFailed, PoolerInTheWay, SchemaOutOfRange
from perdure.store.migrate import check, migrate
from perdure.store.pool import connect, database_url, migrate_url
from perdure.telemetry import names
from perdure.telemetry.http import HttpServer, exposition, probe
from perdure.telemetry.logs import configure, get_logger
from perdure.telemetry.prometheus import Metrics

from perdure_operator.control.database import APPLICATION_NAME, Database, is_away
from perdure_operator.control.discovery import Discovery
from perdure_operator.control.leader import Leader, lock_name
from perdure_operator.control.leading import Leading, Place
from perdure_operator.control.supervise import supervise
from perdure_operator.control.watch import quieten
from perdure_operator.kube.client import Client
from perdure_operator.probes import STUCK_SECONDS, TRY_SECONDS, Health
from perdure_operator.settings import OperatorSettings, load, strangers

log = get_logger(__name__)

TICK_SECONDS = 0.25
"""Time between two ticks of the event loop, by which its lag is measured."""

NOT_YET = (SchemaOutOfRange, MigrationFailed, PoolerInTheWay, ConfigurationError, PostgresError)
"""What people have to mend while the operator waits and says it."""

MIGRATE_SECONDS = (0.5, 10.0)
"""First and longest wait before the schema is tried again."""

SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter from the other: with Python's 5 ms each system call of the working loop
would wait so long for it while the watch reads a large list."""

STOP_SECONDS = 8.0
"""Longest end: below the shortest grace period anybody sets; what is unfinished is found by the next leader."""

LOOK_SECONDS = 5.0
"""Time between two looks at the mounted URL or password; the kubelet takes about a minute to bring a new one."""


class Operator:
    """One operator. `run` returns after `stop` was set, or raises what cannot be mended by waiting.

    `migrating` gives the URL for migrations, where it is another one; asked before each try, as a mounted one changes.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        url: str,
        metrics: Metrics | None = None,
        *,
        migrating: Callable[[], str] | None = None,
    ) -> None:
        self._settings = settings
        self._url = url
        self._migrating = migrating or (lambda: url)
        self.metrics = metrics or Metrics(names.declared(names.Component.OPERATOR))
        self.health = Health()
        self.servers: list[HttpServer] = []
        """For metrics and for probes, while `run` runs."""

        self._place = Place(
            namespaces=settings.namespaces,
            url=url,
            access=settings.access(),
            instance=settings.pod_name,
            lease=settings.lease_seconds,
            resync=settings.resync_seconds,
            defaults=settings.worker_defaults,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        self.metrics.set(names.BUILD_INFO, 1, "operator", __version__)
        probes = {
            "/startupz": probe(self.health.startup),
            "/livez": probe(self.health.alive),
            "/readyz": probe(self.health.ready),
        }
        self.servers = [
            HttpServer({"/metrics": exposition(self.metrics)}, port=self._settings.metrics_port),
            HttpServer(probes, port=self._settings.probe_port),
        ]
        work = asyncio.create_task(self._work(), name="operator")
        waiter = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait([work, waiter], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            waiter.cancel()
            work.cancel()
            await asyncio.wait([work, waiter], timeout=STOP_SECONDS)
            for server in self.servers:
                await asyncio.to_thread(server.close)
            log.info("stopped")

    async def _work(self) -> None:
        database = Database(self._url, self.metrics)
        client = Client(self._place.access, self.metrics, user_agent=f"perdure-operator/{__version__}")
        try:
            async with client, asyncio.TaskGroup() as group:

                def start(name: str, service: Callable[[], Awaitable[None]]) -> None:
                    group.create_task(supervise(name, service), name=name)

                start("ticks", self._ticks)
                self.health.started = True
                await self._migrate()
                discovery = Discovery(client, self._served)
                start("discovery", discovery.run)
                await discovery.wait()
                leader = Leader(self._url, lock_name(self._place.namespaces), self.metrics)
                leading = Leading(self._place, client, database, self.metrics, lambda: leader.leading)
                self._observe(leading, leader)
                start("watch", leading.watch.run)
                start("leader", lambda: leader.run(leading.run))
        finally:
            await database.close()

    async def _migrate(self) -> None:
        """Until the schema is this program's. Says what is in the way, once for each new reason."""
        wait, longest = MIGRATE_SECONDS
        said = ""
        while True:
            try:
                applied = await self._schema()
            except Exception as error:
                if not is_away(error) and not isinstance(error, NOT_YET):
                    raise
                reason = str(error) or type(error).__name__
                if reason != said:
                    log.warning("the database is not usable yet", reason=reason)
                    said = reason
            else:
                log.info("the database has this program's schema", applied=applied)
                self.health.migrated = True
                return
            await asyncio.sleep(wait)
            wait = min(longest, wait * 1.5)

    async def _schema(self) -> list[str]:
        """The names of the migrations that were applied. What was migrated past a pooler must show through it."""
        url = await asyncio.to_thread(self._migrating)
        applied = await migrate(url)
        if url != self._url:
            connection = await connect(self._url, application_name=APPLICATION_NAME)
            try:
                await check(connection)
            except SchemaOutOfRange as error:
                raise SchemaOutOfRange(
                    f"PERDURE_DATABASE_MIGRATE_URL has the schema, but where the operator works {error.message}; "
                    "both must lead to the same database"
                ) from error
            finally:
                connection.terminate()
        return applied

    def _served(self, served: bool) -> None:
        self.health.served = served

    def _observe(self, leading: Leading, leader: Leader) -> None:
        queues = (
            (leading.runs, "the intake"),
            (leading.pools, "the reconcile of pools"),
            (leading.signals, "the delivery of signals"),
        )
        for queue, what in queues:
            self.health.watch(what, lambda queue=queue: queue.stuck_for, STUCK_SECONDS)  # type: ignore[misc]
        self.health.watch(
            "the comparison of resources and runs",
            lambda: leading.resync.silent_for if leader.leading else 0.0,
            TRY_SECONDS + self._settings.resync_seconds,
        )
        self.metrics.read_from(names.RESYNC_AGE_SECONDS, lambda: leading.resync.age)

    async def _ticks(self) -> None:
        while True:
            due = time.monotonic() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self.metrics.observe(names.LOOP_LAG_SECONDS, max(0.0, time.monotonic() - due))
            self.health.tick()


async def serve(settings: OperatorSettings, url: str) -> None:
    """Run until SIGTERM or SIGINT, or until the database is another one."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    look = asyncio.create_task(stop_when_moved(url, stop))
    try:
        await Operator(settings, url, migrating=migrate_url).run(stop)
    finally:
        look.cancel()


async def stop_when_moved(url: str, stop: asyncio.Event, *, every: float = LOOK_SECONDS) -> None:
    """Set `stop` once the database's URL or password is another one: the kubelet starts the process again with it.

    Open connections would outlive a new password, but none could be opened after it. `every` in seconds.
    """
    while True:
        await asyncio.sleep(every)
        try:
            moved = await asyncio.to_thread(database_url) != url
        except ConfigurationError as error:
            log.warning("the database's URL cannot be read any more; going on with the last one", reason=str(error))
            continue
        if moved:
            log.info("the database's URL or password has changed: ending, to start again with it")
            stop.set()
            return


def main() -> int:
    """Exit code 0 after a clean stop, 2 for settings that cannot be used."""
    try:
        settings = load()
        url = database_url()
        migrate_url()
        settings.access()
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.setswitchinterval(SWITCH_SECONDS)
    configure(settings.log_level)
    if settings.log_level.upper() != "DEBUG":
        quieten()
    for note in strangers():
        log.warning("a setting is not used as it is given", setting=note)
    log.info("starting", version=__version__, namespaces=settings.namespaces)
    asyncio.run(serve(settings, url))
    return 0
