"""The main path on a real cluster: apply a Workflow, see it run and end; and what a user may ask of it meanwhile."""

import subprocess
from collections.abc import AsyncIterator

import pytest
from localcluster.console import Failure

from tests.cluster.e2e import EndToEnd, Status, end_to_end
from tests.cluster.release import Release
from tests.support.pgwait import eventually

POOL = "e2e-main"


@pytest.fixture
async def e2e(release: Release) -> AsyncIterator[EndToEnd]:
    async with end_to_end(release) as found:
        await found.pool(POOL)
        yield found


def conditions(status: Status) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status["conditions"]}


async def test_a_workflow_runs_step_by_step_to_its_end(e2e: EndToEnd) -> None:
    await e2e.line("main-path", POOL, ["a", "b", "c"])
    status = await e2e.finished("main-path")
    assert status["phase"] == "Succeeded"
    assert status["output"] == ["a", "b", "c"]
    assert status["progress"] == "3/3"
    assert [(step["index"], step["name"], step["phase"]) for step in status["steps"]] == [
        (0, "e2e.act", "Succeeded"),
        (1, "e2e.act", "Succeeded"),
        (2, "e2e.act", "Succeeded"),
    ]
    assert conditions(status) == {"Accepted": "True", "Finished": "True", "Succeeded": "True", "Stalled": "False"}
    uid = await e2e.uid("main-path")
    assert await e2e.counts(uid) == {"a": 1, "b": 1, "c": 1}
    assert (await e2e.row(uid))["recoveries"] == 0


async def test_kubectl_shows_what_a_person_looks_for(e2e: EndToEnd) -> None:
    await e2e.line("columns", POOL, ["a", "b"])
    await e2e.finished("columns")
    header, row = (await e2e.run("get", "pwf", "columns")).splitlines()
    assert header.split() == ["NAME", "STATUS", "PROGRESS", "WAITING", "AGE"]
    assert row.split()[:3] == ["columns", "Succeeded", "2/2"]
    wide = (await e2e.run("get", "workflow", "columns", "-o", "wide")).splitlines()
    assert wide[0].split()[-4:] == ["POOL", "WORKER", "VERSION", "REASON"]
    assert POOL in wide[1]
    selected = await e2e.run("get", "workflows", "--field-selector=status.phase=Succeeded", "-o", "name")
    assert "workflow.perdure.dev/columns" in selected
    described = await e2e.run("describe", "workflow", "columns")
    assert "e2e.act" in described and "Events:" in described


async def test_a_step_that_runs_is_seen_running_with_its_pod(e2e: EndToEnd) -> None:
    async with e2e.gate(101):
        await e2e.line("seen-running", POOL, ["a", "b"], gated="b", gate=101)

        def in_b(status: Status) -> bool:
            return [step["phase"] for step in status.get("steps", [])] == ["Succeeded", "Running"]

        status = await e2e.until("seen-running", in_b, "step b running")
        assert status["phase"] == "Running"
        effect = await e2e.until_effect(await e2e.uid("seen-running"), "b")
        assert status["worker"]["pod"] == effect.pod
    assert (await e2e.finished("seen-running"))["phase"] == "Succeeded"


async def test_declared_steps_run_as_soon_as_their_needs_have(e2e: EndToEnd) -> None:
    def gated(label: str, **more: object) -> dict[str, object]:
        return {"name": label, "task": "e2e.stand", "with": {"label": label, "gate": 102}, **more}

    steps = [
        gated("left"),
        gated("right", needs=[]),
        {"name": "joined", "task": "e2e.act", "with": {"label": "joined"}, "needs": ["left", "right"]},
        {"name": "after", "task": "e2e.act", "with": {"label": "after"}},
    ]
    async with e2e.gate(102):
        await e2e.apply("declared", POOL, steps=steps)
        # Two at once, although neither can end: `right` needs nothing.
        status = await e2e.until(
            "declared", lambda status: status.get("stepCounts", {}).get("running") == 2, "two running steps"
        )
        assert [step["phase"] for step in status["steps"]] == ["Running", "Running", "Pending", "Pending"]
    status = await e2e.finished("declared")
    assert status["output"] == {"left": "left", "right": "right", "joined": "joined", "after": "after"}
    assert [step["name"] for step in status["steps"]] == ["left", "right", "joined", "after"]
    assert [step["output"] for step in status["steps"]] == ["left", "right", "joined", "after"]
    labels = [effect.label for effect in await e2e.effects(await e2e.uid("declared"))]
    assert labels[2:] == ["joined", "after"]


async def test_a_failing_step_is_tried_again_and_then_named(e2e: EndToEnd) -> None:
    await e2e.apply("failing", POOL, workflow="e2e.failing", maxRunAttempts=1)
    status = await e2e.finished("failing")
    assert status["phase"] == "Failed"
    assert conditions(status)["Succeeded"] == "False"
    assert "broken does not work" in status["error"]["message"]
    assert [(step["phase"], step["attempts"]) for step in status["steps"]] == [("Succeeded", 1), ("Failed", 2)]
    assert await e2e.counts(await e2e.uid("failing")) == {"before": 1, "broken": 2}


