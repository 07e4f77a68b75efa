"""The embedded server of `perdure dev`, the tests and the chart's throwaway database."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from perdure.dev.postgres import EmbeddedPostgres, ServerOptions
from perdure.errors import ConfigurationError

from tests.support.pgwait import eventually

PACKAGES = Path(__file__).parents[2] / "worker_image"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where another user may go, too: a root caller's server is one."""
    with tempfile.TemporaryDirectory(prefix="perdure-embedded-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def options(folder: Path, **fields: object) -> ServerOptions:
    return ServerOptions(log=folder / "log", **fields)  # type: ignore[arg-type]


async def test_data_stays_over_a_stop_and_over_a_crash(folder: Path) -> None:
    with EmbeddedPostgres(folder / "data", options=options(folder, database="perdure")) as server:
        port = server.port
        for clean in (True, False):
            connection = await asyncpg.connect(server.url())
            await connection.execute("CREATE TABLE IF NOT EXISTS t (id integer); INSERT INTO t VALUES (1)")
            assert await connection.fetchval("SHOW fsync") == "on"
            assert await connection.fetchval("SHOW synchronous_commit") == "on"
            server.stop(clean=clean)
            connection.terminate()
            assert not server.running
            server.start()
        server.start()
        assert server.port == port
        connection = await asyncpg.connect(server.socket_url())
        assert await connection.fetchval("SELECT count(*) FROM t") == 2
        await connection.close()
    assert not server.running


async def test_a_password_is_asked_for_over_tcp_and_may_be_changed(folder: Path) -> None:
    file = folder / "password"
    for password in ("it's $1 \\ secret", "another"):
        file.write_text(f"{password}\n")
        with EmbeddedPostgres(
            folder / "data", options=options(folder, role="perdure", database="perdure", password_file=file)
        ) as server:
            connection = await asyncpg.connect(server.url(), password=password)
            assert await connection.fetchval("SELECT current_user || '@' || current_database()") == "perdure@perdure"
            await connection.close()
            with pytest.raises(asyncpg.InvalidPasswordError):
                await asyncpg.connect(server.url(), password="wrong")
    assert password not in (folder / "log").read_text()


def test_two_servers_do_not_share_a_folder(folder: Path) -> None:
    second = EmbeddedPostgres(folder / "data", options=options(folder))
    with EmbeddedPostgres(folder / "data", options=options(folder)), pytest.raises(ConfigurationError, match="start"):
        second.start()


def test_data_of_another_version_is_refused(folder: Path) -> None:
    cluster = folder / "data" / "cluster"
    cluster.mkdir(parents=True)
    (cluster / "PG_VERSION").write_text("9\n")

    with pytest.raises(ConfigurationError, match="written by Postgres 9"):
        EmbeddedPostgres(folder / "data", options=options(folder)).start()


def test_an_interrupted_creation_is_begun_again(folder: Path) -> None:
    (folder / "data" / "cluster.new").mkdir(parents=True)
    (folder / "data" / "cluster.new" / "PG_VERSION").write_text("half")
    (folder / "data").chmod(0o755)

    with EmbeddedPostgres(folder / "data", options=options(folder)) as server:
        assert server.running


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server is another user")
def test_a_folder_that_the_server_cannot_reach_is_named(folder: Path) -> None:
    (folder / "closed").mkdir(mode=0o700)

    with pytest.raises(ConfigurationError, match="closed"):
        EmbeddedPostgres(folder / "closed" / "data", options=options(folder)).start()


async def test_in_the_foreground_it_stops_cleanly_on_a_signal(folder: Path) -> None:
    file = folder / "password"
    file.write_text("secret")
    arguments = ["--data", folder / "data", "--port", "0", "--password-file", file, "--database", "runs"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs in this loop
            [sys.executable, "-m", "perdure.dev.postgres", *map(str, arguments)],
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        )

    async def ready() -> bool:
        assert process.poll() is None
        return "ready to accept connections" in (folder / "log").read_text()

    await eventually(ready, "the server is ready")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert "database system is shut down" in (folder / "log").read_text()


def test_in_the_foreground_it_says_why_it_cannot_start(folder: Path) -> None:
    (folder / "data").write_text("a file")
    (folder / "data").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "perdure.dev.postgres", "--data", str(folder / "data")],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
    )

    assert done.returncode == 1
    assert "data" in done.stderr
    assert "Traceback" not in done.stderr
