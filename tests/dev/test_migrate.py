"""`perdure migrate` on a real database."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg

Connection: TypeAlias = "asyncpg.Connection[Any]"


def migrate(url: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perdure.cli", "migrate", *options],
        env={**os.environ, "PERDURE_DATABASE_URL": url, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_empty_database_is_brought_up_to_date_once(empty_pg_url: str) -> None:
    check = migrate(empty_pg_url, "--check")
    assert check.returncode == 3 and "PRD-602" in check.stderr
    first, second = migrate(empty_pg_url), migrate(empty_pg_url)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "applied 0001_initial" in first.stdout
    assert "nothing to do" in second.stdout
    assert "up to date" in migrate(empty_pg_url, "--check").stdout


def test_a_url_for_migrations_alone_is_used_for_them_alone(empty_pg_url: str) -> None:
    nobody = "postgresql://u@127.0.0.1:1/n"
    done = migrate(nobody, PERDURE_DATABASE_MIGRATE_URL=empty_pg_url)
    assert done.returncode == 0 and "applied 0001_initial" in done.stdout, done.stderr
    assert migrate(nobody, "--check", PERDURE_DATABASE_MIGRATE_URL=empty_pg_url).returncode == 3
    assert "up to date" in migrate(empty_pg_url, "--check").stdout


async def test_what_the_role_lacks_behind_a_pooler_is_printed_until_it_has_it(conn: Connection, pg_url: str) -> None:
    printed = migrate(pg_url, "--role-settings")
    assert printed.returncode == 0, printed.stderr
    assert "SET statement_timeout = '8000';" in printed.stdout
    await conn.execute(printed.stdout)
    assert "nothing to do" in migrate(pg_url, "--role-settings").stdout


def test_files_are_written_once_and_a_changed_one_is_told(tmp_path: Path, empty_pg_url: str) -> None:
    options = ("scaffold", "--format", "alembic", "--after", "own_head", "--to", str(tmp_path / "versions"))
    first, second = migrate(empty_pg_url, *options), migrate(empty_pg_url, *options)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "wrote" in first.stdout and "perdure_0001_initial.py" in first.stdout
    assert second.stdout == "nothing to do: all files are there\n"
    file = tmp_path / "versions" / "perdure_0000_bootstrap.py"
    assert 'down_revision = "own_head"' in file.read_text()
    file.write_text(file.read_text().replace("CREATE SCHEMA perdure", "CREATE SCHEMA other"))
    edited = migrate(empty_pg_url, *options)
    assert edited.returncode == 2
    assert "PRD-111" in edited.stderr and "perdure_0000_bootstrap.py was edited" in edited.stderr
    assert migrate(empty_pg_url, "--check").returncode == 3, "files were written, no database was touched"


def test_a_url_that_is_no_postgres_is_a_mistake_in_the_settings() -> None:
    done = migrate("mysql://root:hunter2@db/perdure", "--check")
    assert done.returncode == 2
    assert "PRD-101" in done.stderr and "hunter2" not in done.stderr
