"""From an applied WorkflowSignal to a message that a run takes, and back to its status."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import asyncpg
import perdure
import pytest
from perdure.api import registering
from perdure.engine.registry import Registry
from perdure.model.calls import Otherwise, Receive
from perdure.model.outcome import Parked, Succeeded
from perdure.model.rows import StepWrite, WaitingFor
from perdure.model.states import StepStatus
from perdure.store import calls
from perdure.store.calls import RunCalls

from tests.reconcile.harness import ROOT, Place, claim_one, condition, end, eventually, register, running, spawned
from tests.support.controlplane import ApiError
from tests.support.workerproc import working

FLOW = {"workflow": "flows.hello"}
KNOWS = ("workflow:flows.hello",)
KIND = "WorkflowSignal"


def signal(**changes: Any) -> dict[str, Any]:
    return {"workflowName": "order", "topic": "approval", "value": {"by": "ann", "granted": True}, **changes}


def says(reason: str) -> Any:
    return lambda status: condition(status, "Delivered").get("reason") == reason


async def inbox(conn: asyncpg.Connection[Any], uid: str) -> list[tuple[str, Any]]:
    rows = await conn.fetch("SELECT topic, value FROM perdure.messages WHERE workflow_id = $1 ORDER BY id", uid)
    return [(row["topic"], json.loads(row["value"])) for row in rows]


async def accepted(place: Place, name: str = "order") -> str:
    """A run; its id."""
    obj = await place.apply(name, FLOW)
    await place.until(name, lambda status: condition(status, "Accepted").get("status") == "True", "accepted")
    return str(obj["metadata"]["uid"])


async def test_a_signal_wakes_the_run_that_waits_for_it_and_says_that_it_is_delivered(
    place: Place, conn: asyncpg.Connection[Any]
) -> None:
    async with running(place.settings(), place.url):
        worker = await register(conn, place, manifest=KNOWS)
        uid = await accepted(place)
        run = await claim_one(conn, worker)
        await end(conn, worker, run, Parked(WaitingFor("Message", on=("message:approval",)), None))
        await place.apply("yes", signal(), KIND)
        shown = await place.until("yes", says("Delivered"), "delivered", KIND)
        again = await claim_one(conn, worker)
        step = StepWrite(0, 1, "perdure.recv", StepStatus.SUCCEEDED, "[]")
        asked = RunCalls(again.id, again.fence, (Receive(step, "approval", Otherwise.NOTHING),))
        [answer] = (await calls.execute(conn, worker.id, [asked]))[uid]
    assert answer.done
    assert json.loads(answer.output or "") == {"by": "ann", "granted": True}
    found = condition(shown["status"], "Delivered")
    assert (found["status"], found["message"]) == ("True", "run order has the message")
    assert shown["status"]["workflowId"] == uid
    assert shown["status"]["deliveredAt"]
    assert shown["status"]["observedGeneration"] == 1


@dataclass
class Approval:
    by: str
    granted: bool


async def test_a_signal_arrives_as_a_recv(place: Place) -> None:
    """From `kubectl apply` to the body of the workflow, and its result back in the status."""
    registry = Registry()

    @perdure.workflow(name="flows.hello", registry=registry)
    async def approved() -> str:
        answer = await perdure.recv("approval", type=Approval)
        assert answer is not None
        return f"{answer.by}: {answer.granted}"

    async with (
        running(place.settings(), place.url),
        working(place.url, registry, namespace=place.namespace, poll_seconds=60.0, lease_seconds=300.0),
    ):
        await place.apply("order", FLOW)
        await place.until("order", lambda status: status.get("phase") == "Waiting", "it waits for the answer")
        await place.apply("yes", signal(), KIND)
        shown = await place.until("order", lambda status: status.get("phase") == "Succeeded", "succeeded")
    assert shown["status"]["output"] == "ann: True"


async def test_the_example_of_an_approval_runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is in examples/approval, with a decision before that is none."""
    registry = Registry()
    monkeypatch.setattr(registering, "default_registry", registry)
    folder = ROOT / "examples/approval"
    spec = spec_from_file_location("expense_flows", folder / "flows.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    long: dict[str, float] = {"poll_seconds": 60.0, "lease_seconds": 300.0}
    async with (
        running(place.settings(), place.url),
        working(place.url, registry, namespace=place.namespace, pool="expenses", **long),
    ):
        for file in ("workflow.yaml", "signal.yaml"):
            if file == "signal.yaml":
                await place.apply("unclear", signal(workflowName="expense-7", value={"granted": "perhaps"}), KIND)
                await place.until("unclear", says("Delivered"), "delivered", KIND)
            await asyncio.to_thread(place.plane.kubectl, "apply", "-n", place.namespace, "-f", folder / file)
        shown = await place.until("expense-7", lambda status: status.get("phase") == "Succeeded", "succeeded")
    assert shown["status"]["output"].endswith(": 19.99 to ann")


async def test_kubectl_waits_for_the_delivery(place: Place) -> None:
    async with running(place.settings(), place.url):
        await accepted(place)
        await place.apply("yes", signal(), KIND)
        wait = ("wait", "-n", place.namespace, "pwsig/yes", "--for=condition=Delivered", "--timeout=20s")
        assert "condition met" in await asyncio.to_thread(place.plane.kubectl, *wait)
        rows = await asyncio.to_thread(place.plane.kubectl, "get", "-n", place.namespace, "pwsig", "-o", "wide")
    head, row = rows.splitlines()
    assert head.split() == ["NAME", "WORKFLOW", "TOPIC", "DELIVERED", "AGE", "REASON"]
    assert (row.split()[:4], row.split()[5]) == (["yes", "order", "approval", "True"], "Delivered")


async def test_a_signal_and_its_workflow_may_be_applied_in_any_order(
    place: Place, conn: asyncpg.Connection[Any]
) -> None:
    async with running(place.settings(), place.url):
        await place.apply("early", signal(), KIND)
        shown = await place.until("early", says("WorkflowNotFound"), "said", KIND)
        assert "there is no Workflow order" in condition(shown["status"], "Delivered")["message"]
        uid = await accepted(place)
        await place.until("early", says("Delivered"), "delivered", KIND)
    assert await inbox(conn, uid) == [("approval", {"by": "ann", "granted": True})]


async def test_a_run_that_has_ended_gets_no_signal(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(place.settings(), place.url):
        worker = await register(conn, place, manifest=KNOWS)
        uid = await accepted(place)
        await end(conn, worker, await claim_one(conn, worker), Succeeded("1"))
        await place.apply("late", signal(), KIND)
        shown = await place.until("late", says("WorkflowEnded"), "said", KIND)
    found = condition(shown["status"], "Delivered")
    assert (found["status"], found["message"]) == (
        "False",
        "the run of Workflow order had ended; nobody would take the message",
    )
    assert await inbox(conn, uid) == []


async def test_a_workflow_that_was_refused_gets_no_signal(place: Place) -> None:
    async with running(place.settings(), place.url):
        await place.apply("order", {**FLOW, "input": {"text": "a\0b"}})
        await place.until("order", lambda status: status.get("phase") == "Failed", "refused")
        await place.apply("yes", signal(), KIND)
        shown = await place.until("yes", says("WorkflowEnded"), "said", KIND)
    assert "was refused" in condition(shown["status"], "Delivered")["message"]


async def test_an_operator_that_died_delivers_once_what_it_had_begun(
    place: Place, conn: asyncpg.Connection[Any], tmp_path: Any
) -> None:
    """As after the message and before the status: the message is there, nothing says so."""
    async with running(place.settings(), place.url):
        uid = await accepted(place)
        obj = await place.apply("yes", signal(), KIND)
        await place.until("yes", says("Delivered"), "delivered", KIND)
    path = f"{place._path(KIND)}/yes/status"
    await place.call("PATCH", path, {"status": None}, content_type="application/merge-patch+json")
    with spawned(place, tmp_path / "log"):
        await place.until("yes", says("Delivered"), "delivered", KIND)
    assert await inbox(conn, uid) == [("approval", {"by": "ann", "granted": True})]
    assert await conn.fetchval("SELECT key FROM perdure.messages") == f"signal:{obj['metadata']['uid']}"


async def test_what_was_delivered_stays_so_when_the_run_has_ended_since(
    place: Place, conn: asyncpg.Connection[Any]
) -> None:
    async with running(place.settings(), place.url):
        worker = await register(conn, place, manifest=KNOWS)
        await accepted(place)
        await place.apply("yes", signal(), KIND)
        await place.until("yes", says("Delivered"), "delivered", KIND)
        await end(conn, worker, await claim_one(conn, worker), Succeeded("1"))
    path = f"{place._path(KIND)}/yes/status"
    await place.call("PATCH", path, {"status": None}, content_type="application/merge-patch+json")
    async with running(place.settings(), place.url):
        await place.until("yes", says("Delivered"), "delivered", KIND)


async def test_two_signals_with_one_key_are_one_message(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(place.settings(), place.url):
        uid = await accepted(place)
        for name in ("a", "b"):
            await place.apply(name, signal(key="payment-7", value={"n": name}), KIND)
            await place.until(name, says("Delivered"), "delivered", KIND)
    assert await inbox(conn, uid) == [("approval", {"n": "a"})]
    assert await conn.fetchval("SELECT key FROM perdure.messages") == "key:payment-7"


async def test_a_signal_cannot_be_changed(place: Place) -> None:
    await place.apply("yes", signal(), KIND)
    for change in ({"topic": "other"}, {"value": {"by": "eve"}}, {"value": {"by": None}}, {"key": "k"}):
        with pytest.raises(ApiError) as caught:
            await place.patch("yes", {"spec": change}, KIND)
        assert caught.value.status == 422
        assert "create a new WorkflowSignal" in caught.value.body
    await place.patch("yes", {"metadata": {"labels": {"team": "a"}}}, KIND)


async def test_a_signal_that_only_the_operator_can_refuse_says_so(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(place.settings(), place.url) as operator:
        uid = await accepted(place)
        await place.apply("large", signal(value={"text": "x" * 300_000}), KIND)
        await place.apply("nul", signal(value={"text": "a\0b"}), KIND)
        large = await place.until("large", says("InputTooLarge"), "said", KIND)
        await place.until("nul", says("InvalidSpec"), "said", KIND)
        assert operator.health.alive() is None
    assert "at most 262144" in condition(large["status"], "Delivered")["message"]
    assert await inbox(conn, uid) == []


async def test_a_signal_of_another_namespace_is_none_of_the_runs_business(
    place: Place, conn: asyncpg.Connection[Any]
) -> None:
    other = await asyncio.to_thread(place.plane.new_namespace)
    body = {"apiVersion": "perdure.dev/v1alpha1", "kind": KIND, "metadata": {"name": "yes"}, "spec": signal()}
    async with running(place.settings(), place.url):
        uid = await accepted(place)
        await place.call("POST", f"/apis/perdure.dev/v1alpha1/namespaces/{other}/workflowsignals", body)
        await place.apply("mine", signal(value={}), KIND)
        await place.until("mine", says("Delivered"), "delivered", KIND)
    assert await inbox(conn, uid) == [("approval", {})]


async def test_a_signal_waits_for_a_database_that_is_away(place: Place, conn: asyncpg.Connection[Any]) -> None:
    """The table is locked for a moment: the message comes after it."""
    async with running(place.settings(), place.url):
        uid = await accepted(place)
        async with conn.transaction():
            await conn.execute("LOCK TABLE perdure.messages")
            await place.apply("yes", signal(), KIND)

            async def waits() -> bool:
                return bool(await conn.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

            await eventually(waits, "the delivery waits")
        await place.until("yes", says("Delivered"), "delivered", KIND)
    assert await inbox(conn, uid) == [("approval", {"by": "ann", "granted": True})]
