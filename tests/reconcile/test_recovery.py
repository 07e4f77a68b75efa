"""A worker that is proved dead by its pod loses its runs at once, long before its lease. And what the operator does for
runs where there is no worker that could."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
from perdure.model.calls import AwaitRuns, child_key
from perdure.model.outcome import Parked
from perdure.model.rows import StepWrite, WaitingFor
from perdure.model.states import RunStatus, StepStatus, WorkerState
from perdure.store import calls
from perdure.store.calls import RunCalls
from perdure_operator.plan.manifests import VERSION_LABEL

from tests.reconcile.harness import POOL, Place, claim_one, condition, end, eventually, register, running

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


async def test_without_a_worker_the_end_of_a_run_wakes_the_run_that_waits_for_it(
    place: Place, conn: asyncpg.Connection[Any]
) -> None:
    """Neither has started the other, and nobody but the operator sees that the resource is deleted."""
    async with running(place.settings(), place.url):
        worker = await register(conn, place, manifest=KNOWS)
        await place.apply("waiter", FLOW)
        waiter = await claim_one(conn, worker)
        awaited = await place.apply("awaited", FLOW)
        await place.until("awaited", lambda status: condition(status, "Accepted").get("status") == "True", "accepted")
        uid = str(awaited["metadata"]["uid"])
        call = AwaitRuns(StepWrite(-1, 1, "perdure.result", StepStatus.WAITING, "[]"), (uid,))
        assert await calls.execute(conn, worker.id, [RunCalls(waiter.id, waiter.fence, (call,))])
        await end(conn, worker, waiter, Parked(WaitingFor("Child", uid, on=(child_key(uid),)), None))
        await place.delete("awaited")
        await place.until_row(conn, waiter.id, lambda row: row["status"] == RunStatus.ENQUEUED, "woken")
