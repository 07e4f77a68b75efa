"""The place of all measures: one Postgres on this machine, as durable as in production, and workers over it.

Every measure gets a database of its own on the same server, and starts after a checkpoint on a machine that is idle.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
from localcluster.console import Failure, say
from perdure import Client
from perdure.dev import processes
from perdure.dev.postgres import EmbeddedPostgres, ServerOptions
from perdure.dev.processes import WorkerProcess, WorkerSettings
from perdure.store import migrate

from benchmarks import machine
from benchmarks.sizes import Size

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE, POOL = "bench", "bench"

POSTGRES = {
    "shared_buffers": "1GB",
    "max_connections": "500",  # fifty workers have some seven each
    "max_wal_size": "4GB",  # no checkpoint in the middle of a measure
}
"""All else is as Postgres comes: fsync and synchronous_commit are on, over TCP."""

Connection: TypeAlias = "asyncpg.Connection[Any]"

POLL_SECONDS = 0.002
SECONDS = 300.0
START_SECONDS = 120.0
"""Fifty workers on two cores take some twenty seconds to start."""


@dataclass(frozen=True)
class Database:
    """A database of one measure's own, and a session on it without any of Perdure's limits."""

    url: str
    connection: Connection
    bench: Bench

    async def settle(self) -> None:
        """When the tables are filled: current statistics, everything on disk, and an idle machine."""
        await self.connection.execute("VACUUM ANALYZE")
        await self.connection.execute("CHECKPOINT")
        await self.bench.wait_until_idle()

    def client(self) -> Client:
        """A caller that starts runs for the workers here."""
        return Client(self.url, namespace=NAMESPACE, pool=POOL)

    async def connect(self) -> Connection:
        """Another such session, that the caller closes."""
        return await asyncpg.connect(self.url)


@dataclass
class Bench:
    """What every measure is given."""

    size: Size
    server: EmbeddedPostgres
    folder: Path
    notes: list[str] = field(default_factory=list)
    """What a reader should know of this run: said once each, and kept with the part's results."""

    @asynccontextmanager
    async def database(self, *, migrated: bool = True) -> AsyncIterator[Database]:
        """Dropped at the end, so that the next one does not pay for its cleaning."""
        name = f"bench_{uuid.uuid4().hex[:8]}"
        await self._administer(f"CREATE DATABASE {name}")
        url = self.server.url(name)
        if migrated:
            await migrate.migrate(url)
        connection = await asyncpg.connect(url)
        try:
            yield Database(url, connection, self)
        finally:
            await connection.close()
            await self._administer(f"DROP DATABASE {name} WITH (FORCE)")

    @asynccontextmanager
    async def workers(
        self, database: Database, numbers: Sequence[int] = (1,), *, slots: int = 16, lease: float = 30.0
    ) -> AsyncIterator[list[WorkerProcess]]:
        """Worker processes that have registered; stopped at the end."""
        started: list[WorkerProcess] = []
        try:
            for number in numbers:
                started += [await self.start_worker(database, number, slots=slots, lease=lease)]
            await self.until_registered(database, started)
            yield started
        finally:
            await asyncio.gather(*(worker.stop(10.0) for worker in started))

    async def start_worker(
        self, database: Database, number: int, *, slots: int = 16, lease: float = 30.0
    ) -> WorkerProcess:
        """A worker that is not waited for. The same number again is the same pod, with a new container."""
        settings = WorkerSettings(
            database_url=database.url,
            modules=["benchmarks.flows"],
            bootstrap=None,
            paths=[ROOT],
            namespace=NAMESPACE,
            pool=POOL,
            queues=["default"],
            slots=slots,
            lease_seconds=lease,
            log_folder=self.folder,
        )
        return await processes.start(settings, number)

    async def until_registered(self, database: Database, workers: Sequence[WorkerProcess]) -> None:
        """Wait until each is live in the database. Raises Failure with the log of one that ended instead."""
        live = "SELECT count(*) FROM perdure.workers WHERE state = 10 AND pod_uid = ANY($1)"
        uids = [worker.pod_uid for worker in workers]

        async def registered() -> bool:
            for worker in workers:
                if worker.exit_code is not None:
                    raise Failure(f"a worker has ended:\n{worker.last_words()}")
            return bool(await database.connection.fetchval(live, uids) >= len(uids))

        await until(registered, "the start of the workers", seconds=START_SECONDS)

    async def until_listening(self, port: int, who: str) -> None:
        """Wait until a port of this machine takes connections."""

        async def listening() -> bool:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return False
            writer.close()
            return True

        await until(listening, f"{who}'s port", seconds=START_SECONDS, interval=0.1)

    async def wait_until_idle(self) -> None:
        share = await machine.until_idle(self.size.idle_seconds)
        if share >= machine.IDLE_SHARE:
            self.note("something else was at work when a measure began")

    def note(self, text: str) -> None:
        if text not in self.notes:
            say(text)
            self.notes.append(text)

    async def versions(self) -> dict[str, str]:
        """Of the server, with the settings that matter here as they are in force."""
        connection = await asyncpg.connect(self.server.url())
        try:
            names = [*POSTGRES, "fsync", "synchronous_commit", "wal_sync_method"]
            found = {name: await connection.fetchval("SELECT current_setting($1)", name) for name in names}
            return {"version": await connection.fetchval("SHOW server_version"), **found}
        finally:
            await connection.close()

    async def _administer(self, statement: str) -> None:
        connection = await asyncpg.connect(self.server.url())
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


async def until(
    check: Callable[[], Awaitable[bool]], what: str, *, seconds: float = SECONDS, interval: float = POLL_SECONDS
) -> None:
    """Poll an async check. Raises Failure when it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not await check():
        if time.monotonic() > deadline:
            raise Failure(f"{what} did not come about within {seconds:.0f}s")
        await asyncio.sleep(interval)


@contextmanager
def bench(size: Size) -> Iterator[Bench]:
    """Everything up, and taken down again."""
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # started by root, Postgres runs as another user, who must get to its data
        options = ServerOptions(settings=POSTGRES, log=folder / "postgres.log")
        with EmbeddedPostgres(folder / "postgres", options=options) as server:
            yield Bench(size, server, folder)
