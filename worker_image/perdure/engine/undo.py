"""Undoing: when a run has failed for good, or is cancelled so that it compensates, the steps are called that undo those
which have succeeded, the last one first.

Run by `Execution` instead of the body, in every claim of such a run. The body has no part in it: what is undone, and
with what, is recorded (`promises`). Promises: every step that undoes another is a step of the run like any other, so
that it is done once in the same sense; one that fails for good keeps no other from being tried, and is not forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from perdure.engine.bodies import dropped_by_interpreter
from perdure.engine.calls.calls import Calls
from perdure.engine.calls.plain import answer
from perdure.engine.codec import shorten
from perdure.engine.context import Scope, current_scope
from perdure.engine.errortypes import name_of
from perdure.engine.failures import bounded, describe
from perdure.errors import CompensationFailed, PerdureError, UnknownStep, WorkflowCancelled
from perdure.model.outcome import Cancelled, Ending, ErrorRecord, Failed, Mismatch
from perdure.store.undo import Part, Plan

if TYPE_CHECKING:
    from perdure.engine.execute import Execution

logger = logging.getLogger(__name__)

SHOWN = 5
"""Failures that the message of a `CompensationFailed` names."""


async def undo(run: Execution, task: Callable[[], asyncio.Task[Ending] | None]) -> Ending:
    """What a claim runs instead of the body: undo what is to be undone, and say how the run ends."""
    try:
        plan = await run.perform_unrecorded(_begin)
        return await _carry_out(run, plan)
    except BaseException as error:
        if isinstance(error, GeneratorExit) and dropped_by_interpreter(task()):
            raise
        return Failed(describe(error))


async def _begin(calls: Calls) -> Plan:
    run = calls.run
    with calls.busy():
        seq = calls.next_seq()
        try:
            plan = await answer(run, lambda: run.log.undo(seq))
        except Exception as error:
            run.give_up(error, "what is to be undone could not be read")
            raise run.signal() from error
        calls.obey(plan.flags)
    return plan


async def _carry_out(run: Execution, plan: Plan) -> Ending:
    if plan.index is None:
        return Cancelled(plan.reason) if plan.error is None else Failed(plan.error)
    logger.info("run %s undoes %d of its steps", run.claimed.id, len(plan.parts))
    scope = current_scope.get()
    assert scope is not None
    failures = []
    for place, part in enumerate(plan.parts, plan.index + 1):
        run.next_index = place
        error = await _undo(run, scope, part)
        if error is not None:
            logger.warning("run %s: step %s could not be undone by %s", run.claimed.id, part.step, part.name)
            failures.append((part, describe(error, part.name)))
    if failures:
        return Failed(_could_not(plan, failures))
    return Cancelled(plan.reason) if plan.error is None else Failed(plan.error)


async def _undo(run: Execution, scope: Scope, part: Part) -> Exception | None:
    """Call the step that undoes this one, at the next index: why it has failed for good, None if it has not."""
    definition = run.registry.steps.get(part.name)
    if definition is None:
        unknown = UnknownStep(f"step {part.name}, which undoes step {part.step}, is not registered in this process")
        run.abort(Mismatch(describe(unknown, part.name)), unknown.message)
        raise run.signal()
    output = await run.values.read(part.output, f"the recorded result of step {part.step}", part.step)
    given = await run.values.read(part.input, f"the arguments of step {part.name}", part.name)
    try:
        args, kwargs = definition.arguments_to_undo(output, given)
        call = run.call(scope, definition, tuple(args), kwargs)
    except (PerdureError, TypeError) as error:
        return error
    try:
        await call
    except Exception as error:
        return error
    return None


def _could_not(plan: Plan, failures: list[tuple[Part, ErrorRecord]]) -> ErrorRecord:
    """Both: what the run had ended with, and what could not be undone."""
    first = plan.error or describe(WorkflowCancelled(plan.reason))
    told = [
        f"step {part.step} ({part.index}) by {part.name}: {error.type}: {shorten(error.message, 200)}"
        for part, error in failures[:SHOWN]
    ]
    more = f"; and {len(failures) - SHOWN} more" if len(failures) > SHOWN else ""
    message = (
        f"{len(failures)} of {len(plan.parts)} steps could not be undone: {'; '.join(told)}{more}. "
        f"The run had ended with {first.type}: {shorten(first.message, 500)}"
    )
    records = bounded((replace(first, attempts=()), *(replace(error, attempts=()) for _, error in failures)))
    return ErrorRecord(name_of(CompensationFailed), message, CompensationFailed.code, first.step, attempts=records)
