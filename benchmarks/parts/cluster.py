"""Measures through the API server, on the cluster and the installation of `make demo`.

Client and cluster share this machine's clock, so instants of both can be compared; a cluster elsewhere is left out.
"""

from __future__ import annotations

import asyncio
import csv
import io
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from demolib import install, proof
from demolib.install import NAMESPACE, Installation
from demolib.kubectl import Kubectl
from demolib.story import FENCE_SHIFT, KILLER
from localcluster.console import Impossible, wait_until

from benchmarks import figures
from benchmarks.host import Bench
from benchmarks.part import Column, Part
from benchmarks.parts.drain import SUBJECT
from benchmarks.results import Row

FIRST_STEP, MANY, KILL = "apply to first step", "runs through the API server", "SIGKILL to next step"

POOL = "bench"
PODS = 2
SLOTS = 16
SINGLE_RUNS = 20
MANY_RUNS = 300
STEPS = 5
KILLS = 3
CONCURRENCY = 32
POLL_SECONDS = 0.01
SECONDS = 180.0

FIRST_STEPS = """
SELECT w.name, extract(epoch FROM min(s.started_at)) AS at
  FROM perdure.workflows w JOIN perdure.workflow_steps s ON s.workflow_id = w.id
 WHERE w.name LIKE :'run' || '%' GROUP BY w.name
"""
LAST_FINISH = """
SELECT extract(epoch FROM max(finished_at)) AS at, count(*) FILTER (WHERE status = 50) AS succeeded
  FROM perdure.workflows WHERE name LIKE :'run' || '%'
"""


async def measure(_bench: Bench) -> AsyncIterator[Row]:
    """On a Postgres of the cluster's own; left out where there is no cluster."""
    where = install.provider()
    if where == "existing":
        yield Row(SUBJECT, FIRST_STEP, note="KUBECONFIG names a cluster elsewhere, whose clock is not this machine's")
        return
    try:
        installation = await asyncio.to_thread(install.install, where)
    except Impossible as reason:
        yield Row(SUBJECT, FIRST_STEP, note=f"no cluster: {reason}")
        return
    kubectl = installation.kubectl
    await asyncio.to_thread(_start_pool, installation)
    try:
        async with _api(kubectl) as api:
            yield Row(SUBJECT, FIRST_STEP, await apply_to_first_step(api, kubectl))
            yield Row(SUBJECT, MANY, await runs_per_second(api, kubectl))
            yield Row(SUBJECT, KILL, await kill_to_next_step(api, kubectl))
    finally:
        await asyncio.to_thread(kubectl.ask, "delete", "workerpool", POOL)


async def apply_to_first_step(api: Api, kubectl: Kubectl) -> dict[str, float]:
    """From sending the object to the committed start of its first step; workers are there and idle."""
    prefix = _prefix("first")
    sent: dict[str, float] = {}
    for number in range(SINGLE_RUNS):
        name = f"{prefix}{number}"
        sent[name] = time.time()
        await api.create(name, "bench.chain", steps=1)
        await api.until_finished(name)
    started = {row["name"]: float(row["at"]) for row in await _query(kubectl, FIRST_STEPS, prefix)}
    await api.delete(sent)
    found = [(started[name] - at) * 1000 for name, at in sent.items()]
    return figures.spread(found, "ms")


async def runs_per_second(api: Api, kubectl: Kubectl) -> dict[str, float]:
    """Many Workflows at once, to the last one's end in Postgres and in its status."""
    prefix = _prefix("many")
    names = [f"{prefix}{number}" for number in range(MANY_RUNS)]
    began = time.time()
    limit = asyncio.Semaphore(CONCURRENCY)

    async def create(name: str) -> None:
        async with limit:
            await api.create(name, "bench.chain", steps=STEPS)

    await asyncio.gather(*map(create, names))
    created = time.time() - began
    await api.until_all_succeeded(prefix, MANY_RUNS)
    reported = time.time() - began
    (row,) = await _query(kubectl, LAST_FINISH, prefix)
    await api.delete(names)
    finished = float(row["at"]) - began
    return {
        "runs_per_second": MANY_RUNS / finished,
        "created_per_second": MANY_RUNS / created,
        "reported_per_second": MANY_RUNS / reported,
    }


async def kill_to_next_step(api: Api, kubectl: Kubectl) -> dict[str, float]:
    """From SIGKILL in the pod to a status in which a new owner runs a step: as a user sees it."""
    found = []
    for number in range(KILLS):
        name = f"{_prefix('kill')}{number}"
        await api.create(name, "bench.paced", steps=300, seconds=0.1)

        def on_its_way(status: Any) -> bool:
            return bool(status.get("stepCounts", {}).get("succeeded", 0) >= 3 and status.get("worker", {}).get("pod"))

        status = await api.until(name, on_its_way)
        fence = status["revision"] >> FENCE_SHIFT
        kill = ["exec", "--stdin", status["worker"]["pod"], "--", "python", "-"]
        await asyncio.to_thread(lambda arguments: kubectl.run(*arguments, stdin=KILLER.read_text()), kill)
        killed = time.monotonic()

        def goes_on(status: Any, fence: int = fence) -> bool:
            running = status.get("stepCounts", {}).get("running", 0)
            return bool(status["revision"] >> FENCE_SHIFT > fence and running > 0)

        await api.until(name, goes_on)
        found.append(time.monotonic() - killed)
        await api.delete([name])
    return figures.spread(found, "s")


