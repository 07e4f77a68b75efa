"""No silent wait: whatever keeps a run from starting stands in its status within five seconds."""

from __future__ import annotations

import time
from typing import Any

import asyncpg
import perdure

from tests.reconcile.harness import POOL, Place, claim_one, condition, eventually, register, running


def waits(status: dict[str, Any]) -> str:
    found: str = (status.get("waitingFor") or {}).get("kind", "")
    return found


async def test_an_unknown_name_is_a_named_wait_within_five_seconds(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(place.settings(), place.url):
        await place.apply("default", POOL, "WorkerPool")
        manifest = ("workflow:flows.hello", "workflow:perdure.declared", "step:flows.greet")
        await register(conn, place, manifest=manifest)
        started = time.monotonic()
        await place.apply("typo", {"workflow": "flows.helo"})
        await place.apply("declared", {"steps": [{"name": "a", "task": "flows.gret"}]})
        typo = await place.until("typo", lambda status: waits(status) == "UnknownWorkflow", "named")
        declared = await place.until("declared", lambda status: waits(status) == "UnknownStep", "named")
        took = time.monotonic() - started
        event = (await eventually(lambda: place.events("WorkflowStalled"), "an Event says so"))[0]
    assert "did you mean flows.hello?" in typo["status"]["message"]
    assert typo["status"]["reason"] == "UnknownWorkflow"
    assert condition(typo["status"], "Stalled")["status"] == "True"
    assert condition(typo["status"], "Accepted")["status"] == "True"
    assert "did you mean flows.greet?" in declared["status"]["message"]
    assert event["reason"] == "WorkflowStalled"
    assert took < 7, took


async def test_a_missing_pool_is_named_and_the_reason_changes_with_what_is_there(place: Place) -> None:
    async with running(place.settings(), place.url):
        await place.apply("waiting", {"workflow": "flows.hello"})
        shown = await place.until("waiting", lambda status: waits(status) == "NoWorkerPool", "no pool")
        assert "there is: none" in shown["status"]["message"]
        await place.apply("default", {**POOL, "queues": ["other"]}, "WorkerPool")
        shown = await place.until("waiting", lambda s: "does not serve" in (s.get("message") or ""), "not served")
        await place.patch("default", {"spec": {"queues": ["default"], "suspend": True}}, "WorkerPool")
        await place.until("waiting", lambda status: waits(status) == "PoolSuspended", "suspended")
        await place.patch("default", {"spec": {"suspend": False}}, "WorkerPool")
        await place.until("waiting", lambda status: waits(status) == "PoolStarting", "starting")
        pod = await place.first_pod()
        trouble = {
            "waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "example.com/worker:1"'}
        }
        await place.set_container(pod, trouble)
        shown = await place.until("waiting", lambda status: waits(status) == "PoolNotReady", "not ready")
        assert 'Back-off pulling image "example.com/worker:1"' in shown["status"]["message"]
        assert condition(shown["status"], "Stalled")["status"] == "True"
        pool = await place.until(
            "default", lambda status: condition(status, "Ready").get("reason") == "PodsFailing", "says so", "WorkerPool"
        )
        assert "Back-off pulling image" in condition(pool["status"], "Stalled")["message"]
        assert await eventually(lambda: place.events("PoolStalled"), "an Event says so")


async def test_a_full_pool_says_so(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(place.settings(), place.url):
        await place.apply("default", POOL, "WorkerPool")
        worker = await register(conn, place, manifest=("workflow:flows.hello",), slots=1)
        await place.apply("first", {"workflow": "flows.hello"})
        await claim_one(conn, worker)
        await place.apply("second", {"workflow": "flows.hello"})
        shown = await place.until("second", lambda status: waits(status) == "NoFreeSlot", "no slot")
    assert "spec.scaling.max" in shown["status"]["message"]
    assert condition(shown["status"], "Stalled")["status"] == "False"


async def test_a_paused_queue_and_its_limits_are_named_waits(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with (
        running(place.settings(), place.url),
        perdure.Client(place.url, place.namespace, listen=False) as client,
    ):
        await place.apply("default", POOL, "WorkerPool")
        worker = await register(conn, place, manifest=("workflow:flows.hello",), slots=4)
        await client.queues.apply("default", paused=True)
        started = time.monotonic()
        await place.apply("first", {"workflow": "flows.hello"})
        shown = await place.until("first", lambda status: waits(status) == "QueuePaused", "paused")
        assert time.monotonic() - started < 7
        assert "queue default is paused" in shown["status"]["message"]
        assert condition(shown["status"], "Stalled")["status"] == "False"

        await client.queues.apply("default", paused=False, concurrency=1, rate=perdure.RateLimit(1, 3600))
        await claim_one(conn, worker)
        started = time.monotonic()
        await place.apply("second", {"workflow": "flows.hello"})
        shown = await place.until("second", lambda status: waits(status) == "QueueLimit", "at its limit")
        assert time.monotonic() - started < 7
        assert "lets 1 run at once run" in shown["status"]["message"]

        await client.queues.apply("default", rate=perdure.RateLimit(1, 3600))
        shown = await place.until("second", lambda status: waits(status) == "RateLimit", "by its rate")
        assert "lets 1 run begin in 3600 s" in shown["status"]["message"]

        await client.queues.delete("default")
        await place.until("second", lambda status: waits(status) == "FreeWorker", "no limits")
