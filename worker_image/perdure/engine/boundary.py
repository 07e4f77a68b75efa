"""The boundary of a body: what it is made of, and that whatever it does is an ending.

Used by `Execution`, once for each claim. Promises: a run of an unknown workflow is kept, as a later release may know
it; an input that does not fit fails the run; whatever a body raises is a failure of its run and nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from perdure.engine.bodies import dropped_by_interpreter
from perdure.engine.encoding import MARK, PLAIN
from perdure.engine.failures import describe, step_of
from perdure.engine.registry import WorkflowDefinition
from perdure.errors import ControlSignal, PerdureError, UnknownWorkflow
from perdure.model.outcome import Ending, Failed, Mismatch, Succeeded

if TYPE_CHECKING:
    from perdure.engine.execute import Execution

Body = asyncio.Task[Ending]


def body_of(execution: Execution, task: Callable[[], Body | None]) -> Ending | Coroutine[Any, Any, Ending]:
    """The body ready to run in a task, which `task` then gives; or how the run ends without it."""
    run = execution.claimed
    definition = execution.registry.workflows.get(run.workflow)
    if definition is None:
        unknown = UnknownWorkflow(f"no workflow {run.workflow} is registered in this process")
        return Mismatch(describe(unknown))
    if run.input[:1] == MARK:
        return _read_first(execution, definition, task)
    try:
        args, kwargs = definition.arguments_from_input(run.input)
    except PerdureError as error:
        return Failed(describe(error))
    return _ending_of(execution, definition, args, kwargs, task)


def outcome_of_body(body: Body) -> Ending:
    """How a body has ended of itself."""
    if body.cancelled():
        return Failed(describe(asyncio.CancelledError("the body was cancelled by its own code")))
    return body.result()


async def _read_first(execution: Execution, definition: WorkflowDefinition, task: Callable[[], Body | None]) -> Ending:
    """Of a run whose input is no JSON. One that cannot be read here stops the run, which says how it ends then."""
    try:
        text = await execution.values.read(execution.claimed.input, f"the input of workflow {definition.name}")
        args, kwargs = definition.arguments_from_input(text)
    except (PerdureError, ControlSignal) as error:
        return Failed(describe(error))
    return await _ending_of(execution, definition, args, kwargs, task)


async def _ending_of(
    execution: Execution,
    definition: WorkflowDefinition,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    task: Callable[[], Body | None],
) -> Ending:
    encoding = execution.encoding
    try:
        value = await definition.function(*args, **kwargs)
        what = f"the result of workflow {definition.name}"
        output = definition.result.round_trip(value, what, encoding)[0]
        return Succeeded(output if encoding is PLAIN else await execution.values.write(output, what))
    except BaseException as error:
        if isinstance(error, GeneratorExit) and dropped_by_interpreter(task()):
            raise
        return Failed(describe(error, step_of(error)))
