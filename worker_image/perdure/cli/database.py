"""The database commands: each opens a loop of its own, does one thing, and says in one error what was wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from perdure.errors import StoreUnavailable
from perdure.store import migrate as migrations
from perdure.store import pool
from perdure.store.pooler import Pooler, with_pooler
from perdure.store.role_settings import missing

T = TypeVar("T")

APPLICATION = "perdure-cli"


def statements() -> str:
    """All migrations as SQL, for a database administrator to read or run."""
    return migrations.statements()


def migrate() -> list[str]:
    """Apply what is missing; gives the names. Committed on return."""
    return _run(lambda: migrations.migrate(pool.migrate_url()))


def check() -> None:
    """Raises `SchemaOutOfRange` unless the database has exactly this program's schema."""

    async def connect_and_check() -> None:
        connection = await pool.connect(pool.database_url(), application_name=APPLICATION)
        try:
            await migrations.check(connection)
        finally:
            await connection.close()

    _run(connect_and_check)


def role_settings() -> list[str]:
    """Statements that give the role of the URL the settings which no session can set behind a pooler; those it has
    already are left out. Changes nothing."""

    async def connect_and_ask() -> list[str]:
        # As through a pooler, also where there is none: with its settings a session would hide what the role lacks.
        url = with_pooler(pool.database_url(), Pooler.TRANSACTION)
        connection = await pool.connect(url, application_name=APPLICATION)
        try:
            return list((await missing(connection)).values())
        finally:
            await connection.close()

    return _run(connect_and_ask)


def _run(action: Callable[[], Awaitable[T]]) -> T:
    async def answered() -> T:
        try:
            return await action()
        except pool.connection_errors as error:
            raise StoreUnavailable(f"the database does not answer: {error}") from error

    return asyncio.run(answered())