class Api:
    """The API server by way of `kubectl proxy`, which does the authentication."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = f"{url}/apis/perdure.dev/v1alpha1/namespaces/{NAMESPACE}/workflows"

    async def create(self, name: str, workflow: str, **arguments: Any) -> None:
        body = {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "Workflow",
            "metadata": {"name": name},
            "spec": {"workflow": workflow, "workerPool": POOL, "input": arguments},
        }
        async with self._session.post(self._url, json=body) as answer:
            answer.raise_for_status()

    async def until(self, name: str, check: Any) -> Any:
        """The status when `check` is true of it."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            async with self._session.get(f"{self._url}/{name}") as answer:
                status = (await answer.json()).get("status")
            if status and check(status):
                return status
            await asyncio.sleep(POLL_SECONDS)
        raise TimeoutError(f"{name} did not get there within {SECONDS:.0f}s")

    async def until_finished(self, name: str) -> None:
        await self.until(name, lambda status: status.get("finishedAt"))

    async def until_all_succeeded(self, prefix: str, count: int) -> None:
        deadline = time.monotonic() + SECONDS
        succeeded = 0
        while succeeded < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{succeeded} of {count} runs have succeeded within {SECONDS:.0f}s")
            await asyncio.sleep(0.5)
            async with self._session.get(self._url, params={"fieldSelector": "status.phase=Succeeded"}) as answer:
                items = (await answer.json())["items"]
            succeeded = sum(item["metadata"]["name"].startswith(prefix) for item in items)

    async def delete(self, names: Any) -> None:
        for name in names:
            async with self._session.delete(f"{self._url}/{name}") as answer:
                answer.raise_for_status()


@asynccontextmanager
async def _api(kubectl: Kubectl) -> AsyncIterator[Api]:
    with kubectl.start("proxy", "--port=0") as process:
        url = f"http://{await asyncio.to_thread(_proxy_address, process)}"
        async with aiohttp.ClientSession() as session:
            yield Api(session, url)


def _proxy_address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rpartition(" ")[2].strip()


def _start_pool(installation: Installation) -> None:
    flows = Path(__file__).parents[1].joinpath("flows.py").read_text()
    container = {
        "name": "worker",
        "image": str(installation.worker),
        "env": [{"name": "PYTHONPATH", "value": "/code"}],
        "volumeMounts": [{"name": "flows", "mountPath": "/code/benchmarks", "readOnly": True}],
    }
    template = {
        "metadata": {"annotations": {"perdure.dev/image": installation.worker.content}},
        "spec": {
            "shareProcessNamespace": True,
            "containers": [container],
            "volumes": [{"name": "flows", "configMap": {"name": "bench-flows"}}],
        },
    }
    spec = {
        "modules": ["benchmarks.flows"],
        "slots": SLOTS,
        "scaling": {"min": PODS, "max": PODS},
        "template": template,
    }
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bench-flows"}, "data": {"flows.py": flows}}
    pool = {"apiVersion": "perdure.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": POOL}, "spec": spec}
    kubectl = installation.kubectl
    kubectl.apply([config, pool])

    def ready() -> bool:
        return bool(kubectl.get("workerpool", POOL).get("status", {}).get("readyReplicas", 0) >= PODS)

    wait_until("the worker pods", ready, seconds=SECONDS, interval=0.5)


async def _query(kubectl: Kubectl, query: str, prefix: str) -> Sequence[dict[str, str]]:
    text = await asyncio.to_thread(proof.psql, kubectl, query, prefix, "--csv")
    return list(csv.DictReader(io.StringIO(text)))


def _prefix(kind: str) -> str:
    return f"bench-{kind}-{time.strftime('%H%M%S')}-"


PART = Part(
    "cluster",
    "Through Kubernetes",
    f"The installation of `make demo` with {PODS} worker pods of {SLOTS} slots; client, cluster, workers and Postgres "
    "all on this machine. To the first step: from sending a Workflow to the committed start of its first step, on idle "
    f"workers. Runs: {MANY_RUNS} Workflows of {STEPS} empty steps at once, to the last one's end in Postgres and in "
    "its status. SIGKILL in a pod, to a status in which a new owner runs a step.",
    (
        Column("p50_ms", "p50 ms"),
        Column("p99_ms", "p99 ms"),
        Column("p50_s", "p50 s"),
        Column("max_s", "max s"),
        Column("runs_per_second", "runs/s"),
        Column("created_per_second", "created/s"),
        Column("reported_per_second", "reported/s"),
        Column("samples", "samples"),
    ),
    measure,
    quick=False,
)
