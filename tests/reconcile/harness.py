"""The operator on a real API server and a real Postgres, with the rights of the chart and nothing more.

In one process with the test (`running`), or as a process of its own to be killed (`spawned`). A `Place` is one
namespace and one database; its service account is bound to the rules of the chart's Role.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import yaml
from perdure.model.outcome import Ending
from perdure.model.rows import ClaimedRun, WorkerRow
from perdure.resources.common import API_VERSION
from perdure.resources.kinds import KINDS
from perdure.store import claims, journal, workers
from perdure_operator.main import Operator
from perdure_operator.settings import OperatorSettings, load

from tests.support.controlplane import ApiError, RunningControlPlane

ROOT = Path(__file__).parents[2]
CHART_ROLE = ROOT / "charts/perdure/templates/operator/rbac.yaml"
ACCOUNT = "perdure-operator"
DEADLINE_SECONDS = 30.0
POLL_SECONDS = 0.02

POOL = {
    "template": {"spec": {"containers": [{"name": "worker", "image": "example.com/worker:1"}]}},
    "modules": ["flows"],
}
"""Spec of a pool whose image does not exist: here no kubelet asks for it."""

T = TypeVar("T")


async def eventually(question: Callable[[], Awaitable[T]], what: str, seconds: float = DEADLINE_SECONDS) -> T:
    """Ask until the answer is true; that answer."""
    end = time.monotonic() + seconds
    last: object = None
    while True:
        try:
            answer = await question()
            if answer:
                return answer
            last = answer
        except (ApiError, OSError) as error:
            last = error
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what} (last: {last})")
        await asyncio.sleep(POLL_SECONDS)


def chart_rules() -> list[Any]:
    """The rules of the operator's Role, as the chart has them; the file around them is a template."""
    text = CHART_ROLE.read_text().split("\nrules:\n", 1)[1].split("\n---", 1)[0]
    rules: list[Any] = yaml.safe_load(text)
    return rules


@dataclass(frozen=True)
class Place:
    """A namespace, a database, and an operator's account in the namespace. Methods act as administrator."""

    plane: RunningControlPlane
    namespace: str
    url: str
    token_file: Path

    def settings(self, **overrides: object) -> OperatorSettings:
        env = self.environment() | {f"PERDURE_OPERATOR_{key.upper()}": str(value) for key, value in overrides.items()}
        return load(env)

    def environment(self) -> dict[str, str]:
        return {
            "PERDURE_OPERATOR_NAMESPACES": self.namespace,
            "PERDURE_OPERATOR_KUBE_SERVER": self.plane.url,
            "PERDURE_OPERATOR_KUBE_CA_FILE": str(self.plane.ca_file),
            "PERDURE_OPERATOR_KUBE_TOKEN_FILE": str(self.token_file),
            "PERDURE_OPERATOR_METRICS_PORT": "0",
            "PERDURE_OPERATOR_PROBE_PORT": "0",
            "PERDURE_OPERATOR_RESYNC_SECONDS": "3600",
            "PERDURE_DATABASE_URL": self.url,
        }

    # -- the API server

    async def call(self, method: str, path: str, body: object = None, *, content_type: str = "application/json") -> Any:
        return await asyncio.to_thread(self.plane.request, method, path, body, content_type=content_type)

    async def apply(self, name: str, spec: dict[str, Any], kind: str = "Workflow") -> dict[str, Any]:
        """Create, or change the spec of, an object."""
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        path = self._path(kind)
        try:
            created: dict[str, Any] = await self.call("POST", path, body)
        except ApiError as error:
            if error.status != 409:
                raise
            return await self.patch(name, {"spec": spec}, kind)
        return created

    async def patch(self, name: str, change: object, kind: str = "Workflow") -> dict[str, Any]:
        path, merge = f"{self._path(kind)}/{name}", "application/merge-patch+json"
        changed: dict[str, Any] = await self.call("PATCH", path, change, content_type=merge)
        return changed

    async def replace_spec(self, name: str, spec: dict[str, Any], kind: str = "Workflow") -> dict[str, Any]:
        change = [{"op": "replace", "path": "/spec", "value": spec}]
        path, patch = f"{self._path(kind)}/{name}", "application/json-patch+json"
        changed: dict[str, Any] = await self.call("PATCH", path, change, content_type=patch)
        return changed

    async def get(self, name: str, kind: str = "Workflow") -> dict[str, Any]:
        found: dict[str, Any] = await self.call("GET", f"{self._path(kind)}/{name}")
        return found

    async def delete(self, name: str, kind: str = "Workflow") -> None:
        await self.call("DELETE", f"{self._path(kind)}/{name}")

    async def deployments(self) -> list[dict[str, Any]]:
        answer = await self.call("GET", f"/apis/apps/v1/namespaces/{self.namespace}/deployments")
        found: list[dict[str, Any]] = sorted(answer["items"], key=lambda each: each["metadata"]["creationTimestamp"])
        return found

    async def events(self, reason: str) -> list[dict[str, Any]]:
        answer = await self.call("GET", f"/api/v1/namespaces/{self.namespace}/events")
        return [event for event in answer["items"] if event["reason"] == reason]

    async def first_pod(self) -> dict[str, Any]:
        """A pod of a pool, made by the controllers of the cluster."""

        async def question() -> dict[str, Any] | None:
            answer = await self.call("GET", f"/api/v1/namespaces/{self.namespace}/pods")
            return answer["items"][0] if answer["items"] else None

        found = await eventually(question, "a pod of the pool")
        assert found is not None
        return found

    async def set_container(self, pod: dict[str, Any], state: dict[str, Any], *, ready: bool = False) -> None:
        """Report the state of a pod's first container, as the kubelet would."""
        container = {"name": pod["spec"]["containers"][0]["name"], "image": "x", "imageID": "", "restartCount": 0}
        status = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{**container, "ready": ready, "state": state}],
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        await self.call("PATCH", path, {"status": status}, content_type="application/strategic-merge-patch+json")

    def _path(self, kind: str) -> str:
        return {each.kind: each for each in KINDS}[kind].path(self.namespace)

    # -- waiting

    async def until(
        self,
        name: str,
        holds: Callable[[dict[str, Any]], object],
        what: str,
        kind: str = "Workflow",
        seconds: float = DEADLINE_SECONDS,
    ) -> dict[str, Any]:
        """Until the object's status is as asked; the object."""

        async def question() -> dict[str, Any] | None:
            obj = await self.get(name, kind)
            return obj if holds(obj.get("status") or {}) else None

        found = await eventually(question, f"{kind} {name}: {what}", seconds)
        assert found is not None
        return found

    async def until_row(
        self, conn: asyncpg.Connection[Any], uid: str, holds: Callable[[Any], object], what: str
    ) -> Any:
        """Until the run's row is as asked; the row."""

        async def question() -> Any:
            row = await conn.fetchrow("SELECT * FROM perdure.workflows WHERE id = $1", uid)
            return row if row is not None and holds(row) else None

        return await eventually(question, f"row of {uid}: {what}")


