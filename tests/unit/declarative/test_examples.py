"""The examples run: the order in Python and the same steps declared, with the input of their Workflow files."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from perdure.api import default_registry
from perdure.declarative import register
from perdure.engine.registry import Registry
from perdure.model.rows import DECLARED_WORKFLOW
from perdure.resources.workflow import WorkflowResource

from examples.order import flows
from tests.support.engine import Engine, output_of
from tests.support.memorylog import MemoryRun

EXAMPLES = Path(__file__).parents[3] / "examples"


def workflow_of(folder: str) -> WorkflowResource:
    documents: list[dict[str, Any]] = list(yaml.safe_load_all((EXAMPLES / folder / "workflow.yaml").read_text()))
    document = next(one for one in documents if one["kind"] == "Workflow")
    metadata = {"namespace": "default", "uid": "u", "generation": 1, **document["metadata"]}
    return WorkflowResource.parse({**document, "metadata": metadata})


@pytest.fixture
def registry() -> Registry:
    """What the module of the example has registered, and the runner of declared steps."""
    registry = Registry()
    registry.workflows.update(default_registry.workflows)
    registry.steps.update(default_registry.steps)
    register(registry)
    return registry


async def test_the_order_in_python_runs_with_the_input_of_its_workflow(engine: Engine, registry: Registry):
    spec = workflow_of("order").spec
    engine.registry = registry
    run = MemoryRun(spec.workflow, json.dumps({**spec.input, "pace_seconds": 0}))
    receipt = flows.Receipt.model_validate(output_of(await engine.execute(run)))
    assert (receipt.order_id, receipt.paid) == (spec.input["order_id"], spec.input["amount"])
    assert receipt.payment == "payment-run-1/1"
    assert [row.name for row in run.rows.values()] == ["reserve_stock", "charge_card", "pack", "ship", "send_receipt"]


async def test_the_declared_order_calls_the_same_steps(engine: Engine, registry: Registry):
    engine.registry = registry
    definition = json.loads(workflow_of("declared").spec.definition_json() or "")
    for step in definition["steps"]:
        step["with"]["pace_seconds"] = 0
    run = MemoryRun(DECLARED_WORKFLOW, definition=json.dumps(definition))
    output = output_of(await engine.execute(run))
    assert output["reserve_stock"] == 4
    assert output["charge_card"] == "payment-run-1/1"
    assert output["ship"] == {"carrier": "post", "tracking": "track-1002"}


async def test_the_steps_of_the_order_run_alone():
    assert await flows.reserve_stock("o", [flows.Item(sku="tea", quantity=2)]) == 2
    assert await flows.charge_card("o", 5) == "payment-o"
