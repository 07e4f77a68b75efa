"""What the rules in our CRDs cost the API server: CPU time of its process for each write of a status.

    PYTHONPATH=hack:. .venv/bin/python -m benchmarks.status_writes [STEPS …]

Starts an API server of its own, and compares the Workflow as it is with the same one without any rule, for specs with
different numbers of steps. CPU time, not wall time, so that other work on the machine disturbs it little; differences
below a third are noise. docs/decisions/0002-custom-resources.md has the numbers that decided the shape of the rules.
"""

from __future__ import annotations

import argparse
import copy
import http.client
import json
import os
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from perdure.model.rows import DECLARED_WORKFLOW, RunView, StatusSource, StepCounts, StepView
from perdure.model.states import RunStatus, StepStatus
from perdure.resources.common import API_VERSION
from perdure.resources.crdgen import crd
from perdure.resources.kinds import WORKFLOW
from perdure.resources.markers import VALIDATIONS
from perdure.resources.projection import project

from tests.support.controlplane import RunningControlPlane
from tests.support.crds import established

NAMESPACE = "default"
CONNECTIONS = 8
SETTLE_SECONDS = 4
"""The server compiles a changed definition in the background."""

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Object = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.status_writes", description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="*", type=int, default=[0, 5, 30, 100], help="steps of the spec")
    parser.add_argument("--objects", type=int, default=200, help="objects of each kind, fewer where they are large")
    options = parser.parse_args()
    print("| rules | steps | create | first status | next status |\n|---|---|---|---|---|", flush=True)
    with RunningControlPlane(controllers=False) as plane:
        for name, definition in (("none", without_rules(crd(WORKFLOW))), ("all", crd(WORKFLOW))) * 2:
            apply(plane, definition)
            for steps in options.steps:
                costs = measure(plane, steps, max(20, options.objects // max(1, steps // 10)))
                print(f"| {name} | {steps} | {' | '.join(f'{cost:.1f} ms' for cost in costs)} |", flush=True)


def without_rules(definition: Object) -> Object:
    """The same definition without CEL rules."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key != VALIDATIONS}
        return [strip(item) for item in value] if isinstance(value, list) else value

    stripped: Object = strip(copy.deepcopy(definition))
    return stripped


def apply(plane: RunningControlPlane, definition: Object) -> None:
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(definition))
    established(plane, [WORKFLOW])
    time.sleep(SETTLE_SECONDS)


def measure(plane: RunningControlPlane, steps: int, count: int) -> list[float]:
    """Milliseconds of CPU for a create, a first and a next status write."""
    path = WORKFLOW.path(NAMESPACE)
    client = Client(plane)
    body = {"apiVersion": API_VERSION, "kind": "Workflow", "metadata": {"generateName": "b-"}, "spec": spec(steps)}
    made: list[Object] = []

    def create(_: int) -> None:
        made.append(client.call("POST", path, body, "application/json"))

    def write(number: int, obj: Object) -> None:
        name, uid = obj["metadata"]["name"], obj["metadata"]["uid"]
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/status", "value": status(steps, number)},
        ]
        client.call("PATCH", WORKFLOW.path(NAMESPACE, name, "status"), patch, "application/json-patch+json")

    costs = [cost(plane, create, range(count))]
    costs += [cost(plane, partial(write, number), made) for number in (1, 2)]
    plane.request("DELETE", path)
    return costs


def cost(plane: RunningControlPlane, do: Callable[[Any], None], items: Iterable[Any]) -> float:
    todo = list(items)
    before = cpu(plane)
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(do, todo))
    return (cpu(plane) - before) / len(todo)


def cpu(plane: RunningControlPlane) -> float:
    """CPU time of the API server so far, in milliseconds."""
    fields = (process(plane) / "stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def process(plane: RunningControlPlane) -> Path:
    """The folder in /proc of this API server: the one that was started with files of the plane's folder."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if arguments[0].endswith("kube-apiserver") and str(plane.folder) in " ".join(arguments):
            return path
    raise LookupError("the API server does not run")


class Client:
    """One kept connection per thread: a new TLS handshake for each call would be half of what is measured."""

    def __init__(self, plane: RunningControlPlane) -> None:
        self._url = urllib.parse.urlsplit(plane.url)
        self._tls = ssl.create_default_context(cafile=str(plane.ca_file))
        self._token = plane.token
        self._local = threading.local()

    def call(self, method: str, path: str, body: Any, content_type: str) -> Object:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(self._url.hostname or "", self._url.port, context=self._tls)
            self._local.connection = connection
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        connection.request(method, path, json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]}")
        found: Object = json.loads(text)
        return found


def spec(steps: int) -> Object:
    given = {"order_id": "A-1", "amount": 1250, "items": ["x", "y"]}
    if steps == 0:
        return {"workflow": "orders.process_order", "input": given}
    retry = {"retry": {"maxAttempts": 3}, "attemptTimeout": "5m"}
    return {"steps": [{"name": f"s{i}", "task": f"step_{i}", "with": given, **retry} for i in range(steps)]}


def status(steps: int, number: int) -> Object:
    """Of a run that has done all of its steps but the last; `number` makes it a new one."""
    definition = json.dumps({"steps": [{"name": f"s{i}"} for i in range(steps)]}) if steps else None
    done = [
        StepView(i, f"s{i}", StepStatus.SUCCEEDED, 0, '{"id": "X-1", "ok": true}', None, at(i), at(i + 1), None)
        for i in range(max(5, steps) - 1)
    ]
    run = RunView(
        id="", namespace="", name="", workflow=DECLARED_WORKFLOW, pool="default", queue="default", version="a1b2c3d4",
        status=RunStatus.RUNNING, fence=1, edits=number, suspended=False, cancel_mode=None, cancel_reason=None,
        generation=1, run_attempts=0, recoveries=0, max_recoveries=10, waiting_for=None, waiting_since=None,
        wake_at=None, created_at=NOON, started_at=at(1), finished_at=None, worker_pod="default-a1b2c3d4-x7k2p",
        definition=definition, output=None, output_bytes=0, error=None, last_seq=number,
    )  # fmt: skip
    return project(StatusSource(run, StepCounts(succeeded=len(done)), tuple(done)))


def at(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)


if __name__ == "__main__":
    main()
