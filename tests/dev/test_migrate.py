"""`perdure migrate` on a real database."""

import os
import subprocess
import sys


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
