"""From an applied Workflow to its row and back to its status."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import pytest
from perdure.model.outcome import Cancelled, Succeeded
from perdure.model.states import RunStatus

from tests.reconcile.harness import Place, claim_one, condition, end, eventually, register, running

FLOW = {"workflow": "flows.hello"}
KNOWS = ("workflow:flows.hello",)
CYCLE = {"steps": [{"name": "a", "task": "t", "needs": ["b"]}, {"name": "b", "task": "t", "needs": ["a"]}]}


def accepted(status: dict[str, Any]) -> bool:
    return condition(status, "Accepted").get("status") == "True"


async def test_an_applied_workflow_is_a_row_and_accepted_within_a_second(
    place: Place, conn: asyncpg.Connection[Any]
) -> None:
    async with running(place.settings(), place.url):
        await place.apply("warm-up", FLOW)
        await place.until("warm-up", accepted, "accepted")
        started = time.monotonic()
        obj = await place.apply("hello", {**FLOW, "input": {"name": "a"}, "priority": 7})
        row = await place.until_row(conn, obj["metadata"]["uid"], lambda row: True, "there")
        in_row = time.monotonic() - started
        shown = await place.until("hello", accepted, "accepted")
        in_status = time.monotonic() - started
    assert (row["name"], row["workflow"], row["priority"], row["status"]) == ("hello", "flows.hello", 7, 10)
    assert list(row["requires"]) == ["workflow:flows.hello"]
    assert shown["status"]["phase"] == "Pending"
    assert shown["status"]["observedGeneration"] == 1
    assert in_row < 1, in_row
    assert in_status < 2, in_status
    assert shown["metadata"].get("finalizers") is None
    assert not [name for name in shown["metadata"].get("annotations") or {} if "kopf" in name]


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        (CYCLE, "CycleInNeeds", "a -> b"),
        ({**FLOW, "input": {"text": "x" * 300_000}}, "InputTooLarge", "at most 262144"),
        ({**FLOW, "input": {"text": "a\0b"}}, "InvalidSpec", "NUL"),
    ],
)
async def test_a_spec_that_only_the_operator_can_refuse_says_so_and_disturbs_nobody(
    place: Place, conn: asyncpg.Connection[Any], spec: dict[str, Any], reason: str, says: str
) -> None:
    async with running(place.settings(), place.url) as operator:
        await place.apply("broken", spec)
        shown = await place.until("broken", lambda status: status.get("conditions"), "has conditions")
        await place.apply("fine", FLOW)
        await place.until("fine", accepted, "accepted")
        found = condition(shown["status"], "Accepted")
        assert (found["status"], found["reason"]) == ("False", reason)
        assert says in found["message"]
        assert shown["status"]["phase"] == "Failed"
        assert operator.health.alive() is None
        event = (await eventually(lambda: place.events("WorkflowRejected"), "an Event says so"))[0]
        assert event["involvedObject"]["name"] == "broken"
        assert event["type"] == "Warning"
        # A change of what may be changed does not repair what defines the run.
        await place.patch("broken", {"spec": {"priority": 1}})
        again = await place.until("broken", lambda status: status["observedGeneration"] == 2, "looked at again")
        assert condition(again["status"], "Accepted")["reason"] == reason
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE name = 'broken'") == 0


async def test_of_ten_quick_edits_the_last_wins(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(place.settings(), place.url):
        obj = await place.apply("edited", FLOW)
        for priority in range(1, 11):
            await place.patch("edited", {"spec": {"priority": priority, "suspend": priority % 2 == 1}})
        shown = await place.until("edited", lambda status: status.get("observedGeneration") == 11, "taken in")
        row = await place.until_row(conn, obj["metadata"]["uid"], lambda row: row["generation"] == 11, "generation 11")
    assert (row["priority"], row["suspended"]) == (10, False)
    assert shown["status"]["phase"] == "Pending"


async def test_a_run_that_is_held_or_has_ended_still_shows_the_generation_that_was_taken_in(
    place: Place, conn: asyncpg.Connection[Any]
) -> None:
    """`kubectl wait` compares generations first: without this it hangs after a patch of a finished run."""
    async with running(place.settings(), place.url):
        worker = await register(conn, place, manifest=KNOWS)
        await place.apply("run", FLOW)
        run = await claim_one(conn, worker)
        await place.patch("run", {"spec": {"priority": 1}})
        held = await place.until("run", lambda status: status.get("observedGeneration") == 2, "generation 2")
        assert held["status"]["phase"] == "Running"
        assert held["status"]["worker"]["pod"] == "pod-1"
        await end(conn, worker, run, Succeeded('"done"'))
        await place.until("run", lambda status: status["phase"] == "Succeeded", "succeeded")
        await place.patch("run", {"spec": {"priority": 2}})
        ended = await place.until("run", lambda status: status["observedGeneration"] == 3, "generation 3")
        assert ended["status"]["output"] == "done"
        wait = ("wait", "-n", place.namespace, "workflow/run", "--for=condition=Finished", "--timeout=10s")
        assert "condition met" in await asyncio.to_thread(place.plane.kubectl, *wait)


async def test_cancel_and_suspend_are_verbs_of_the_spec(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(place.settings(), place.url):
        await place.apply("parked", {**FLOW, "suspend": True})
        await place.until("parked", lambda status: status.get("phase") == "Suspended", "suspended")
        await place.patch("parked", {"spec": {"suspend": False}})
        await place.until("parked", lambda status: status["phase"] == "Pending", "pending again")
        await place.patch("parked", {"spec": {"cancel": {}}})
        shown = await place.until("parked", lambda status: status["phase"] == "Cancelled", "cancelled")
        assert condition(shown["status"], "Finished")["status"] == "True"


async def test_deleting_a_running_workflow_cancels_its_run_and_removes_its_rows(
    place: Place, conn: asyncpg.Connection[Any]
) -> None:
    async with running(place.settings(), place.url):
        worker = await register(conn, place, manifest=KNOWS)
        uid = (await place.apply("doomed", FLOW))["metadata"]["uid"]
        run = await claim_one(conn, worker)
        await place.delete("doomed")
        row = await place.until_row(conn, uid, lambda row: row["cancel_mode"], "told to end")
        assert (row["cancel_mode"], row["deleted"], row["status"]) == ("Immediate", True, RunStatus.RUNNING)
        await end(conn, worker, run, Cancelled("gone"))
        await eventually(lambda: _no_rows(conn, uid), "the rows are removed")


async def test_deleting_a_waiting_workflow_needs_no_worker(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(place.settings(), place.url):
        uid = (await place.apply("doomed", FLOW))["metadata"]["uid"]
        await place.until("doomed", accepted, "accepted")
        await place.delete("doomed")
        await eventually(lambda: _no_rows(conn, uid), "the rows are removed")


async def test_a_workflow_that_somebody_else_holds_back_is_cancelled_and_kept(
    place: Place, conn: asyncpg.Connection[Any]
) -> None:
    async with running(place.settings(), place.url):
        uid = (await place.apply("held", FLOW))["metadata"]["uid"]
        await place.until("held", accepted, "accepted")
        await place.patch("held", {"metadata": {"finalizers": ["example.com/keep"]}})
        await place.delete("held")
        await place.until("held", lambda status: status.get("phase") == "Cancelled", "cancelled")
        assert await conn.fetchval("SELECT NOT deleted FROM perdure.workflows WHERE id = $1", uid)
        await place.patch("held", {"metadata": {"finalizers": None}})
        await eventually(lambda: _no_rows(conn, uid), "the rows are removed")


async def test_a_namesake_is_another_run(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(place.settings(), place.url):
        worker = await register(conn, place, manifest=KNOWS)
        first = (await place.apply("twin", FLOW))["metadata"]["uid"]
        run = await claim_one(conn, worker)
        await place.delete("twin")
        second = (await place.apply("twin", {**FLOW, "priority": 9}))["metadata"]["uid"]
        await place.until_row(conn, first, lambda row: row["cancel_mode"], "told to end")
        row = await place.until_row(conn, second, lambda row: True, "there")
        assert (row["priority"], row["cancel_mode"]) == (9, None)
        shown = await place.until("twin", accepted, "accepted")
        assert shown["metadata"]["uid"] == second
        await end(conn, worker, run, Cancelled("gone"))
        await eventually(lambda: _no_rows(conn, first), "the rows of the first are removed")
        assert (await place.get("twin"))["status"]["phase"] == "Pending"


async def test_a_run_that_has_ended_is_not_made_again_when_its_row_is_lost(
    place: Place, conn: asyncpg.Connection[Any]
) -> None:
    async with running(place.settings(), place.url):
        worker = await register(conn, place, manifest=KNOWS)
        uid = (await place.apply("once", FLOW))["metadata"]["uid"]
        await end(conn, worker, await claim_one(conn, worker), Succeeded("1"))
        await place.until("once", lambda status: status.get("phase") == "Succeeded", "succeeded")
    await conn.execute("TRUNCATE perdure.workflows, perdure.workflow_payloads, perdure.workflow_steps")
    async with running(place.settings(), place.url):
        await place.apply("other", FLOW)
        await place.until("other", accepted, "accepted")
        assert await _no_rows(conn, uid)
        assert (await place.get("once"))["status"]["phase"] == "Succeeded"


async def _no_rows(conn: asyncpg.Connection[Any], uid: str) -> bool:
    tables = {"workflows": "id", "workflow_payloads": "workflow_id", "workflow_steps": "workflow_id"}
    counts = [
        await conn.fetchval(f"SELECT count(*) FROM perdure.{table} WHERE {column} = $1", uid)
        for table, column in tables.items()
    ]
    return not any(counts)