# -- operators


@contextlib.asynccontextmanager
async def running(settings: OperatorSettings, url: str, *, ready: bool = True) -> AsyncIterator[Operator]:
    """An operator in this process, stopped by its stop event; its end must be clean."""
    operator, stop = Operator(settings, url), asyncio.Event()
    work = asyncio.create_task(operator.run(stop))
    try:
        if ready:
            await eventually(lambda: _is(operator.health.ready() is None), "the operator is ready")
        yield operator
    finally:
        stop.set()
        await asyncio.wait_for(work, 15)


async def _is(value: bool) -> bool:
    return value


@contextlib.contextmanager
def spawned(place: Place, log: Path, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """An operator as a process; killed at the end if it still runs."""
    env = {
        **os.environ,
        **place.environment(),
        **(environment or {}),
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("operator", "worker_image")),
    }
    with log.open("ab") as output:
        process = subprocess.Popen([sys.executable, "-m", "perdure_operator"], env=env, stdout=output, stderr=output)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()


# -- workers


async def register(
    conn: asyncpg.Connection[Any], place: Place, *, manifest: tuple[str, ...] = (), **changes: Any
) -> WorkerRow:
    """A worker that is live for a minute and does nothing."""
    fields: dict[str, Any] = {
        "id": "worker-1",
        "namespace": place.namespace,
        "pool": "default",
        "pod": "pod-1",
        "pod_uid": "pod-uid-1",
        "version": "v1",
        "queues": ("default",),
        "manifest": manifest,
        "slots": 4,
        **changes,
    }
    worker = WorkerRow(**fields)
    await workers.register(conn, worker, 60)
    return worker


async def claim(conn: asyncpg.Connection[Any], worker: WorkerRow, limit: int = 10) -> list[ClaimedRun]:
    """What this worker gets now."""
    return await claims.claim(
        conn,
        worker_id=worker.id,
        namespace=worker.namespace,
        pool=worker.pool,
        queue=worker.queues[0],
        manifest=worker.manifest,
        version=worker.version,
        limit=limit,
    )


async def claim_one(conn: asyncpg.Connection[Any], worker: WorkerRow) -> ClaimedRun:
    """The next run, as soon as there is one."""
    return (await eventually(lambda: claim(conn, worker, 1), "a run to claim"))[0]


async def end(conn: asyncpg.Connection[Any], worker: WorkerRow, run: ClaimedRun, ending: Ending) -> None:
    """Settle a run as its worker does."""
    acks = await journal.commit(conn, worker.id, [journal.RunWrites(run.id, run.fence, (), ending, run.wake_seq)])
    assert acks[run.id].ended is not None, acks


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    """One condition of a status; empty when it is not there."""
    found = [each for each in status.get("conditions") or [] if each["type"] == kind]
    return found[0] if found else {}
