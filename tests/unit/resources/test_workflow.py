"""Reading a Workflow: metadata tolerantly, spec strictly, every problem with its path."""

from datetime import UTC, datetime
from typing import Any

import pytest
from perdure.errors import InvalidResource
from perdure.resources.common import InvalidFields
from perdure.resources.workflow import WorkflowResource, WorkflowSpec, read_definition


def workflow(spec: Any, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "w", **metadata},
        "spec": spec,
    }


def test_defaults_are_those_of_the_schema() -> None:
    spec = WorkflowResource.parse(workflow({"workflow": "a.b"})).spec
    assert (spec.worker_pool, spec.queue, spec.priority, spec.suspend) == ("default", "default", 100, False)
    assert (spec.max_recovery_attempts, spec.timeout_length, spec.cancel_mode, spec.input) == (10, None, None, {})


def test_metadata_of_other_tools_is_none_of_our_business() -> None:
    obj = workflow(
        {"workflow": "a.b"},
        uid="u-1",
        generation=3,
        creationTimestamp="2026-11-30T10:00:00Z",
        deletionTimestamp="2026-11-30T11:00:00Z",
        labels={"team": "x"},
        finalizers=["example.com/f"],
        managedFields=[{"manager": "kubectl"}],
        somethingNew={"deep": [1]},
    )
    metadata = WorkflowResource.parse(obj).metadata
    assert (metadata.uid, metadata.generation, metadata.labels) == ("u-1", 3, {"team": "x"})
    assert metadata.created_at == datetime(2026, 11, 30, 10, tzinfo=UTC)
    assert metadata.deleted_at == datetime(2026, 11, 30, 11, tzinfo=UTC)


def test_all_problems_are_named_at_once_with_their_paths() -> None:
    spec = {
        "steps": [
            {"name": "a-b", "task": "t", "retyr": {}},
            {"name": "c", "task": "t", "retry": {"maxAttempts": 0, "backoff": {"initial": "soon"}}},
            {"name": "d"},
        ],
        "timeout": 30,
        "priority": "high",
    }
    with pytest.raises(InvalidFields) as caught:
        WorkflowResource.parse(workflow(spec))
    problems = {problem.path: problem.message for problem in caught.value.problems}
    assert set(problems) == {
        "spec.steps[0].name",
        "spec.steps[0].retyr",
        "spec.steps[1].retry.maxAttempts",
        "spec.steps[1].retry.backoff.initial",
        "spec.steps[2].task",
        "spec.timeout",
        "spec.priority",
    }
    assert "a dash would be a minus" in problems["spec.steps[0].name"]
    assert problems["spec.steps[0].retyr"] == "unknown field"
    assert "a duration looks like" in problems["spec.steps[1].retry.backoff.initial"]
    assert problems["spec.steps[2].task"] == "Required value"
    assert isinstance(caught.value, InvalidResource)


@pytest.mark.parametrize("spec", [{}, {"workflow": "a", "steps": [{"name": "s", "task": "t"}]}, None])
def test_there_is_exactly_one_definition(spec: Any) -> None:
    with pytest.raises(InvalidFields, match="exactly one of workflow and steps"):
        WorkflowResource.parse(workflow(spec))


@pytest.mark.parametrize("metadata", [None, {}, {"name": ""}, "x"])
def test_an_object_without_a_name_is_refused(metadata: Any) -> None:
    with pytest.raises(InvalidFields, match=r"metadata\.name"):
        WorkflowResource.parse({"metadata": metadata, "spec": {"workflow": "a"}})


def test_equal_definitions_are_equal_texts() -> None:
    one = WorkflowSpec.model_validate({"steps": [{"name": "a", "task": "t", "with": {"x": 1, "y": None}}]})
    two = WorkflowSpec.model_validate({"steps": [{"with": {"y": None, "x": 1}, "task": "t", "name": "a"}]})
    assert one.definition_json() == two.definition_json()
    assert WorkflowSpec.model_validate({"workflow": "a"}).definition_json() is None


def test_a_stored_definition_reads_as_it_was_written() -> None:
    spec = WorkflowSpec.model_validate(
        {
            "steps": [
                {"name": "a", "task": "t", "with": {"x": [1, {"y": None}]}, "retry": {"maxAttempts": 2}},
                {"name": "b", "task": "t", "needs": [], "attemptTimeout": "5m"},
            ]
        }
    )
    text = spec.definition_json()
    assert text is not None
    assert read_definition(text).steps == spec.steps


@pytest.mark.parametrize("text", ["no json", "[]", '{"steps": []}', '{"steps": [{"name": "a", "http": {}}]}'])
def test_a_stored_definition_that_cannot_be_executed_says_so(text: str) -> None:
    with pytest.raises(InvalidFields, match="definition"):
        read_definition(text)
