"""What an accepted Workflow asks for, as a row: called by the operator and by `perdure dev`, so that both store the
same. Pure; `store.runs.upsert` takes the result.
"""

from __future__ import annotations

import json

from perdure.model.rows import DECLARED_WORKFLOW, NewRun, step_requirement, workflow_requirement
from perdure.resources.workflow import WorkflowResource, WorkflowSpec


def new_run(resource: WorkflowResource) -> NewRun:
    """The row of this resource; its id is the resource's UID."""
    spec, metadata = resource.spec, resource.metadata
    return NewRun(
        id=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        workflow=spec.workflow or DECLARED_WORKFLOW,
        requires=requirements(spec),
        input=json.dumps(spec.input, separators=(",", ":")),
        definition=spec.definition_json(),
        pool=spec.worker_pool,
        queue=spec.queue,
        priority=spec.priority,
        timeout=spec.timeout_length,
        suspended=spec.suspend,
        cancel_mode=spec.cancel_mode,
        max_recoveries=spec.max_recovery_attempts,
        max_run_attempts=spec.max_run_attempts,
        generation=metadata.generation,
    )


def requirements(spec: WorkflowSpec) -> tuple[str, ...]:
    """Names that a worker must have registered to run it, sorted."""
    if spec.steps is None:
        return (workflow_requirement(spec.workflow or ""),)
    steps = {step_requirement(step.action.name) for step in spec.steps}
    return (*sorted(steps), workflow_requirement(DECLARED_WORKFLOW))
