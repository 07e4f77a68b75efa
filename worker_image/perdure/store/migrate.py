"""The schema and its versions. The operator migrates at its start; everybody else only checks.

An applied migration is never changed: its text is compared with what was applied. One process at a time, each
migration in a transaction of its own, so that an interrupted upgrade continues where it stopped. Whoever applies it,
this program, a script or files in a user's own tree (`scaffold`), runs the very same text: `bootstrap`, then the
`script` of each migration.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import asyncpg

from perdure.errors import MigrationFailed, SchemaOutOfRange
from perdure.store.pool import connect
from perdure.store.statements import sql

APPLICATION_NAME = "perdure-migrate"


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file of `store/migrations`."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def script(self) -> str:
        """The text, and the record that it was applied: one transaction of any number of statements."""
        record = sql("migration_record")
        values = (str(self.version), f"'{self.name}'", f"'{self.checksum}'")
        for number, value in enumerate(values, start=1):
            record = record.replace(f"${number}", value)
        return f"{self.text.rstrip()}\n{record.rstrip()};\n"


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations that this program has, in order."""
    found = []
    for entry in (resources.files(__package__) / "migrations").iterdir():
        stem = entry.name.removesuffix(".sql")
        if stem[:4].isdigit():
            found.append(Migration(int(stem[:4]), stem, entry.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda each: each.version))


async def migrate(url: str) -> list[str]:
    """Bring the database to this program's schema; the names of what was applied, durable on return.

    Raises `SchemaOutOfRange` when the database is newer than the program, `MigrationFailed` when an applied
    migration no longer equals its file, or one cannot be applied (what was applied before it stays).
    """
    async with _session(url) as holder, holder.transaction(), _session(url) as connection:
        # The lock goes with a transaction of its own, not with a session: a pooler lends sessions only for one.
        await holder.execute(sql("migration_unlimited"))
        await holder.execute(sql("migration_lock"))
        await connection.execute(bootstrap())
        applied = await connection.fetch(sql("migration_applied"))
        _refuse_foreign(applied)
        done = {row["version"] for row in applied}
        return [await _apply(connection, each) for each in migrations() if each.version not in done]


async def check(connection: asyncpg.Connection[Any]) -> None:
    """Raises `SchemaOutOfRange` unless the database has exactly this program's schema."""
    state = await connection.fetchrow(sql("migration_state"))
    applied = await connection.fetch(sql("migration_applied")) if state and state["has_table"] else []
    there = {row["version"] for row in applied}
    missing = [each.name for each in migrations() if each.version not in there]
    if missing:
        raise SchemaOutOfRange(
            f"the database has schema version {max(there, default=0)}, this program needs {migrations()[-1].version} "
            f"(not applied: {', '.join(missing)}): the operator migrates at its start, or run `perdure migrate`"
        )
    _refuse_foreign(applied)


def bootstrap() -> str:
    """What comes before the first migration. Does nothing where it was run before."""
    return (resources.files(__package__) / "migrations" / "bootstrap.sql").read_text(encoding="utf-8")


def statements() -> str:
    """All SQL for an empty database as one script, for people who apply it by hand."""
    return "\n".join([bootstrap(), *(f"BEGIN;\n{each.script}COMMIT;\n" for each in migrations())])


@asynccontextmanager
async def _session(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await connect(url, application_name=APPLICATION_NAME, statement_timeout=0)
    try:
        yield connection
    finally:
        await connection.close()


async def _apply(connection: asyncpg.Connection[Any], migration: Migration) -> str:
    try:
        async with connection.transaction():
            await connection.execute(sql("migration_unlimited"))
            await connection.execute(migration.script)
    except asyncpg.PostgresError as error:
        raise MigrationFailed(f"{migration.name} could not be applied: {error}") from error
    return migration.name


def _refuse_foreign(applied: list[asyncpg.Record]) -> None:
    known = {each.version: each for each in migrations()}
    for row in applied:
        mine = known.get(row["version"])
        if mine is None:
            raise SchemaOutOfRange(
                f"the database has migration {row['name']}, which this program does not know: use a newer program"
            )
        if mine.checksum != row["checksum"]:
            raise MigrationFailed(f"{mine.name} was changed after it had been applied to this database")