async def test_suspend_stops_after_the_step_and_resume_goes_on(e2e: EndToEnd) -> None:
    async with e2e.gate(103):
        await e2e.line("suspended", POOL, ["a", "b", "c"], gated="b", gate=103)
        uid = await e2e.uid("suspended")
        await e2e.until_effect(uid, "b")
        await e2e.patch("suspended", {"suspend": True})

        async def row_is_suspended() -> bool:
            return bool((await e2e.row(uid))["suspended"])

        await eventually(row_is_suspended, "the suspension in the row")
    status = await e2e.until("suspended", lambda status: status.get("phase") == "Suspended", "the suspension")
    assert status["progress"] == "2"
    await e2e.patch("suspended", {"suspend": False})
    assert (await e2e.finished("suspended"))["phase"] == "Succeeded"
    assert await e2e.counts(uid) == {"a": 1, "b": 1, "c": 1}


async def test_cancel_ends_a_run_at_once(e2e: EndToEnd) -> None:
    async with e2e.gate(104):
        await e2e.line("cancelled", POOL, ["a", "b"], gated="a", gate=104)
        await e2e.until_effect(await e2e.uid("cancelled"), "a")
        await e2e.patch("cancelled", {"cancel": {"mode": "Immediate"}})
        status = await e2e.finished("cancelled")
    assert status["phase"] == "Cancelled"
    assert conditions(status)["Succeeded"] == "False"
    assert await e2e.counts(await e2e.uid("cancelled")) == {"a": 1}


async def test_a_deleted_workflow_leaves_no_rows(e2e: EndToEnd) -> None:
    async with e2e.gate(105):
        await e2e.line("deleted", POOL, ["a", "b"], gated="b", gate=105)
        uid = await e2e.uid("deleted")
        await e2e.until_effect(uid, "b")
        await e2e.delete("workflow", "deleted")

        async def no_rows() -> bool:
            return not await e2e.connection.fetchval(
                "SELECT (SELECT count(*) FROM perdure.workflows WHERE id = $1)"
                " + (SELECT count(*) FROM perdure.workflow_steps WHERE workflow_id = $1)"
                " + (SELECT count(*) FROM perdure.workflow_payloads WHERE workflow_id = $1)",
                uid,
            )

        await eventually(no_rows, "the rows to go", 90)


async def test_a_name_that_nobody_has_is_a_named_wait(e2e: EndToEnd) -> None:
    await e2e.apply("unknown-name", POOL, workflow="e2e.lien")
    status = await e2e.until(
        "unknown-name", lambda status: status.get("reason") == "UnknownWorkflow", "the reason of the wait"
    )
    assert status["phase"] == "Pending"
    assert "e2e.line" in status["message"]
    assert conditions(status) | {"Accepted": "True", "Stalled": "True"} == conditions(status)
    await e2e.delete("workflow", "unknown-name")


async def test_what_only_the_operator_can_refuse_is_a_condition(e2e: EndToEnd) -> None:
    steps = [
        {"name": "a", "task": "e2e.act", "with": {"label": "a"}, "needs": ["b"]},
        {"name": "b", "task": "e2e.act", "with": {"label": "b"}, "needs": ["a"]},
    ]
    await e2e.apply("circle", POOL, steps=steps)
    status = await e2e.finished("circle")
    accepted = next(condition for condition in status["conditions"] if condition["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "CycleInNeeds")
    assert "a -> b -> a" in accepted["message"] or "b -> a -> b" in accepted["message"]


async def test_what_the_schema_refuses_never_becomes_an_object(e2e: EndToEnd) -> None:
    with pytest.raises(Failure, match="two steps have the same name"):
        await e2e.apply("twice", POOL, steps=[{"name": "a", "task": "t"}, {"name": "a", "task": "t"}])


def test_a_worker_may_patch_the_status_and_nothing_else(release: Release) -> None:
    account = f"--as=system:serviceaccount:{release.namespace}:perdure-worker"

    def may(verb: str, what: str, *options: str) -> bool:
        done: subprocess.CompletedProcess[str] = release.kubectl.ask("auth", "can-i", verb, what, account, *options)
        return done.stdout.strip() == "yes"

    assert may("patch", "workflows.perdure.dev", "--subresource=status")
    for verb in ("get", "list", "watch", "create", "update", "patch", "delete"):
        assert not may(verb, "workflows.perdure.dev"), verb
        assert not may(verb, "workerpools.perdure.dev"), verb
        assert not may(verb, "secrets"), verb
        assert not may(verb, "pods"), verb
    assert not may("get", "workflows.perdure.dev", "--subresource=status")
    assert not may("patch", "workflows.perdure.dev", "--subresource=status", "--namespace=default")
