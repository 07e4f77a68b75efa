"""A real Postgres for every tier that needs one: one server a process, one database a test.

Loaded by the root conftest; the server starts when the first test asks for it. `PERDURE_TEST_POSTGRES=15` runs the
same tests on the distribution's Postgres of that version, `PERDURE_TEST_POSTGRES=/…/bin` on any other. Nothing is left
behind, even when pytest is killed.

    async def test_something(conn): ...            # asyncpg, on a migrated database of this test's own
    async def test_something(pg_url): ...          # its address, to open as many sessions as you like
    async def test_something(pg_server, pg_url):   # stop, start, crash the server in the middle
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from perdure.dev.postgres import EmbeddedPostgres, ServerOptions
from perdure.store.migrate import migrate
from perdure.store.pool import connect

from tests.support.tiers import unavailable

FOLDER_PREFIX = "perdure-postgres-"
DEBIAN_BINARIES = "/usr/lib/postgresql/{version}/bin"
TEMPLATE = "perdure_template"
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 << 30
"""Free space from which the data folders are kept in memory: fsync stays on, and what it protects from, the death of
the machine, is no test here. A database is then made in 50 ms, however busy the disk is."""

SETTINGS = {
    "shared_buffers": "96MB",
    "max_connections": "150",
    # No test lives long enough for a checkpoint to be worth its traffic.
    "checkpoint_timeout": "1h",
    "max_wal_size": "1GB",
    "log_lock_waits": "on",
    "log_min_duration_statement": "2000",
}


class PostgresServer:
    """The session's server, for tests that take it away. It runs again when the next test begins."""

    def __init__(self, folder: Path, binaries: Path | None) -> None:
        options = ServerOptions(binaries=binaries, settings=SETTINGS, log=folder / "server.log")
        self._postgres = EmbeddedPostgres(folder / "data", options=options)
        self._numbers = count(1)

    def url(self, database: str = "postgres") -> str:
        """Over TCP, so that a test may put a proxy before it; the port stays the same over restarts."""
        return self._postgres.url(database)

    @property
    def port(self) -> int:
        return self._postgres.port

    @property
    def log(self) -> Path:
        """What the server wrote."""
        assert self._postgres.options.log is not None
        return self._postgres.options.log

    def start(self) -> None:
        self._postgres.start()

    def stop(self) -> None:
        """Clean: sessions are cut, connections refused from now on."""
        self._postgres.stop()

    def crash(self) -> None:
        """As if the power had failed: what was not committed is gone."""
        self._postgres.stop(clean=False)

    def restart(self, *, clean: bool = True) -> None:
        self._postgres.stop(clean=clean)
        self._postgres.start()

    async def create_database(self, template: str = "template1") -> str:
        """A new database; its name."""
        name = f"test_{next(self._numbers)}"
        async with self._administrator() as administrator:
            await administrator.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    async def drop_database(self, name: str) -> None:
        async with self._administrator() as administrator:
            await administrator.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    async def make_template(self) -> None:
        """The migrated database that tests get copies of."""
        async with self._administrator() as administrator:
            await administrator.execute(f"CREATE DATABASE {TEMPLATE}")
        await migrate(self.url(TEMPLATE))

    @contextlib.asynccontextmanager
    async def _administrator(self) -> AsyncIterator["asyncpg.Connection[Any]"]:
        administrator = await asyncpg.connect(self.url(), timeout=10)
        try:
            yield administrator
        finally:
            await administrator.close()


@contextlib.contextmanager
def serving() -> Iterator[PostgresServer]:
    """A server of one's own with the migrated template; nothing of it is left afterwards."""
    _sweep_after_killed_sessions()
    folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-", dir=_folders()))
    folder.chmod(0o755)
    server = PostgresServer(folder, _binaries())
    try:
        server.start()
        asyncio.run(server.make_template())
        yield server
    finally:
        server.crash()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def _server() -> Iterator[PostgresServer]:
    with serving() as server:
        yield server


@pytest.fixture
def pg_server(_server: PostgresServer) -> Iterator[PostgresServer]:
    """The running server; started again after a test that stopped it."""
    _server.start()
    yield _server
    _server.start()


@pytest.fixture
async def pg_url(pg_server: PostgresServer) -> AsyncIterator[str]:
    """Address of a migrated database of this test's own."""
    name = await pg_server.create_database(TEMPLATE)
    yield pg_server.url(name)
    pg_server.start()
    await pg_server.drop_database(name)


@pytest.fixture
async def empty_pg_url(pg_server: PostgresServer) -> AsyncIterator[str]:
    """Address of an empty database of this test's own."""
    name = await pg_server.create_database()
    yield pg_server.url(name)
    pg_server.start()
    await pg_server.drop_database(name)


@pytest.fixture
async def conn(pg_url: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A session on `pg_url`."""
    connection = await connect(pg_url, application_name="test")
    yield connection
    await connection.close()


@pytest.fixture
async def observer(pg_url: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A second session on `pg_url`, to look on while `conn` waits."""
    connection = await connect(pg_url, application_name="observer")
    yield connection
    await connection.close()


def _binaries() -> Path | None:
    version = os.environ.get("PERDURE_TEST_POSTGRES", "")
    if not version:
        return None
    folder = Path(version if "/" in version else DEBIAN_BINARIES.format(version=version))
    if not folder.is_dir():
        unavailable("store", f"PERDURE_TEST_POSTGRES={version}, and there is no {folder}")
    return folder


def _folders() -> Path:
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES
    return MEMORY if roomy and os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def _sweep_after_killed_sessions() -> None:
    """The server of a killed session is gone; its folder is found by the process id in the name."""
    for folder in _folders().glob(f"{FOLDER_PREFIX}*-*"):
        if not Path("/proc", folder.name.removeprefix(FOLDER_PREFIX).split("-")[0]).exists():
            shutil.rmtree(folder, ignore_errors=True)
