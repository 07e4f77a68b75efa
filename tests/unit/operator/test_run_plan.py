"""What is done with the row of a Workflow, what the watch makes of an object, and which Events are posted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.model.rows import NewRun, RunView
from perdure.model.states import RunStatus
from perdure.resources.acceptance import Rejected
from perdure.resources.conditions import Reason
from perdure_operator.plan.accept import accept
from perdure_operator.plan.events import MEANINGS, WARNINGS, EventReason, workflow_notice
from perdure_operator.plan.run import (
    End,
    Forget,
    KeepOld,
    Refuse,
    Store,
    changed_definition,
    decide,
    has_ended,
    refuse,
    report_at_once,
)
from perdure_operator.plan.seen import WorkflowSeen, needs_look, read_workflow

from tests.unit.operator.samples import workflow_object

CYCLE = {"steps": [{"name": "a", "task": "t", "needs": ["b"]}, {"name": "b", "task": "t", "needs": ["a"]}]}


def test_an_object_becomes_the_row_that_it_asks_for() -> None:
    run = accept(workflow_object({"workflow": "shop.order", "input": {"a": 1}, "workerPool": "p", "priority": 5}))
    assert isinstance(run, NewRun)
    assert (run.id, run.namespace, run.name, run.workflow) == ("run-uid", "shop", "order-1", "shop.order")
    assert (run.pool, run.priority, run.input, run.generation) == ("p", 5, '{"a":1}', 1)


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        (CYCLE, Reason.CYCLE_IN_NEEDS, "a -> b"),
        ({"workflow": "w", "input": {"x": "y" * 300_000}}, Reason.INPUT_TOO_LARGE, "at most 262144"),
        ({"workflow": "w", "timeout": "soon"}, Reason.INVALID_SPEC, "spec.timeout"),
        ({}, Reason.INVALID_SPEC, "spec"),
        ({"workflow": "w", "unknown": 1}, Reason.INVALID_SPEC, "spec.unknown"),
    ],
)
def test_what_cannot_run_is_refused_with_a_reason(spec: dict[str, Any], reason: Reason, says: str) -> None:
    rejected = accept(workflow_object(spec))
    assert isinstance(rejected, Rejected)
    assert rejected.reason == reason
    assert says in rejected.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["workflow", "steps", "input", "timeout", "cancel", "queue"]), json_values))
def test_whatever_a_spec_holds_the_answer_is_a_value(spec: dict[str, Any]) -> None:
    assert isinstance(accept(workflow_object(spec)), NewRun | Rejected)


@pytest.mark.parametrize(
    ("obj", "action"),
    [
        (None, Forget),
        (workflow_object(uid="namesake"), Forget),
        (workflow_object(deletionTimestamp="2026-01-01T00:00:00Z"), End),
        (workflow_object(), Store),
        (workflow_object(CYCLE), Refuse),
    ],
)
def test_what_to_do(obj: dict[str, Any] | None, action: type[object]) -> None:
    assert isinstance(decide("run-uid", obj), action)


def test_a_spec_that_got_worse_ends_no_run() -> None:
    rejected = Rejected(Reason.INVALID_SPEC, "spec.timeout: no")
    assert refuse(rejected, has_row=False) == Refuse(rejected)
    assert refuse(rejected, has_row=True) == KeepOld("spec.timeout: no")


def test_only_a_run_that_has_ended_is_never_made_again() -> None:
    ended = {"phase": "Succeeded", "conditions": [{"type": "Accepted", "status": "True"}]}
    assert has_ended(workflow_object(status=ended))
    assert not has_ended(workflow_object())
    assert not has_ended(workflow_object(status={"phase": "Running"}))
    refused = {"phase": "Failed", "conditions": [{"type": "Accepted", "status": "False"}]}
    assert not has_ended(workflow_object(status=refused)), "it never began; a repaired spec may"


def stored(**changes: Any) -> RunView:
    fields: dict[str, Any] = dict.fromkeys(RunView.__dataclass_fields__)
    return RunView(**{**fields, "workflow": "shop.flows.order", "pool": "default", "queue": "default", **changes})


def test_a_definition_that_came_past_the_api_server_is_named() -> None:
    run = accept(workflow_object())
    assert isinstance(run, NewRun)
    assert changed_definition(run, stored()) is None
    changed = changed_definition(run, stored(queue="other", workflow="other"))
    assert changed is not None
    assert "spec.workflow, spec.queue" in changed


def test_a_run_that_a_worker_holds_is_reported_at_once() -> None:
    assert [status for status in RunStatus if report_at_once(status)] == [RunStatus.RUNNING]


@pytest.mark.parametrize(
    ("taken_in", "generation", "deleting", "look"),
    [(None, 1, False, True), (1, 1, False, False), (1, 2, False, True), (2, 1, False, False), (1, 1, True, True)],
)
def test_only_news_are_looked_at(taken_in: int | None, generation: int, deleting: bool, look: bool) -> None:
    metadata: dict[str, Any] = {"generation": generation}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert needs_look(read_workflow(workflow_object(**metadata)), taken_in) is look


def seen(phase: str = "Running", **changes: Any) -> WorkflowSeen:
    conditions = [{"type": "Accepted", "status": "True"}]
    status = {"phase": phase, "reason": phase, "message": "m", "conditions": conditions}
    return replace(read_workflow(workflow_object(status=status)), **changes)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (None, seen("Failed"), None),
        (seen(), seen("Succeeded"), None),
        (seen(), seen("Failed"), EventReason.WORKFLOW_FAILED),
        (seen(), seen("Failed", reason="MaxRecoveryAttemptsExceeded"), EventReason.WORKFLOW_PARKED),
        (seen("Failed"), seen("Failed"), None),
        (seen("Pending"), seen("Pending", stalled=True, reason="NoWorkerPool"), EventReason.WORKFLOW_STALLED),
        (seen(stalled=True, reason="A"), seen(stalled=True, reason="A"), None),
        (seen(stalled=True, reason="A"), seen(stalled=True, reason="B"), EventReason.WORKFLOW_STALLED),
        (seen(""), seen("Failed", accepted=False, stalled=True), EventReason.WORKFLOW_REJECTED),
        (seen("Failed", accepted=False), seen("Failed", accepted=False), None),
        (seen(uid="namesake"), seen("Failed"), None),
    ],
)
def test_events_are_about_changes(before: WorkflowSeen | None, after: WorkflowSeen, reason: EventReason | None) -> None:
    notice = workflow_notice(before, after)
    assert (notice and notice.reason) == reason
    if notice is not None:
        assert notice.message


def test_every_event_is_explained() -> None:
    assert set(MEANINGS) == set(EventReason)


@pytest.mark.parametrize("obj", [{}, {"metadata": {}, "status": "x"}, {"status": {"conditions": [{}]}}, {"spec": []}])
def test_an_odd_object_is_read_all_the_same(obj: dict[str, Any]) -> None:
    assert read_workflow(obj).phase == ""


def test_the_reference_lists_every_event() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/events.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == len(MEANINGS)
    for reason, meaning in MEANINGS.items():
        kind = "Warning" if reason in WARNINGS else "Normal"
        assert any(row.startswith(f"| `{reason}` |") and row.endswith(f"| {kind} | {meaning} |") for row in rows), (
            reason
        )
