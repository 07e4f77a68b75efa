import asyncio
import re
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from perdure.errors import MigrationFailed, SchemaOutOfRange
from perdure.model.states import (
    FINAL_FROM,
    FINISHED_FROM,
    CancelMode,
    RunStatus,
    StepStatus,
    WorkerState,
)
from perdure.store import migrate
from perdure.store.migrate import Migration
from perdure.store.statements import sql

from tests.store.builders import Connection
from tests.support.pgwait import waiting

ALL = [each.name for each in migrate.migrations()]
NEXT = migrate.migrations()[-1].version + 1


@pytest.fixture
async def empty(empty_pg_url: str) -> Any:
    connection = await asyncpg.connect(empty_pg_url)
    yield connection
    await connection.close()


async def test_an_empty_database_is_brought_up_once(empty_pg_url: str, empty: Connection) -> None:
    with pytest.raises(SchemaOutOfRange, match="schema version 0"):
        await migrate.check(empty)

    assert await migrate.migrate(empty_pg_url) == ALL
    assert await migrate.migrate(empty_pg_url) == []
    await migrate.check(empty)


async def test_two_at_once_apply_once(empty_pg_url: str, empty: Connection) -> None:
    results = await asyncio.gather(*(migrate.migrate(empty_pg_url) for _ in range(4)))

    assert sorted(results) == [[], [], [], ALL]
    assert await empty.fetchval("SELECT count(*) FROM perdure.migrations") == len(ALL)


async def test_the_second_waits_for_the_first(empty_pg_url: str, empty: Connection) -> None:
    async with empty.transaction():
        await empty.execute(sql("migration_lock"))
        observer = await asyncpg.connect(empty_pg_url)
        second = await waiting(observer, migrate.migrate(empty_pg_url))
        await observer.close()
    await empty.execute("SELECT pg_advisory_unlock_all()")
    assert await second == ALL


async def test_a_schema_made_by_an_administrator_is_used(empty_pg_url: str, empty: Connection) -> None:
    await empty.execute("CREATE SCHEMA perdure")

    assert await migrate.migrate(empty_pg_url) == ALL


async def test_a_changed_migration_is_refused(conn: Connection, pg_url: str) -> None:
    await conn.execute("UPDATE perdure.migrations SET checksum = 'other'")

    with pytest.raises(MigrationFailed, match=ALL[0]):
        await migrate.migrate(pg_url)
    with pytest.raises(MigrationFailed, match=ALL[0]):
        await migrate.check(conn)


async def test_a_newer_database_is_refused(conn: Connection, pg_url: str) -> None:
    await conn.execute(sql("migration_record"), NEXT, "9999_future", "x")

    with pytest.raises(SchemaOutOfRange, match="9999_future"):
        await migrate.migrate(pg_url)
    with pytest.raises(SchemaOutOfRange, match="use a newer program"):
        await migrate.check(conn)


async def test_an_older_database_is_refused_until_it_is_migrated(
    conn: Connection, pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = (*migrate.migrations(), Migration(NEXT, "0099_more", "CREATE TABLE perdure.more (id integer);"))
    monkeypatch.setattr(migrate, "migrations", lambda: more)

    with pytest.raises(SchemaOutOfRange, match="perdure migrate"):
        await migrate.check(conn)
    assert await migrate.migrate(pg_url) == ["0099_more"]
    await migrate.check(conn)


async def test_a_failed_migration_leaves_what_came_before(
    empty_pg_url: str, empty: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = Migration(NEXT, "0099_bad", "CREATE TABLE perdure.half (id integer); SELECT 1 / 0;")
    more = (*migrate.migrations(), bad)
    monkeypatch.setattr(migrate, "migrations", lambda: more)

    with pytest.raises(MigrationFailed, match="0099_bad could not be applied: division by zero"):
        await migrate.migrate(empty_pg_url)

    assert [each["name"] for each in await empty.fetch(sql("migration_applied"))] == ALL
    assert await empty.fetchval("SELECT to_regclass('perdure.half')") is None


async def test_the_script_for_people_does_the_same(empty_pg_url: str, empty: Connection) -> None:
    await empty.execute(migrate.statements())

    await migrate.check(empty)
    assert await migrate.migrate(empty_pg_url) == []


def test_each_file_has_a_number_of_its_own() -> None:
    versions = [each.version for each in migrate.migrations()]
    assert versions == sorted(set(versions)) and versions[0] == 1
    folder = Path(migrate.__file__).parent / "migrations"
    assert {path.stem for path in folder.glob("*.sql")} == {*ALL, "bootstrap"}


async def test_a_migration_missing_between_others_is_noticed_and_made_up_for(
    pg_url: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await conn.execute(sql("migration_record"), NEXT + 1, "0099_after", "x")
    between = Migration(NEXT, "0098_between", "CREATE TABLE perdure.between_others (id integer);")
    after = Migration(NEXT + 1, "0099_after", "SELECT 1;")
    await conn.execute("UPDATE perdure.migrations SET checksum = $1 WHERE version = $2", after.checksum, NEXT + 1)
    more = (*migrate.migrations(), between, after)
    monkeypatch.setattr(migrate, "migrations", lambda: more)

    with pytest.raises(SchemaOutOfRange, match="not applied: 0098_between"):
        await migrate.check(conn)
    assert await migrate.migrate(pg_url) == ["0098_between"]
    await migrate.check(conn)


async def checks(conn: Connection, table: str) -> str:
    rows = await conn.fetch(
        "SELECT pg_get_constraintdef(oid) AS text FROM pg_constraint WHERE contype = 'c' AND conrelid = $1::regclass",
        f"perdure.{table}",
    )
    return "\n".join(row["text"] for row in rows)


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [("workflows", "status", RunStatus), ("workflow_steps", "status", StepStatus), ("workers", "state", WorkerState)],
)
async def test_states_of_the_database_are_those_of_the_model(
    conn: Connection, table: str, column: str, values: type[RunStatus | StepStatus | WorkerState]
) -> None:
    text = await checks(conn, table)

    [listed] = re.findall(rf"\({column} = ANY \(ARRAY\[([^\]]*)\]", text)
    assert {int(each) for each in re.findall(r"\d+", listed)} == {int(each) for each in values}


async def test_cancel_modes_and_thresholds_are_those_of_the_model(conn: Connection) -> None:
    text = await checks(conn, "workflows")

    assert set(re.findall(r"'(\w+)'::text", text)) == {str(each) for each in CancelMode}
    assert f"status >= {int(FINISHED_FROM)}" in text
    assert f"status = {int(RunStatus.RUNNING)}" in text
    folder = Path(migrate.__file__).parent / "sql"
    for name in ("journal_commit.sql", "journal_steps.sql", "journal_next.sql", "journal_done.sql"):
        assert f"t.status < {int(FINAL_FROM)}" in (folder / name).read_text()
