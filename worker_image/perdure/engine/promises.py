"""What is said of a step call: which other step undoes it, and with what. Written down before its first attempt.

Called by `PendingStep.undo` and, before the first attempt, by `Steps`. Promise: a step whose promise is not durable
does not begin. `undo` does what is promised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.engine.calls.plain import answer
from perdure.engine.context import Scope
from perdure.engine.encoding import PLAIN
from perdure.engine.registry import StepDefinition
from perdure.errors import InsideStep, InvalidArgument

if TYPE_CHECKING:
    from perdure.engine.calls.calls import Calls
    from perdure.engine.execute import Execution
    from perdure.engine.pending import PendingStep
    from perdure.model.rows import OwnedFlags


@dataclass(frozen=True, slots=True)
class Promise:
    """The step `name` undoes another one; `input` are its arguments as far as their encoding has begun, with null in
    the place of the result."""

    name: str
    input: str


def promise(
    call: PendingStep[Any], scope: Scope | None, compensation: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Note it for the first attempt of the call, if there is a run. Raises `InvalidArgument`, `InsideStep`,
    `TypeError`, `EncodingFailed`."""
    definition = getattr(compensation, "definition", None)
    if not isinstance(definition, StepDefinition):
        raise InvalidArgument(f"step {call.name} is undone by a registered step, not by {compensation!r}")
    if not definition.parameters.leads:
        raise InvalidArgument(
            f"step {definition.name} cannot undo another: its first argument would be that one's result"
        )
    encoding = PLAIN if scope is None else scope.execution.encoding
    text = definition.encode_call((None, *args), kwargs, encoding)
    if scope is None:
        return
    if scope.index is not None:
        raise InsideStep(f"step {call.name} is called as part of step {scope.name}, and cannot be undone without it")
    execution = scope.execution
    registered = execution.registry.steps.get(definition.name)
    if registered is None:
        raise InvalidArgument(f"step {definition.name} is not registered, so no other process could undo with it")
    if registered.function is definition.function and registered.options != definition.options:
        raise InvalidArgument(f"step {definition.name} undoes with the options of its registration: say them there")
    assert call.step_id is not None
    if call.step_id in execution.promises:
        raise InvalidArgument(f"this call of step {call.name} has a step that undoes it already")
    begun = encoding.begin(text, f"the arguments of step {definition.name}")
    execution.promises[call.step_id] = Promise(definition.name, begun)


async def keep_promise(run: Execution, index: int) -> None:
    """Make it durable, before the step at this index begins. Raises the signal when that must not begin."""
    given = run.promises.pop(index, None)
    if given is None:
        return
    stored = await run.values.finish(given.input, run.encoding, f"the arguments of step {given.name}")
    try:
        flags = await answer(run, lambda: run.log.promise(index, given.name, stored))
    except Exception as error:
        run.give_up(error, f"what undoes the step at index {index} could not be written")
        raise run.signal() from error
    await run.perform_unrecorded(lambda calls: _obey(calls, flags))


async def _obey(calls: Calls, flags: OwnedFlags) -> None:
    calls.obey(flags)
