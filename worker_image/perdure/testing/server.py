"""A Postgres for the tests of a session, and a database of its own for each test.

Used by the pytest plugin, and by whoever has another test runner. The server is embedded and thrown away with all that
is in it, or the one that `PERDURE_TEST_DATABASE_URL` names, on which databases are made and removed. Promises: every
database is migrated, as a copy of one template; what was made here is removed when the session ends in good order, and
the folder of a session that was killed by the next one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

from perdure.dev.postgres import EmbeddedPostgres, ServerOptions
from perdure.errors import ConfigurationError
from perdure.store.migrate import migrate
from perdure.store.pool import checked_url, connect
from perdure.testing.statements import sql

T = TypeVar("T")

VARIABLE = "PERDURE_TEST_DATABASE_URL"
"""Names the server to use; its role must be allowed to create databases."""

FOLDER_PREFIX = "perdure-testing-"

SETTINGS = {
    # What is lost with the machine is thrown away anyway: nothing waits for the disk.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "checkpoint_timeout": "1h",
    "max_wal_size": "1GB",
}


class DatabaseServer:
    """A running Postgres on which tests get databases. Made by `serving`."""

    def __init__(self, url: str) -> None:
        self._url = url
        # Sessions that share a server, as those of pytest-xdist do, must not meet each other's.
        self._token = secrets.token_hex(4)
        self._numbers = count(1)
        self._template = f"perdure_template_{self._token}"

    def create(self) -> str:
        """A new database with the schema of this version of Perdure; its address."""
        name = f"perdure_test_{self._token}_{next(self._numbers)}"
        in_a_thread(self._execute("create_database", name, self._template))
        return with_database(self._url, name)

    def drop(self, url: str) -> None:
        """Remove a database that `create` has made, whoever is still connected."""
        in_a_thread(self._execute("drop_database", urlsplit(url).path.lstrip("/")))

    def prepare(self) -> None:
        """Make the template of all databases."""
        in_a_thread(self._prepare())

    def clear(self) -> None:
        """Remove the template."""
        in_a_thread(self._execute("drop_database", self._template))

    async def _prepare(self) -> None:
        await self._execute("create_database", self._template, "template1")
        await migrate(with_database(self._url, self._template))

    async def _execute(self, statement: str, name: str, template: str = "") -> None:
        connection = await connect(self._url, application_name="perdure-testing", statement_timeout=60.0)
        try:
            await connection.execute(sql(statement).format(name=name, template=template))
        except asyncpg.InsufficientPrivilegeError as error:
            raise ConfigurationError(
                f"tests need a role that may create databases, and the one of {VARIABLE} may not: {error}"
            ) from error
        finally:
            await connection.close()


@contextmanager
def serving(url: str | None = None) -> Iterator[DatabaseServer]:
    """A server for tests: the one at `url`, else an embedded one, which is gone afterwards.

    Raises `ConfigurationError` when the url cannot be used, and without one where `perdure[dev]` is not installed.
    """
    if url:
        with _prepared(checked_url(url, VARIABLE)) as server:
            yield server
        return
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-"))
    # Postgres runs as another user where the tests run as root, who must pass this folder.
    folder.chmod(0o755)
    postgres = EmbeddedPostgres(folder / "data", options=ServerOptions(settings=SETTINGS, log=folder / "server.log"))
    try:
        postgres.start()
        with _prepared(postgres.url()) as server:
            yield server
    finally:
        postgres.stop(clean=False)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _prepared(url: str) -> Iterator[DatabaseServer]:
    server = DatabaseServer(url)
    server.prepare()
    try:
        yield server
    finally:
        server.clear()


def in_a_thread(work: Coroutine[Any, Any, T]) -> T:
    """Do this to its end, whether or not an event loop runs here."""
    with ThreadPoolExecutor(1, thread_name_prefix="perdure-testing") as pool:
        return pool.submit(asyncio.run, work).result()


def with_database(url: str, name: str) -> str:
    """The address of another database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{quote(name)}"))


def _sweep() -> None:
    """Folders of sessions that were killed: their servers have ended with them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*-*"):
        owner = folder.name.removeprefix(FOLDER_PREFIX).split("-")[0]
        if owner.isdigit() and not _lives(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
