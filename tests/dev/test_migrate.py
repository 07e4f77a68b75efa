"""`perdure migrate` on a real database."""

import os
import subprocess
import sys
from typing import Any, TypeAlias

import asyncpg

Connection: TypeAlias = "asyncpg.Connection[Any]"


def migrate(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perdure.cli", "migrate", *options],
        env={**os.environ, "PERDURE_DATABASE_URL": url},
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


async def test_what_the_role_lacks_behind_a_pooler_is_printed_until_it_has_it(conn: Connection, pg_url: str) -> None:
    printed = migrate(pg_url, "--role-settings")
    assert printed.returncode == 0, printed.stderr
    assert "SET statement_timeout = '8000';" in printed.stdout
    await conn.execute(printed.stdout)
    assert "nothing to do" in migrate(pg_url, "--role-settings").stdout
