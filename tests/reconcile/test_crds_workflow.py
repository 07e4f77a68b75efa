"""A Workflow on a real API server: what may change, what a status write can and cannot do."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from perdure.model.rows import WaitingFor
from perdure.model.states import RunStatus, StepStatus
from perdure.resources.acceptance import Accepted, Rejected, validate_workflow
from perdure.resources.common import Metadata
from perdure.resources.conditions import Reason, WaitKind
from perdure.resources.projection import project, project_rejected
from perdure.resources.workflow import WorkflowResource

from tests.support.controlplane import ApiError, RunningControlPlane
from tests.support.crds import Object, Objects, causes
from tests.unit.resources.views import at, definition, error, run, source, step

ROOT = Path(__file__).resolve().parents[2]
STEPS = [
    {"name": "a", "task": "t", "with": {"x": {"y": [1]}}},
    {"name": "b", "task": "t", "needs": ["a"], "retry": {"maxAttempts": 2}},
]


@pytest.fixture
def workflows(definitions: RunningControlPlane) -> Objects:
    return Objects(definitions, definitions.new_namespace())


def refused(error: ApiError, field: str, words: str) -> None:
    assert error.status == 422
    found = causes(error)
    assert any(cause.startswith(f"{field}: ") and words in cause for cause in found), found


# -- the spec


def test_defaults_are_those_of_the_models(workflows: Objects) -> None:
    stored = workflows.create({"steps": [{"name": "a", "task": "t", "retry": {"maxAttempts": 2}}], "cancel": {}})
    from_server = WorkflowResource.parse(stored)
    assert stored["spec"]["steps"][0] == {"name": "a", "task": "t", "retry": {"maxAttempts": 2}}
    by_models = WorkflowResource.parse(
        {
            "metadata": {"name": "x"},
            "spec": {"steps": [{"name": "a", "task": "t", "retry": {"maxAttempts": 2}}], "cancel": {}},
        }
    )
    assert from_server.spec == by_models.spec


@pytest.mark.parametrize(
    ("start", "change", "field"),
    [
        ({"workflow": "a"}, {"workflow": "b"}, "spec.workflow"),
        ({"workflow": "a"}, {"workflow": None, "steps": STEPS}, "spec"),
        ({"steps": STEPS}, {"workflow": "a", "steps": None}, "spec"),
        ({"workflow": "a"}, {"input": {"x": 1}}, "spec.input"),
        ({"workflow": "a", "input": {"x": {"y": [1, 2]}}}, {"input": {"x": {"y": [2, 1]}}}, "spec.input"),
        ({"workflow": "a", "input": {"x": 1}}, {"input": None}, "spec.input"),
        ({"workflow": "a", "workerPool": "p"}, {"workerPool": None}, "spec.workerPool"),
        ({"workflow": "a"}, {"workerPool": "other"}, "spec.workerPool"),
        ({"workflow": "a"}, {"queue": "other"}, "spec.queue"),
        ({"steps": STEPS}, {"steps": STEPS[::-1]}, "spec.steps"),
        ({"steps": STEPS}, {"steps": STEPS[:1]}, "spec.steps"),
        ({"steps": STEPS}, {"steps": [{**STEPS[0], "with": {"x": {"y": [2]}}}, STEPS[1]]}, "spec.steps"),
        ({"steps": STEPS}, {"steps": [STEPS[0], {"name": "b", "task": "t", "needs": ["a"]}]}, "spec.steps"),
    ],
    ids=str,
)
def test_what_defines_a_run_cannot_be_changed(workflows: Objects, start: Object, change: Object, field: str) -> None:
    made = workflows.create(start)
    with pytest.raises(ApiError) as caught:
        workflows.merge(made["metadata"]["name"], {"spec": change})
    refused(caught.value, field, "create a new Workflow")


@pytest.mark.parametrize("revisions", [(), (1,), (1, 2)], ids=["before", "at the first status", "later"])
def test_steps_stay_fixed_whatever_has_been_written_to_the_status(
    workflows: Objects, revisions: tuple[int, ...]
) -> None:
    """The rule lets writes of the status pass, told by the revision; one of the spec must not pass for one."""
    made = workflows.create({"steps": STEPS})
    for number in revisions:
        workflows.write_status(made, status(number))
    changed = workflows.get(made["metadata"]["name"])
    changed["spec"]["steps"] = STEPS[:1]
    changed["status"] = status(99)
    with pytest.raises(ApiError) as caught:
        workflows.replace(changed)
    refused(caught.value, "spec.steps", "create a new Workflow")


def test_what_steers_a_run_can_be_changed_at_any_time(workflows: Objects) -> None:
    made = workflows.create({"steps": STEPS})
    workflows.write_status(made, status(1))
    change = {"suspend": True, "priority": 5, "timeout": "2h", "maxRecoveryAttempts": 3, "maxRunAttempts": 2}
    changed = workflows.merge(made["metadata"]["name"], {"spec": change})
    assert changed["metadata"]["generation"] == 2
    assert {key: changed["spec"][key] for key in change} == change
    assert workflows.merge(made["metadata"]["name"], {"spec": {"timeout": None}})["metadata"]["generation"] == 3


def test_a_cancel_cannot_be_taken_back_and_only_be_made_stronger(workflows: Objects) -> None:
    name = workflows.create({"workflow": "a"})["metadata"]["name"]
    assert workflows.merge(name, {"spec": {"cancel": {}}})["spec"]["cancel"] == {"mode": "Graceful"}
    workflows.merge(name, {"spec": {"cancel": {"mode": "Immediate"}}})
    with pytest.raises(ApiError) as caught:
        workflows.merge(name, {"spec": {"cancel": {"mode": "Graceful"}}})
    refused(caught.value, "spec.cancel.mode", "only be made stronger")
    with pytest.raises(ApiError) as caught:
        workflows.merge(name, {"spec": {"cancel": None}})
    refused(caught.value, "spec.cancel", "cannot be taken back")


def test_a_cancel_that_compensates_is_one_from_the_beginning_and_stays_one(workflows: Objects) -> None:
    asked = {mode: workflows.create({"workflow": "a"})["metadata"]["name"] for mode in ("Compensate", "Graceful")}
    for mode, name in asked.items():
        workflows.merge(name, {"spec": {"cancel": {"mode": mode}}})
    for name, later in ((asked["Compensate"], "Immediate"), (asked["Graceful"], "Compensate")):
        with pytest.raises(ApiError) as caught:
            workflows.merge(name, {"spec": {"cancel": {"mode": later}}})
        refused(caught.value, "spec.cancel.mode", "only be made stronger")


@pytest.mark.parametrize("path", ["order/workflow.yaml", "declared/workflow.yaml", "order/workerpool.yaml"])
def test_applying_the_same_file_twice_changes_nothing(
    definitions: RunningControlPlane, workflows: Objects, path: str
) -> None:
    for answer in ("created", "unchanged"):
        out = definitions.kubectl("-n", workflows.namespace, "apply", "-f", ROOT / "examples" / path)
        assert out.strip().endswith(answer)


# -- the status


def status(number: int, **changes: Any) -> Object:
    found = project(source(run(), step(0)))
    return {**found, "revision": number, **changes}


@pytest.mark.parametrize(
    "wrong",
    [status(6), None, status(0), {}, {"phase": "Running"}, {**status(6), "revision": None}],
    ids=["lower", "null status", "zero", "empty", "no revision", "null revision"],
)
def test_a_status_never_goes_back(workflows: Objects, wrong: Any) -> None:
    made = workflows.create({"steps": STEPS})
    workflows.write_status(made, status(7))
    with pytest.raises(ApiError) as caught:
        workflows.write_status(made, wrong)
    assert caught.value.status == 422
    assert workflows.get(made["metadata"]["name"])["status"]["revision"] == 7


def test_the_refusal_of_an_old_status_is_told_from_others(workflows: Objects) -> None:
    made = workflows.create({"workflow": "a"})
    workflows.write_status(made, status(7))
    with pytest.raises(ApiError) as caught:
        workflows.write_status(made, status(6))
    refused(caught.value, "status.revision", "never goes back")


def test_an_equal_revision_is_taken(workflows: Objects) -> None:
    """A patch whose answer was lost is sent again."""
    made = workflows.create({"workflow": "a"})
    for _ in range(2):
        workflows.write_status(made, status(7))


def test_the_largest_revision_comes_back_as_it_was_written(workflows: Objects) -> None:
    made = workflows.create({"workflow": "a"})
    for number in (2**53 - 1, 2**53 + 1):
        workflows.write_status(made, status(number))
        assert workflows.get(made["metadata"]["name"])["status"]["revision"] == number


def test_a_recreated_namesake_is_left_alone(workflows: Objects) -> None:
    old = workflows.create({"workflow": "a"}, "w")
    workflows.delete("w")
    workflows.create({"workflow": "a"}, "w")
    with pytest.raises(ApiError) as caught:
        workflows.write_status(old, status(7))
    assert caught.value.status == 422
    assert "status.revision" not in caught.value.body
    assert "status" not in workflows.get("w")


def test_the_status_of_a_deleted_workflow_is_not_found(workflows: Objects) -> None:
    old = workflows.create({"workflow": "a"}, "w")
    workflows.delete("w")
    with pytest.raises(ApiError) as caught:
        workflows.write_status(old, status(7))
    assert caught.value.status == 404


def test_nothing_of_an_older_status_stays(workflows: Objects) -> None:
    made = workflows.create({"workflow": "a"})
    wait = WaitingFor(WaitKind.RETRY_BACKOFF, "a", "later", until=at(60))
    waiting = project(source(run(RunStatus.WAITING, waiting_for=wait, output='{"a": 1}', output_bytes=8)))
    assert {"waiting", "waitingFor", "output"} <= set(waiting)
    workflows.write_status(made, waiting)
    done = project(source(run(RunStatus.SUCCEEDED, output='{"b": null}', output_bytes=11, fence=9)))
    assert workflows.write_status(made, done)["status"] == done


@pytest.mark.parametrize("output", ["1", "1.5", "true", '"x"', "[1, null, {}]", '{"a": {"b": null}}', "[]", "{}", "0"])
def test_an_output_of_any_json_type_comes_back_as_it_was_written(workflows: Objects, output: str) -> None:
    made = workflows.create({"workflow": "a"})
    found = run(RunStatus.SUCCEEDED, definition=definition("a"), output=output, output_bytes=len(output))
    wanted = project(source(found, step(0, name="a", output=output)))
    assert workflows.write_status(made, wanted)["status"] == wanted


def test_a_status_at_all_its_limits_is_taken(workflows: Objects) -> None:
    made = workflows.create({"workflow": "a"})
    wait = WaitingFor("K" * 99, "n" * 999, "€" * 5000, until=at(1))
    steps = [
        step(index, StepStatus.FAILED, name="s" * 300, attempts=1000, error=error("🚀" * 300)) for index in range(150)
    ]
    found = run(RunStatus.WAITING, waiting_for=wait, version="v" * 300, error=error("e" * 5000, code="PRD-405"))
    wanted = project(source(found, *steps))
    assert workflows.write_status(made, wanted)["status"] == wanted


def test_a_refused_spec_has_a_status_that_the_api_server_takes_and_a_run_can_follow(workflows: Objects) -> None:
    steps = [{"name": "a", "task": "t", "needs": ["b"]}, {"name": "b", "task": "t", "needs": ["a"]}]
    made = workflows.create({"steps": steps})
    answer = validate_workflow(made)
    assert isinstance(answer, Rejected)
    assert answer.reason == Reason.CYCLE_IN_NEEDS
    wanted = project_rejected(answer, Metadata.parse(made))
    assert workflows.write_status(made, wanted)["status"] == wanted
    workflows.write_status(made, status(1))


def test_what_the_server_hands_out_is_what_the_models_read(workflows: Objects) -> None:
    made = workflows.create({"workflow": "orders.process_order", "input": {"n": None, "big": 2**53 + 1}}, "w")
    answer = validate_workflow(made)
    assert isinstance(answer, Accepted)
    metadata = answer.resource.metadata
    assert (metadata.name, metadata.namespace, metadata.generation) == ("w", workflows.namespace, 1)
    assert metadata.uid == made["metadata"]["uid"]
    assert metadata.created_at is not None
    assert metadata.created_at <= datetime.now(UTC)
    assert answer.resource.spec.input == {"n": None, "big": 2**53 + 1}


def test_waiting_for_the_end_works_also_after_a_change_of_a_finished_run(
    definitions: RunningControlPlane, workflows: Objects
) -> None:
    """`kubectl wait` believes a condition only if the status has seen the present generation."""
    made = workflows.create({"workflow": "a"}, "w")
    done = run(RunStatus.SUCCEEDED, generation=1)
    workflows.write_status(made, project(source(done)))
    wait = ("-n", workflows.namespace, "wait", "workflow/w", "--for=condition=Finished", "--timeout=20s")
    assert "condition met" in definitions.kubectl(*wait)
    workflows.merge("w", {"spec": {"priority": 1}})
    workflows.write_status(made, project(source(run(RunStatus.SUCCEEDED, generation=2, edits=2))))
    assert "condition met" in definitions.kubectl(*wait)
    by_path = ("-n", workflows.namespace, "wait", "pwf/w", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=20s")
    assert "condition met" in definitions.kubectl(*by_path)
