"""A real pgbouncer before the tests' Postgres: pooling by transaction, few sessions for many clients.

    with Bouncer(pg_url) as bouncer:
        connect(bouncer.url)       # ends in ?pooler=transaction
        bouncer.restart()          # every client is cut; the port stays

A machine without pgbouncer skips these tests and says so (and fails in CI).
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.support.tiers import unavailable

SERVERS = 3
"""Sessions of Postgres that all clients share: fewer than one worker opens connections."""

NOBODY = 65534
"""pgbouncer does not run as root."""

START_SECONDS = 10.0

CONFIGURATION = """
[databases]
{database} = host=127.0.0.1 port={postgres} dbname={database} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {servers}
max_client_conn = 500
logfile = {folder}/pgbouncer.log
{more}
"""


def statements_of(count: int) -> str:
    """The line that has it keep so many prepared statements for its clients; empty before 1.21, which keeps none."""
    binary = _binary()
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    major, minor = said.split(".")[:2]
    return f"max_prepared_statements = {count}" if (int(major), int(minor)) >= (1, 21) else ""


def _binary() -> str:
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if found is None:
        unavailable("worker", "there is no pgbouncer: apt-get install pgbouncer")
    return found


class Bouncer:
    """See the module. `more` are further lines of its configuration."""

    def __init__(self, pg_url: str, *, servers: int = SERVERS, more: str = "") -> None:
        self._binary = _binary()
        parts = urlsplit(pg_url)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.plain_url = parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()
        """As people have it who do not know that a pooler stands there."""
        self.url = f"{self.plain_url}?pooler=transaction"
        self._port = port
        self._folder = Path(tempfile.mkdtemp(prefix="perdure-pgbouncer-"))
        self._configuration = self._folder / "pgbouncer.ini"
        self._configuration.write_text(
            CONFIGURATION.format(
                database=parts.path.strip("/"),
                postgres=parts.port,
                user=parts.username,
                port=port,
                servers=servers,
                folder=self._folder,
                more=more,
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if kind is not None:
            print(f"--- log of pgbouncer\n{(self._folder / 'pgbouncer.log').read_text()}")
        shutil.rmtree(self._folder)

    def start(self) -> None:
        """Returns when it accepts connections."""
        other: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._folder.chmod(0o777)
            other = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        self._process = subprocess.Popen([self._binary, "-q", str(self._configuration)], **other)
        self._until_listening()

    def stop(self) -> None:
        """At once, in the middle of whatever its clients do."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def _until_listening(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1.0).close()
            except OSError:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
            else:
                return
