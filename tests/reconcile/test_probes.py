"""What the kubelet and Prometheus see of a running operator, over HTTP."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request

from perdure.telemetry import names
from perdure_operator.main import Operator

from tests.reconcile.harness import POOL, Place, eventually, running

FLOW = {"workflow": "flows.hello"}


async def get(port: int, path: str) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(ask)


async def test_probes_and_metrics(place: Place) -> None:
    async with running(place.settings(), place.url) as operator:
        metrics, probes = (server.port for server in operator.servers)
        await place.apply("default", {**POOL, "scaling": {"min": 1}}, "WorkerPool")
        await place.apply("run", FLOW)
        await place.apply("elsewhere", {**FLOW, "workerPool": "missing"})
        await place.until("run", lambda status: status.get("phase") == "Pending", "accepted")
        for path in ("/startupz", "/livez", "/readyz"):
            assert await get(probes, path) == (200, "ok\n")
        lines = (
            f'perdure_queue_ready_runs{{namespace="{place.namespace}",pool="missing",queue="default"}} 1.0',
            f'perdure_runs{{namespace="{place.namespace}",phase="Pending"}} 2.0',
            f'perdure_pool_replicas{{namespace="{place.namespace}",pool="default",state="desired"}} 1.0',
            "perdure_leader 1.0",
            'perdure_build_info{component="operator"',
        )
        for line in lines:
            await eventually(lambda line=line: _shows(metrics, line), line)
        _, text = await get(metrics, "/metrics")
        assert await _age(operator) < 60
        emitted = {name.split("{")[0].split(" ")[0] for name in text.splitlines() if name.startswith("perdure_")}
        base = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in emitted}
        declared = {metric.name for metric in names.declared(names.Component.OPERATOR)}
        assert {name for name in base if not name.endswith("_created")} <= declared


async def _age(operator: Operator) -> float:
    return operator.metrics.value(names.RESYNC_AGE_SECONDS)


async def _shows(port: int, line: str) -> bool:
    return line in (await get(port, "/metrics"))[1]
