"""Whatever is killed or stopped on a real cluster, the run goes on from its last finished step."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.cluster.e2e import SECONDS, EndToEnd, end_to_end
from tests.cluster.release import Release
from tests.support.pgwait import eventually

POOL = "e2e-recovery"
LABELS = ["a", "b", "c", "d"]
DRAINING, DEAD = 20, 40


@pytest.fixture
async def e2e(release: Release) -> AsyncIterator[EndToEnd]:
    async with end_to_end(release) as found:
        await found.pool(POOL, ready=2)
        yield found


async def workers_of(e2e: EndToEnd, pod: str) -> list[asyncpg.Record]:
    """The workers that have registered from this pod, oldest first."""
    query = "SELECT * FROM perdure.workers WHERE pod = $1 ORDER BY started_at"
    return list(await e2e.connection.fetch(query, pod))


async def step_claims(e2e: EndToEnd, uid: str) -> list[int]:
    """For each step the claim under which its body was last started."""
    query = "SELECT started_fence FROM perdure.workflow_steps WHERE workflow_id = $1 ORDER BY step_index"
    return [row["started_fence"] for row in await e2e.connection.fetch(query, uid)]


async def test_a_worker_killed_in_a_step_is_succeeded_from_the_last_finished_step(e2e: EndToEnd) -> None:
    async with e2e.gate(201):
        await e2e.line("killed", POOL, LABELS, gated="b", gate=201)
        uid = await e2e.uid("killed")
        first = await e2e.until_effect(uid, "b")
        (victim,) = await workers_of(e2e, first.pod)
        await asyncio.to_thread(e2e.release.cluster.signal, e2e.kubectl, first.pod, "KILL")
        second = await e2e.until_effect(uid, "b", times=2)
        status = await e2e.until(
            "killed", lambda status: status.get("worker", {}).get("pod") == second.pod, "the new owner"
        )
        assert [step["phase"] for step in status["steps"]] == ["Succeeded", "Running"]
        # In another pod, or in a new container of the same one: never the worker that is dead.
        owner = (await e2e.row(uid))["worker_id"]
        assert owner != victim["id"]
    status = await e2e.finished("killed")
    assert status["phase"] == "Succeeded" and status["output"] == LABELS
    # The step in which the worker died began again; those before it did not.
    assert await e2e.counts(uid) == {"a": 1, "b": 2, "c": 1, "d": 1}
    row = await e2e.row(uid)
    assert row["recoveries"] == 1
    claims = await step_claims(e2e, uid)
    assert claims[0] == 1 and len(set(claims[1:])) == 1 and claims[1] > 1
    killed = await e2e.connection.fetchrow("SELECT state FROM perdure.workers WHERE id = $1", victim["id"])
    assert killed["state"] == DEAD


async def test_a_pod_that_is_deleted_ends_its_step_and_costs_no_recovery(e2e: EndToEnd) -> None:
    async with e2e.gate(202):
        await e2e.line("drained", POOL, LABELS, gated="b", gate=202)
        uid = await e2e.uid("drained")
        first = await e2e.until_effect(uid, "b")
        await e2e.delete("pod", first.pod, "--wait=false")

        async def draining() -> bool:
            return [worker["state"] for worker in await workers_of(e2e, first.pod)][-1:] == [DRAINING]

        await eventually(draining, "the drain of the worker", SECONDS)
    status = await e2e.finished("drained")
    assert status["phase"] == "Succeeded"
    assert await e2e.counts(uid) == dict.fromkeys(LABELS, 1)
    effects = await e2e.effects(uid)
    assert {effect.pod for effect in effects if effect.label in "ab"} == {first.pod}
    assert first.pod not in {effect.pod for effect in effects if effect.label in "cd"}
    assert (await e2e.row(uid))["recoveries"] == 0


async def test_a_killed_postgres_comes_back_and_the_runs_go_on(e2e: EndToEnd) -> None:
    """Its container is killed and starts again over the same data, as after a crash of the machine under it."""
    names = [f"outage-{number}" for number in range(3)]
    async with e2e.gate(203):
        for name in names:
            await e2e.line(name, POOL, LABELS, gated="c", gate=203)
        uids = [await e2e.uid(name) for name in names]
        for uid in uids:
            await e2e.until_effect(uid, "c")
        (pod,) = (await e2e.run("get", "pods", "-l", "app.kubernetes.io/component=postgres", "-o", "name")).split()
        # The gate and the connections of the steps that stand at it die with the server; the steps are tried again.
        await asyncio.to_thread(e2e.release.cluster.signal, e2e.kubectl, pod.partition("/")[2], "KILL")
    for name in names:
        assert (await e2e.finished(name, 180))["phase"] == "Succeeded"
    async with end_to_end(e2e.release) as again:
        for uid in uids:
            counts = await again.counts(uid)
            assert set(counts) == set(LABELS)
            assert counts["a"] == counts["b"] == counts["d"] == 1
            assert (await again.row(uid))["recoveries"] == 0


async def test_two_operators_are_safe_and_the_second_takes_over(e2e: EndToEnd) -> None:
    operators = ("get", "pods", "-l", "app.kubernetes.io/component=operator", "-o", "name")
    await e2e.run("scale", e2e.release.operator, "--replicas=2")
    try:
        await e2e.run("rollout", "status", e2e.release.operator, f"--timeout={SECONDS:.0f}s")
        await e2e.line("two-operators", POOL, LABELS)
        assert (await e2e.finished("two-operators"))["phase"] == "Succeeded"
        assert await e2e.counts(await e2e.uid("two-operators")) == dict.fromkeys(LABELS, 1)
        first, second = (await e2e.run(*operators)).split()
        for number, pod in enumerate((first, second)):
            # One of the two is the leader; the run comes through whichever is killed.
            await asyncio.to_thread(e2e.release.cluster.signal, e2e.kubectl, pod.partition("/")[2], "KILL")
            name = f"after-operator-{number}"
            await e2e.line(name, POOL, LABELS)
            assert (await e2e.finished(name))["phase"] == "Succeeded"
    finally:
        await e2e.run("scale", e2e.release.operator, "--replicas=1")
        await e2e.run("rollout", "status", e2e.release.operator, f"--timeout={SECONDS:.0f}s")


async def test_a_run_goes_on_while_no_operator_is_there(e2e: EndToEnd) -> None:
    async with e2e.gate(204):
        await e2e.line("no-operator", POOL, LABELS, gated="b", gate=204)
        uid = await e2e.uid("no-operator")
        await e2e.until_effect(uid, "b")
        await e2e.run("scale", e2e.release.operator, "--replicas=0")
        try:

            async def gone() -> bool:
                pods = await e2e.run("get", "pods", "-l", "app.kubernetes.io/component=operator", "-o", "name")
                return not pods.strip()

            await eventually(gone, "the operator to go", SECONDS)
            effect = await e2e.until_effect(uid, "b")
            await asyncio.to_thread(e2e.release.cluster.signal, e2e.kubectl, effect.pod, "KILL")
            # Nobody reports the death: the container's successor in the pod is its proof.
            await e2e.until_effect(uid, "b", times=2)
        except BaseException:
            await e2e.run("scale", e2e.release.operator, "--replicas=1")
            raise
    status = await e2e.finished("no-operator")
    await e2e.run("scale", e2e.release.operator, "--replicas=1")
    await e2e.run("rollout", "status", e2e.release.operator, f"--timeout={SECONDS:.0f}s")
    assert status["phase"] == "Succeeded"
    assert await e2e.counts(uid) == {"a": 1, "b": 2, "c": 1, "d": 1}
