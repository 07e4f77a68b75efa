"""A worker that is proved dead by its pod loses its runs at once, long before its lease."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
from perdure.model.states import RunStatus, WorkerState
from perdure_operator.plan.manifests import VERSION_LABEL

from tests.reconcile.harness import POOL, Place, claim_one, eventually, register, running

FLOW = {"workflow": "flows.hello"}
KNOWS = ("workflow:flows.hello",)


async def test_an_ended_container_is_proof(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(place.settings(), place.url):
        await place.apply("default", {**POOL, "scaling": {"min": 1}}, "WorkerPool")
        pod = await place.first_pod()
        await place.set_container(pod, {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, ready=True)
        worker = await register(
            conn,
            place,
            manifest=KNOWS,
            pod=pod["metadata"]["name"],
            pod_uid=pod["metadata"]["uid"],
            version=pod["metadata"]["labels"][VERSION_LABEL],
        )
        await place.apply("run", FLOW)
        run = await claim_one(conn, worker)
        loop = asyncio.get_running_loop()
        started = loop.time()
        await place.set_container(pod, {"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
        row = await place.until_row(conn, run.id, lambda row: row["status"] == RunStatus.ENQUEUED, "ready again")
        took = loop.time() - started
        assert (row["recoveries"], row["fence"]) == (1, run.fence + 1)
        assert await conn.fetchval("SELECT state FROM perdure.workers WHERE id = $1", worker.id) == WorkerState.DEAD
        event = (await eventually(lambda: place.events("WorkerDied"), "an Event says so"))[0]
        assert event["involvedObject"]["name"] == "default"
        assert "1 run goes on elsewhere" in event["message"]
        assert took < 3, took


async def test_a_pod_that_only_vanished_is_no_proof(place: Place, conn: asyncpg.Connection[Any]) -> None:
    """After a forced deletion on a cut-off node the process may still run: its lease decides."""
    async with running(place.settings(), place.url):
        await place.apply("default", {**POOL, "scaling": {"min": 1}}, "WorkerPool")
        pod = await place.first_pod()
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        await place.set_container(pod, {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, ready=True)
        worker = await register(conn, place, manifest=KNOWS, pod=name, pod_uid=uid)
        await place.apply("run", FLOW)
        run = await claim_one(conn, worker)
        await place.call("DELETE", f"/api/v1/namespaces/{place.namespace}/pods/{name}", {"gracePeriodSeconds": 0})

        async def replaced() -> bool:
            other = await place.first_pod()
            return bool(other["metadata"]["uid"] != uid)

        await eventually(replaced, "the pod is replaced")
        await place.apply("later", FLOW)
        await place.until("later", lambda status: status.get("phase") == "Pending", "the operator goes on")
        assert await conn.fetchval("SELECT status FROM perdure.workflows WHERE id = $1", run.id) == RunStatus.RUNNING
        assert await conn.fetchval("SELECT state FROM perdure.workers WHERE id = $1", worker.id) == WorkerState.LIVE
