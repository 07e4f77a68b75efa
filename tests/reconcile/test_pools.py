"""From a WorkerPool to its Deployments, one for each version, and what a person does to them."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
from perdure.model.outcome import Parked, Succeeded
from perdure.model.rows import WaitingFor
from perdure.model.versions import VersionPolicy, WorkflowVersion
from perdure.store import versions
from perdure.telemetry import names
from perdure_operator.main import Operator
from perdure_operator.plan.manifests import POOL_LABEL, VERSION_LABEL

from tests.reconcile.harness import POOL, Place, claim, condition, end, eventually, register, running

FLOW = {"workflow": "flows.hello"}
KNOWS = ("workflow:flows.hello",)
OTHER = {"spec": {"containers": [{"name": "worker", "image": "example.com/worker:2"}]}}


async def the_deployments(place: Place, count: int) -> list[dict[str, Any]]:
    async def question() -> bool:
        return len(await place.deployments()) == count

    await eventually(question, f"{count} Deployments")
    return await place.deployments()


async def replicas(place: Place, name: str, wanted: int) -> dict[str, Any]:
    """Until the Deployment asks for so many pods; it."""

    async def question() -> dict[str, Any] | None:
        found = [each for each in await place.deployments() if each["metadata"]["name"] == name]
        return found[0] if found and found[0]["spec"]["replicas"] == wanted else None

    found = await eventually(question, f"{name} asks for {wanted}")
    assert found is not None
    return found


async def test_a_pool_is_a_deployment_with_everything_a_worker_needs(place: Place) -> None:
    async with running(place.settings(lease_seconds=20, worker_database_secret="db"), place.url):
        pool = await place.apply("default", {**POOL, "slots": 3, "queues": ["default", "slow"]}, "WorkerPool")
        (deployment,) = await the_deployments(place, 1)
        shown = await place.until(
            "default", lambda s: condition(s, "Ready").get("status") == "True", "ready", "WorkerPool"
        )
    labels = deployment["metadata"]["labels"]
    version = labels[VERSION_LABEL]
    assert deployment["metadata"]["name"] == f"default-{version}"
    assert labels[POOL_LABEL] == "default"
    (owner,) = deployment["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (pool["metadata"]["uid"], True)
    assert deployment["spec"]["replicas"] == 0
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    env = {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}
    assert env["PERDURE_DATABASE_URL"]["secretKeyRef"] == {"name": "db", "key": "uri"}
    expected = {"POOL": "default", "VERSION": version, "SLOTS": "3", "QUEUES": "default,slow", "LEASE_SECONDS": "20"}
    assert expected.items() <= {name.removeprefix("PERDURE_"): value for name, value in env.items()}.items()
    assert shown["status"]["currentVersion"] == version
    assert shown["status"]["selector"] == "perdure.dev/pool=default"
    assert condition(shown["status"], "Ready")["reason"] == "ScaledToZero"


async def test_replicas_follow_the_runs_and_go_through_scale_only(place: Place) -> None:
    spec = {**POOL, "slots": 1, "scaling": {"max": 3, "stabilisation": "1s", "idleAfter": "1s"}}
    async with running(place.settings(), place.url):
        await place.apply("default", spec, "WorkerPool")
        (deployment,) = await the_deployments(place, 1)
        name = deployment["metadata"]["name"]
        path = f"/apis/apps/v1/namespaces/{place.namespace}/deployments/{name}"
        merge = "application/merge-patch+json"
        marks = {"metadata": {"labels": {"team": "orders"}, "annotations": {"note": "by hand"}}}
        await place.call("PATCH", path, marks, content_type=merge)
        for number in range(5):
            await place.apply(f"run-{number}", FLOW)
        found = await replicas(place, name, 3)
        managers = {
            (each["manager"], each.get("subresource", "")): each["fieldsV1"]
            for each in found["metadata"]["managedFields"]
        }
        assert "f:replicas" not in managers[("perdure-operator", "")]["f:spec"]
        assert "f:replicas" in managers[("perdure-operator-scale", "scale")]["f:spec"]
        pool = await place.until("default", lambda s: s["backlog"] == 5, "five runs are ready", "WorkerPool")
        assert pool["status"]["desired"] == 3
        # What rolls out in place keeps the number of pods and a person's marks.
        await place.patch("default", {"spec": {"slots": 2}}, "WorkerPool")

        async def rolled_out() -> bool:
            (current,) = await place.deployments()
            env = current["spec"]["template"]["spec"]["containers"][0]["env"]
            return {"name": "PERDURE_SLOTS", "value": "2"} in env

        await eventually(rolled_out, "the slots are rolled out")
        assert (await place.deployments())[0]["spec"]["replicas"] == 3
        for number in range(5):
            await place.delete(f"run-{number}")
        found = await replicas(place, name, 0)
        assert found["metadata"]["labels"]["team"] == "orders"
        assert found["metadata"]["annotations"]["note"] == "by hand"
        assert await eventually(lambda: place.events("PoolScaled"), "an Event says so")


async def test_a_changed_template_is_a_new_version_and_the_old_one_goes_with_its_runs(
    place: Place, conn: asyncpg.Connection[Any]
) -> None:
    async with running(place.settings(), place.url):
        await place.apply("default", {**POOL, "scaling": {"min": 1}}, "WorkerPool")
        (first,) = await the_deployments(place, 1)
        old = first["metadata"]["labels"][VERSION_LABEL]
        worker = await register(conn, place, manifest=KNOWS, version=old)
        await place.apply("held", FLOW)
        (run,) = await eventually(lambda: claim(conn, worker), "the run is claimed")
        await place.patch("default", {"spec": {"template": OTHER}}, "WorkerPool")
        both = await the_deployments(place, 2)
        second = next(each for each in both if each["metadata"]["name"] != first["metadata"]["name"])
        new = second["metadata"]["labels"][VERSION_LABEL]
        await _report_ready(place, second)
        pool = await place.until("default", lambda s: len(s.get("versions", [])) == 2, "two versions", "WorkerPool")
        assert [each["runs"] for each in pool["status"]["versions"]] == [0, 1]
        assert pool["status"]["currentVersion"] == new
        kept = [each for each in await place.deployments() if each["metadata"]["name"] == first["metadata"]["name"]]
        assert kept[0]["spec"]["replicas"] == 1
        # The earlier version takes no new runs, or under a steady load it would never end.
        await place.apply("new", FLOW)
        fresh = await register(conn, place, manifest=KNOWS, id="worker-2", pod_uid="2", version=new)
        await eventually(lambda: _is_retired(conn, worker.id), "its worker is retired")
        stored = "SELECT count(*) FROM perdure.workflows WHERE name = 'new'"
        await eventually(lambda: conn.fetchval(stored), "the run is stored")
        assert await claim(conn, worker) == []
        assert [each.name for each in await claim(conn, fresh)] == ["new"]
        await end(conn, worker, run, Succeeded("1"))
        (left,) = await the_deployments(place, 1)
        assert left["metadata"]["name"] == second["metadata"]["name"]


async def test_an_earlier_version_is_not_kept_for_runs_that_go_on_with_the_new_one(
    place: Place, conn: asyncpg.Connection[Any]
) -> None:
    has = [WorkflowVersion("flows.hello", "same", VersionPolicy.AUTO)]
    async with running(place.settings(), place.url):
        await place.apply("default", {**POOL, "scaling": {"min": 1}}, "WorkerPool")
        (first,) = await the_deployments(place, 1)
        old = first["metadata"]["labels"][VERSION_LABEL]
        worker = await register(conn, place, manifest=KNOWS, version=old)
        await versions.register(conn, place.namespace, "default", old, has, first=True)
        await place.apply("asleep", FLOW)
        (run,) = await eventually(lambda: claim(conn, worker), "the run is claimed")
        await end(conn, worker, run, Parked(WaitingFor("Sleep", message="it sleeps"), 3600.0))
        await place.until("asleep", lambda s: s.get("phase") == "Waiting", "it waits")
        await place.patch("default", {"spec": {"template": OTHER}}, "WorkerPool")
        both = await the_deployments(place, 2)
        second = next(each for each in both if each["metadata"]["name"] != first["metadata"]["name"])
        new = second["metadata"]["labels"][VERSION_LABEL]
        await _report_ready(place, second)
        await versions.register(conn, place.namespace, "default", new, has, first=True)
        await register(conn, place, manifest=KNOWS, id="worker-2", pod_uid="2", version=new)
        assert len(await place.deployments()) == 2
        assert (await versions.adopt(conn, place.namespace, "default", new, 10)).runs == 1
        (left,) = await the_deployments(place, 1)
        assert left["metadata"]["name"] == second["metadata"]["name"]
        await place.until("asleep", lambda s: s.get("worker", {}).get("version") == new, "its status says so")


async def test_a_broken_new_version_takes_nothing_down(place: Place) -> None:
    async with running(place.settings(), place.url):
        await place.apply("default", {**POOL, "scaling": {"min": 1}}, "WorkerPool")
        (first,) = await the_deployments(place, 1)
        await _report_ready(place, first)
        await place.patch("default", {"spec": {"template": OTHER}}, "WorkerPool")
        both = await the_deployments(place, 2)
        await place.until("default", lambda s: len(s.get("versions", [])) == 2, "two versions", "WorkerPool")
        assert {each["spec"]["replicas"] for each in both} == {1}
        # No pod of the new version becomes ready: the old one, without a run of its own, still serves.
        await place.patch("default", {"spec": {"slots": 9}}, "WorkerPool")
        await place.until("default", lambda s: s["observedGeneration"] == 3, "looked at again", "WorkerPool")
        assert len(await place.deployments()) == 2


async def test_a_person_scales_and_suspends(place: Place) -> None:
    async with running(place.settings(), place.url):
        await place.apply("default", {**POOL, "scaling": {"max": 4}}, "WorkerPool")
        (deployment,) = await the_deployments(place, 1)
        name = deployment["metadata"]["name"]
        scale = ("scale", "-n", place.namespace, "workerpool/default", "--replicas=2")
        await asyncio.to_thread(place.plane.kubectl, *scale)
        await replicas(place, name, 2)
        await place.patch("default", {"spec": {"suspend": True}}, "WorkerPool")
        await replicas(place, name, 0)
        shown = await place.until(
            "default", lambda s: condition(s, "Ready").get("reason") == "PoolSuspended", "says so", "WorkerPool"
        )
        assert shown["status"]["desired"] == 0
        await place.patch("default", {"spec": {"suspend": False, "replicas": 9}}, "WorkerPool")
        await replicas(place, name, 4)


async def test_a_template_that_the_api_server_refuses_is_said_and_repaired_by_the_next_spec(place: Place) -> None:
    broken = {"spec": {"containers": [{"name": "worker"}], "restartPolicy": "Never"}}
    async with running(place.settings(), place.url):
        await place.apply("default", {**POOL, "template": broken}, "WorkerPool")
        shown = await place.until(
            "default", lambda s: condition(s, "Stalled").get("status") == "True", "stalled", "WorkerPool"
        )
        found = condition(shown["status"], "Stalled")
        assert found["reason"] == "TemplateRefused"
        assert "image" in found["message"]
        await place.replace_spec("default", POOL, "WorkerPool")
        await the_deployments(place, 1)
        await place.until("default", lambda s: condition(s, "Stalled")["status"] == "False", "repaired", "WorkerPool")


async def test_a_deployment_of_somebody_else_is_left_alone(place: Place) -> None:
    async with running(place.settings(), place.url):
        await place.apply("default", POOL, "WorkerPool")
        (deployment,) = await the_deployments(place, 1)
        name = deployment["metadata"]["name"]
        await place.delete("default", "WorkerPool")
        await the_deployments(place, 0)
        labels = {"app": "theirs"}
        theirs = {
            "metadata": {"name": name},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "x"}]}},
            },
        }
        await place.call("POST", f"/apis/apps/v1/namespaces/{place.namespace}/deployments", theirs)
        await place.apply("default", POOL, "WorkerPool")
        shown = await place.until(
            "default", lambda s: condition(s, "Stalled").get("status") == "True", "stalled", "WorkerPool"
        )
        assert "does not belong to this pool" in condition(shown["status"], "Stalled")["message"]
        (left,) = await place.deployments()
        assert left["spec"]["selector"]["matchLabels"] == labels


async def test_a_restarted_operator_changes_nothing(place: Place) -> None:
    async with running(place.settings(), place.url):
        await place.apply("default", {**POOL, "scaling": {"min": 2}}, "WorkerPool")
        await the_deployments(place, 1)
        await place.until("default", lambda s: s.get("replicas") == 2, "two pods", "WorkerPool")
    (before,) = await place.deployments()
    async with running(place.settings(resync_seconds=1), place.url) as operator:
        await eventually(lambda: _twice_reconciled(operator), "the pool is looked at")
    (after,) = await place.deployments()
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


async def _is_retired(conn: asyncpg.Connection[Any], worker: str) -> bool:
    return bool(await conn.fetchval("SELECT retired FROM perdure.workers WHERE id = $1", worker))


async def _twice_reconciled(operator: Operator) -> bool:
    return bool(operator.metrics.value(names.RECONCILES, "WorkerPool", "ok") >= 2)


async def _report_ready(place: Place, deployment: dict[str, Any]) -> None:
    """Report all pods of a Deployment as ready, as the kubelet would; its controller then counts them."""

    async def question() -> list[dict[str, Any]]:
        answer = await place.call("GET", f"/api/v1/namespaces/{place.namespace}/pods")
        version = deployment["metadata"]["labels"][VERSION_LABEL]
        return [pod for pod in answer["items"] if pod["metadata"]["labels"].get(VERSION_LABEL) == version]

    for pod in await eventually(question, "its pods"):
        await place.set_container(pod, {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, ready=True)
