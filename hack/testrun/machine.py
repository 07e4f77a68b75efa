"""What a tier needs of the machine, brought up where its progress can be seen.

Raises `Impossible` on a machine that cannot do it, `Failure` where it should have worked.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import deque
from pathlib import Path

from localcluster import build
from localcluster.console import Failure, Impossible
from localcluster.settings import Settings

from testrun import ROOT


def control_plane() -> None:
    """etcd, kube-apiserver and the controller manager, built once for each machine."""
    build.build(Settings.from_environment(), build.CONTROL_PLANE)


def chart_tools() -> None:
    """Helm, and promtool for the alert rules (in Debian's package prometheus)."""
    build.tool(Settings.from_environment(), "helm")
    if shutil.which("promtool") is None:
        cluster_command("deps")


def cluster() -> None:
    """A whole cluster with the images in it; one that is up already is used as it is."""
    cluster_command("up")


def cluster_command(*arguments: str) -> None:
    """Run hack/cluster with its progress on the terminal."""
    words: deque[str] = deque(maxlen=1)
    argv: list[str | Path] = [ROOT / "hack" / "cluster", *arguments]
    with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            words.append(line.strip())
    if process.returncode == Impossible.exit_code:
        raise Impossible(words[0] if words else "no reason given")
    if process.returncode != 0:
        raise Failure(f"hack/cluster {' '.join(arguments)} failed, see above")
