"""What an accepted Workflow asks for, as a row."""

import json
from datetime import timedelta
from typing import Any

import pytest
from perdure.model.rows import DECLARED_WORKFLOW
from perdure.model.states import CancelMode
from perdure.resources.intake import new_run
from perdure.resources.workflow import WorkflowResource, read_definition


def resource(**spec: Any) -> WorkflowResource:
    return WorkflowResource.parse(
        {"metadata": {"name": "order-1", "namespace": "shop", "uid": "u-1", "generation": 3}, "spec": spec}
    )


def test_a_registered_workflow() -> None:
    run = new_run(resource(workflow="orders.process", input={"name": "Zoë"}))
    assert (run.id, run.namespace, run.name, run.generation) == ("u-1", "shop", "order-1", 3)
    assert run.workflow == "orders.process"
    assert run.requires == ("workflow:orders.process",)
    assert json.loads(run.input) == {"name": "Zoë"}
    assert run.input.isascii()
    assert run.definition is None


def test_declared_steps_need_the_names_of_their_tasks_once_each() -> None:
    steps = [{"name": "b", "task": "two"}, {"name": "a", "task": "one", "with": {"x": 1}}, {"name": "c", "task": "two"}]
    run = new_run(resource(steps=steps))
    assert run.workflow == DECLARED_WORKFLOW
    assert run.requires == ("step:one", "step:two", f"workflow:{DECLARED_WORKFLOW}")
    assert run.definition is not None
    assert [step.name for step in read_definition(run.definition).steps] == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("field", "value", "column", "stored"),
    [
        ("workerPool", "slow", "pool", "slow"),
        ("queue", "bulk", "queue", "bulk"),
        ("priority", 5, "priority", 5),
        ("timeout", "1h30m", "timeout", timedelta(minutes=90)),
        ("suspend", True, "suspended", True),
        ("cancel", {"mode": "Immediate"}, "cancel_mode", CancelMode.IMMEDIATE),
        ("maxRecoveryAttempts", 2, "max_recoveries", 2),
        ("maxRunAttempts", 5, "max_run_attempts", 5),
    ],
)
def test_every_field_of_the_spec_has_its_column(field: str, value: Any, column: str, stored: Any) -> None:
    assert getattr(new_run(resource(workflow="w", **{field: value})), column) == stored
