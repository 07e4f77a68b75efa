"""kubectl as a person would type it: the demo shows nothing that a reader could not see with the same command."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localcluster.console import Failure

SECONDS = 60.0
"""For one command. Waiting commands name their own time."""


class Kubectl:
    """One cluster and one namespace of it."""

    def __init__(self, program: str | Path, kubeconfig: str | Path, namespace: str) -> None:
        self.namespace = namespace
        self._argv = [str(program), "--namespace", namespace]
        self.env = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def run(self, *arguments: str, stdin: str = "", seconds: float = SECONDS) -> str:
        """Its standard output; `Failure` with its own words when it fails."""
        done = self.ask(*arguments, stdin=stdin, seconds=seconds)
        if done.returncode != 0:
            raise Failure(f"`kubectl {' '.join(arguments[:3])}` failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def ask(self, *arguments: str, stdin: str = "", seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
        """The finished command, whatever its exit code."""
        return subprocess.run(
            [*self._argv, *arguments],
            input=stdin,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )

    def get(self, *arguments: str) -> Any:
        """An object or a list of them."""
        return json.loads(self.run("get", *arguments, "--output=json"))

    def apply(self, objects: Sequence[Any]) -> str:
        """Apply these objects; gives what kubectl says."""
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        return self.run("apply", "--filename=-", stdin=json.dumps(items))

    @contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on until the block is left."""
        process = subprocess.Popen(
            [*self._argv, *arguments], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def watch(self, resource: str, name: str) -> Iterator[Iterator[Any]]:
        """The object, and again at each change, until the block is left."""
        with self.start("get", resource, name, "--watch", "--output=json") as process:
            yield _objects(process)


def _objects(process: subprocess.Popen[str]) -> Iterator[Any]:
    """kubectl prints one indented object after the other: each ends with the only line that is a lone brace."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line == "}\n":
            yield json.loads("".join(lines))
            lines.clear()
