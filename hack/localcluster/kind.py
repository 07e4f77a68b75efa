"""The provider "kind": where a container engine is there, kind runs the same version of Kubernetes in a container."""

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from localcluster import build
from localcluster.console import run, run_with_progress, say
from localcluster.settings import Settings

NAME = "perdure"
# The container that is the cluster's only node, as kind names it.
NODE = f"{NAME}-control-plane"
# Pulling the node's image dominates; kind itself gives up by this, and says what it waited for.
WAIT = "--wait=5m"


class KindCluster:
    name = "kind"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unavailable(self) -> str | None:
        """Why this machine cannot have one, or None."""
        if answering_engine() is None:
            return "no container engine answers"
        return build.unavailable(self._settings, [build.KIND])

    @property
    def kubeconfig(self) -> Path:
        return self._settings.cache / "kind.kubeconfig"

    def up(self) -> None:
        if self.is_up():
            self._kind("export", "kubeconfig", f"--kubeconfig={self.kubeconfig}")
            say("the kind cluster is up already")
            return
        self._settings.cache.mkdir(parents=True, exist_ok=True)
        run_with_progress(
            [self._program(), "create", "cluster", f"--name={NAME}", WAIT, f"--kubeconfig={self.kubeconfig}"],
            "kind",
            progress=str.strip,
            env=_environment(),
        )
        say("the kind cluster is up")

    def down(self) -> None:
        existed = self.is_up()
        self._kind("delete", "cluster", f"--name={NAME}", f"--kubeconfig={self.kubeconfig}")
        self.kubeconfig.unlink(missing_ok=True)
        say("the kind cluster is gone" if existed else "there is no kind cluster")

    def status(self) -> bool:
        exists = self.is_up()
        print(f"kind cluster {NAME}: {'running' if exists else 'not running (`hack/cluster up` starts it)'}")
        if exists:
            print(f"  export KUBECONFIG={self.kubeconfig}")
        return exists

    def load_image(self, archives: Sequence[Path]) -> None:
        for archive in archives:
            self._kind("load", "image-archive", str(archive), f"--name={NAME}")
            say(f"loaded {archive.name}")

    def signal(self, container: str, signal: str) -> None:
        engine = answering_engine()
        assert engine is not None
        ctr = ["ctr", "--namespace=k8s.io", "tasks", "kill", f"--signal=SIG{signal}", container]
        run([engine, "exec", NODE, *ctr])

    def is_up(self) -> bool:
        return NAME in self._kind("get", "clusters").split()

    def _kind(self, *arguments: str) -> str:
        return run([self._program(), *arguments], env=_environment())

    def _program(self) -> Path:
        return build.tool(self._settings, "kind")


def _environment() -> dict[str, str]:
    return {**os.environ, "KIND_EXPERIMENTAL_PROVIDER": answering_engine() or ""}


@functools.cache
def answering_engine() -> str | None:
    """The container engine that can be used right now: a client without its daemon is none."""
    for engine in ("docker", "podman"):
        if shutil.which(engine):
            answer = subprocess.run([engine, "info"], capture_output=True, check=False)
            if answer.returncode == 0:
                return engine
    return None
