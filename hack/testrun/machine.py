"""What a tier needs of the machine, brought up where its progress can be seen, and taken away again.

Raises `Impossible` on a machine that cannot do it, `Failure` where it should have worked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from localcluster import build, deps
from localcluster.console import Failure, Impossible
from localcluster.settings import Settings

from testrun import ROOT


@contextmanager
def nothing() -> Iterator[None]:
    """The virtual environment is enough."""
    yield


@contextmanager
def pooler() -> Iterator[None]:
    """pgbouncer; where it cannot be installed, its tests say so."""
    if packages := deps.absent_of(deps.POOLER):
        with suppress(Impossible, Failure):
            deps.install_packages(packages)
    yield


@contextmanager
def older_postgres() -> Iterator[None]:
    """Debian's Postgres 15 beside the embedded one."""
    if packages := deps.absent_of(deps.OLDER_POSTGRES):
        try:
            deps.install_packages(packages)
        except Failure as failure:
            raise Impossible(f"{', '.join(packages)} cannot be installed: {failure}") from None
    yield


@contextmanager
def control_plane() -> Iterator[None]:
    """etcd, kube-apiserver and the controller manager, built once for each machine; the tests start them. And
    pgbouncer, as the operator may have one before its database."""
    build.build(Settings.from_environment(), build.CONTROL_PLANE)
    with pooler():
        yield


@contextmanager
def chart_tools() -> Iterator[None]:
    """Helm, and promtool for the alert rules; where promtool cannot be installed, its tests say so."""
    build.tool(Settings.from_environment(), "helm")
    if shutil.which("promtool") is None:
        with suppress(Impossible):
            hack("cluster", "deps")
    yield


@contextmanager
def cluster() -> Iterator[None]:
    """A whole cluster with the images in it. One that was up before stays up."""
    if output("cluster", "provider") == "local":
        hack("cluster", "deps")
    was_up = _works("cluster", "status")
    hack("cluster", "up")
    try:
        if not os.environ.get("PERDURE_IMAGES"):  # else the cluster pulls them from there
            hack("images", "--load")
        yield
    finally:
        if not was_up:
            hack("cluster", "down")


def hack(command: str, *arguments: str) -> str:
    """Run a command of hack/ with its progress on the terminal; gives the few lines that it prints as its answer."""
    words: deque[str] = deque(maxlen=1)
    argv: list[str | Path] = [ROOT / "hack" / command, *arguments]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            words.append(line)
        answer = process.stdout.read()
    _check(process.returncode, f"hack/{command} {' '.join(arguments)}".strip(), words[0] if words else "")
    return answer.strip()


def output(command: str, *arguments: str) -> str:
    """What a short command of hack/ prints, without its progress."""
    done = subprocess.run([ROOT / "hack" / command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    _check(done.returncode, f"hack/{command} {' '.join(arguments)}", done.stderr.strip().rpartition("\n")[2])
    return done.stdout.strip()


def _works(command: str, *arguments: str) -> bool:
    done = subprocess.run([ROOT / "hack" / command, *arguments], cwd=ROOT, capture_output=True, check=False)
    return done.returncode == 0


def _check(code: int, command: str, last_line: str) -> None:
    if code == Impossible.exit_code:
        raise Impossible(last_line.strip().partition("error: ")[2] or last_line.strip())
    if code != 0:
        raise Failure(f"{command} failed with exit code {code}: {last_line.strip()}")
