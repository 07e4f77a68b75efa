"""Builds the programs of the local cluster from their Go modules, once for each machine.

The result is kept outside the tree under a name derived from everything that went in, so a program that is there is
the right one. Each appears by a rename: an interrupted build leaves nothing that looks finished.
"""

import functools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster import versions
from localcluster.console import Failure, Impossible, duration, exclusively, run_with_progress, say
from localcluster.settings import Settings


@dataclass(frozen=True)
class Program:
    """One program; `cold_seconds` is its build on two cores with empty caches, told while one waits for it."""

    name: str
    folder: str
    package: str
    version: str
    cold_seconds: int


def _kubernetes(name: str, cold_seconds: int) -> Program:
    return Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", versions.KUBERNETES, cold_seconds)


# The tests of the operator need only these, so they are built first.
CONTROL_PLANE = (
    Program("etcd", "etcd", ".", versions.ETCD, 60),
    _kubernetes("kube-apiserver", 430),
    _kubernetes("kube-controller-manager", 115),
)
HELM = Program("helm", "helm", "helm.sh/helm/v3/cmd/helm", versions.HELM, 120)
KUBECTL = _kubernetes("kubectl", 35)
KIND = Program("kind", "kind", "sigs.k8s.io/kind", versions.KIND, 20)
NODE = (
    _kubernetes("kubelet", 30),
    _kubernetes("kube-scheduler", 10),
    _kubernetes("kube-proxy", 15),
    Program("coredns", "coredns", ".", versions.COREDNS, 60),
    Program("pause", "pause", ".", versions.PAUSE_IMAGE, 1),
)


# All that a cluster and its users need.
EVERYTHING = (*CONTROL_PLANE, HELM, KUBECTL, *NODE)


def installed(settings: Settings, program: Program) -> Path | None:
    """Where `program` is, built here or as good on PATH; None when it has to be built."""
    built = settings.binaries / program.name
    return built if built.exists() else _on_path(program)


@functools.cache
def _on_path(program: Program) -> Path | None:
    """Only what people install for themselves is taken from PATH: the rest must be of one version."""
    found = shutil.which(program.name) if program in (KUBECTL, KIND) else None
    if found is None or program is KIND:
        return Path(found) if found else None
    answer = subprocess.run([found, "version", "--client"], capture_output=True, text=True, check=False)
    version = re.search(r"v1\.(\d+)", answer.stdout)
    return Path(found) if version and int(version[1]) >= versions.KUBECTL_MINOR else None


def missing(settings: Settings, programs: Sequence[Program]) -> list[Program]:
    return [program for program in programs if installed(settings, program) is None]


def build(settings: Settings, programs: Sequence[Program]) -> None:
    """Build those of `programs` that are missing; raises Impossible where that cannot be."""
    if not missing(settings, programs):
        return
    if reason := unavailable(settings, programs):
        raise Impossible(reason)
    with exclusively(settings.cache / "build.lock", "another process is building: waiting for it"):
        todo = missing(settings, programs)  # again: another process may have built them while this one waited
        started = time.monotonic()
        for number, program in enumerate(todo, 1):
            _build_one(settings.binaries, program, f"[{number}/{len(todo)}] {program.name}")
        if todo:
            say(f"{len(todo)} programs built in {duration(time.monotonic() - started)}: {settings.binaries}")


def unavailable(settings: Settings, programs: Sequence[Program]) -> str | None:
    """Why `programs` cannot be had on this machine, or None."""
    if not missing(settings, programs):
        return None
    wanted = ".".join(map(str, versions.GO))
    if shutil.which("go") is None:
        return f"Go is not installed: building Kubernetes needs Go {wanted} or newer"
    answer = subprocess.run(["go", "env", "GOVERSION", "GOTOOLCHAIN"], capture_output=True, text=True, check=False)
    version, _, toolchain = answer.stdout.strip().partition("\n")
    found = re.match(r"go(\d+)\.(\d+)", version)
    # Since 1.21 Go fetches the toolchain that a go.mod asks for, unless it is told to stay with the local one.
    least = (1, 21) if toolchain != "local" else versions.GO
    if found is None or (int(found[1]), int(found[2])) < least:
        return f"Go {wanted} or newer is needed to build Kubernetes, this is {version or 'not a working Go'}"
    return None


def _build_one(target: Path, program: Program, label: str) -> None:
    target.mkdir(parents=True, exist_ok=True)
    unfinished = target / f".{program.name}.tmp"
    say(f"{label} {program.version}: building (about {duration(program.cold_seconds)} with empty caches)")
    compiled = downloaded = 0
    started = time.monotonic()

    def progress(line: str) -> str:
        nonlocal compiled, downloaded
        if line.startswith("go: downloading"):
            downloaded += 1
            return f"{downloaded} modules downloaded"
        compiled += 1
        return f"{compiled} packages compiled"

    # -v names each package as it is compiled: the only sign of progress that Go gives.
    argv = ["go", "build", "-v", "-trimpath", "-buildvcs=false"]
    stamps = " ".join(f"-X {name}={value}" for name, value in versions.stamps().items())
    run_with_progress(
        [*argv, f"-ldflags=-s -w {stamps}", "-o", unfinished, program.package],
        label,
        progress=progress,
        cwd=versions.GO_MODULES / program.folder,
        # The user's workspace and flags must not change what is built.
        env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""},
    )
    unfinished.rename(target / program.name)
    say(f"{label}: done in {duration(time.monotonic() - started)}")


def tool(settings: Settings, name: str) -> Path:
    """The path of one program, built if it has to be."""
    program = next((program for program in (*EVERYTHING, KIND) if program.name == name), None)
    if program is None:
        raise Failure(f"{name} is none of the programs built here")
    build(settings, [program])
    path = installed(settings, program)
    assert path is not None
    return path
