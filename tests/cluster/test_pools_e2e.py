"""Worker pools on a real cluster: from none and back, a new version beside the old one, a suspended pool."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.cluster.e2e import FLOWS, SECONDS, EndToEnd, Status, end_to_end
from tests.cluster.release import Release
from tests.support.pgwait import eventually


@pytest.fixture
async def e2e(release: Release) -> AsyncIterator[EndToEnd]:
    async with end_to_end(release) as found:
        yield found


async def replicas(e2e: EndToEnd, pool: str) -> dict[str, int]:
    """Wanted pods by version."""
    found = await e2e.get("deployments", "-l", f"perdure.dev/pool={pool}")
    return {item["metadata"]["labels"]["perdure.dev/version"]: item["spec"]["replicas"] for item in found["items"]}


async def patch_pool(e2e: EndToEnd, pool: str, spec: dict[str, Any]) -> None:
    await e2e.run("patch", "workerpool", pool, "--type=merge", f"--patch={json.dumps({'spec': spec})}")


async def test_a_pool_grows_from_none_and_goes_back(e2e: EndToEnd) -> None:
    pool = "e2e-scaling"
    scaling = {"min": 0, "max": 2, "idleAfter": "1s", "stabilisation": "1s"}
    await e2e.pool(pool, ready=0, scaling=scaling, slots=1)
    await e2e.until_pool(pool, lambda status: status.get("desired") == 0, "a pool without pods")
    async with e2e.gate(301):
        for number in range(3):
            await e2e.line(f"scaling-{number}", pool, ["a"], gated="a", gate=301)
        await e2e.until_pool(pool, lambda status: status.get("readyReplicas") == 2, "two pods, the most allowed")

        # Two pods with one slot each: the third run waits its turn, and says so.
        async def pending() -> list[Status]:
            shown = [(await e2e.get("workflow", f"scaling-{number}"))["status"] for number in range(3)]
            return [status for status in shown if status["phase"] == "Pending"]

        async def one_is_pending() -> bool:
            return len(await pending()) == 1

        await eventually(one_is_pending, "two runs in the two slots", SECONDS)
        (waiting,) = await pending()
        assert waiting["reason"] in ("NoFreeSlot", "FreeWorker") and pool in waiting["message"]
    for number in range(3):
        assert (await e2e.finished(f"scaling-{number}"))["phase"] == "Succeeded"
    await e2e.until_pool(pool, lambda status: not status.get("readyReplicas"), "no pods again")
    assert set((await replicas(e2e, pool)).values()) == {0}
    await e2e.delete("workerpool", pool)


async def test_a_changed_template_is_a_new_version_and_old_runs_end_on_the_old_one(e2e: EndToEnd) -> None:
    pool = "e2e-versions"
    await e2e.pool(pool)
    (old,) = await replicas(e2e, pool)
    async with e2e.gate(302):
        await e2e.line("old-version", pool, ["a", "b", "c"], gated="b", gate=302)
        await e2e.until_effect(await e2e.uid("old-version"), "b")
        await patch_pool(e2e, pool, {"template": {"metadata": {"annotations": {"build": "2"}}}})

        def other_version(status: Status) -> bool:
            return status.get("currentVersion") not in (None, old)

        status = await e2e.until_pool(pool, other_version, "a new version")
        new = status["currentVersion"]

        async def old_is_retired() -> bool:
            # As soon as a worker of the new version is ready; until then the old one serves new runs too.
            query = "SELECT bool_and(retired) FROM perdure.workers WHERE pool = $1 AND version = $2"
            return bool(await e2e.connection.fetchval(query, pool, old))

        await eventually(old_is_retired, "the old version to take no new runs", SECONDS)
        await e2e.line("new-version", pool, ["a"])
        assert (await e2e.finished("new-version"))["worker"]["version"] == new
    status = await e2e.finished("old-version")
    assert (status["phase"], status["worker"]["version"]) == ("Succeeded", old)
    assert await e2e.counts(await e2e.uid("old-version")) == {"a": 1, "b": 1, "c": 1}

    async def old_is_gone() -> bool:
        return (await replicas(e2e, pool)).get(old, 0) == 0

    await eventually(old_is_gone, "the old version to drain", SECONDS)
    assert (await replicas(e2e, pool))[new] == 1
    await e2e.delete("workerpool", pool)


async def test_kubectl_scale_sets_the_number_of_pods(e2e: EndToEnd) -> None:
    pool = "e2e-by-hand"
    await e2e.pool(pool)
    await e2e.run("scale", "workerpool", pool, "--replicas=2")
    await e2e.until_pool(pool, lambda status: status.get("readyReplicas") == 2, "two pods")
    await e2e.delete("workerpool", pool)

    async def no_pods() -> bool:
        return not (await e2e.run("get", "pods", "-l", f"perdure.dev/pool={pool}", "-o", "name")).strip()

    await eventually(no_pods, "the pods to go with their pool", SECONDS)


async def test_a_pool_that_comes_later_takes_the_runs_that_wait_for_it(e2e: EndToEnd) -> None:
    pool = "e2e-late"
    await e2e.line("early", pool, ["a"])
    status = await e2e.until("early", lambda status: status.get("reason") == "NoWorkerPool", "the reason of the wait")
    assert pool in status["message"]
    await e2e.pool(pool, ready=0)
    assert (await e2e.finished("early"))["phase"] == "Succeeded"
    await e2e.delete("workerpool", pool)


async def test_a_pool_whose_pods_cannot_start_says_why_on_the_run(e2e: EndToEnd) -> None:
    pool = "e2e-broken"
    await asyncio.to_thread(
        e2e.release.worker_pool, pool, FLOWS, modules=["no_such_module"], scaling={"min": 1, "max": 1}
    )
    await e2e.line("stuck", pool, ["a"])
    status = await e2e.until("stuck", lambda status: status.get("reason") == "PoolNotReady", "the reason of the wait")
    assert "no_such_module" in status["message"]
    await e2e.delete("workflow", "stuck")
    await e2e.delete("workerpool", pool)
