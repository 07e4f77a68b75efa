"""The boundary of a body: what it is made of, and that whatever it does is an ending.

Used by `Execution`, once for each claim. Promises: a run of an unknown workflow is kept, as a later release may know
it; an input that does not fit fails the run; whatever a body raises is a failure of its run and nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from perdure.engine.failures import describe, step_of
from perdure.engine.registry import Registry, WorkflowDefinition
from perdure.engine.steps import dropped_by_interpreter
from perdure.errors import PerdureError, UnknownWorkflow
from perdure.model.outcome import Ending, Failed, Mismatch, Succeeded
from perdure.model.rows import ClaimedRun

Body = asyncio.Task[Ending]


def body_of(
    run: ClaimedRun, registry: Registry, task: Callable[[], Body | None]
) -> Ending | Coroutine[Any, Any, Ending]:
    """The body ready to run in a task, which `task` then gives; or how the run ends without it."""
    definition = registry.workflows.get(run.workflow)
    if definition is None:
        unknown = UnknownWorkflow(f"no workflow {run.workflow} is registered in this process")
        return Mismatch(describe(unknown))
    try:
        args, kwargs = definition.arguments_from_input(run.input)
    except PerdureError as error:
        return Failed(describe(error))
    return _ending_of(definition, args, kwargs, task)


def outcome_of_body(body: Body) -> Ending:
    """How a body has ended of itself."""
    if body.cancelled():
        return Failed(describe(asyncio.CancelledError("the body was cancelled by its own code")))
    return body.result()


async def _ending_of(
    definition: WorkflowDefinition, args: Sequence[Any], kwargs: dict[str, Any], task: Callable[[], Body | None]
) -> Ending:
    try:
        value = await definition.function(*args, **kwargs)
        return Succeeded(definition.result.round_trip(value, f"the result of workflow {definition.name}")[0])
    except BaseException as error:
        if isinstance(error, GeneratorExit) and dropped_by_interpreter(task()):
            raise
        return Failed(describe(error, step_of(error)))
