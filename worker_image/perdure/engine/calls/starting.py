"""The start of a child run, recorded at the parent's step.

A child has the id `{parent}-{step}` unless another is asked for, so that a parent that starts it again after a crash
finds it. It is a run of its own: it goes on when the parent ends, and ends when the parent is cancelled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from perdure.engine.calls.calls import Calls
from perdure.engine.calls.kinds import Common, Place
from perdure.engine.codec import same_input
from perdure.engine.context import Scope
from perdure.engine.launched import starter_of
from perdure.engine.registry import WorkflowDefinition
from perdure.engine.stored import ChildInput
from perdure.errors import (
    ConflictingWorkflow,
    DecodingFailed,
    InvalidArgument,
    QueueDeduplicated,
    WorkflowIdInUse,
)
from perdure.model.calls import CallName, Start
from perdure.model.rows import workflow_requirement
from perdure.model.start import ReusePolicy, StartOptions
from perdure.model.states import StepStatus
from perdure.store.clients import ExistingRun

H = TypeVar("H")

ID_MAX_BYTES = 1100
"""Longest id of a child: with a topic or a key beside it, it fits an entry of an index."""


@dataclass(frozen=True)
class StartChild(Common, Generic[H]):
    """Start a run; its result is the handle that `handle` makes of its id. `given` are the arguments by position."""

    definition: WorkflowDefinition
    given: Sequence[Any]
    input: ChildInput
    options: StartOptions
    handle: Callable[[str], H]
    name = CallName.START
    starts = True
    outside = True
    holds = True

    @property
    def arguments(self) -> list[Any]:
        """Workflow, arguments, and what was said of how."""
        return [self.definition.name, list(self.given), self.options.said()]

    async def perform(self, calls: Calls, at: Place) -> H:
        """Create the run, unless there is one that this start gives instead."""
        run_id = self.options.id or f"{at.stem}-{at.index}"
        output = json.dumps(run_id)
        text = await self.input.finished(calls.run.values)
        with calls.busy():
            if len(run_id.encode()) > ID_MAX_BYTES:
                raise calls.fail(at, InvalidArgument(f"the id {run_id[:100]}… is too long; give the child another one"))
            while True:
                step = calls.write(at, StepStatus.SUCCEEDED, output=output)
                answer = await calls.ask(self._start(step, run_id, text))
                if answer.done:
                    return self.handle(run_id)
                there = await calls.look(calls.log.existing(run_id))
                if there is not None:
                    await self._check(calls, at, there)
                    return self._give(calls, at, run_id)
                if self.options.deduplication_id is not None:
                    held = await calls.look(calls.log.holder(self.options.queue, self.options.deduplication_id))
                    if held is not None:
                        return self._give(calls, at, self._instead(calls, at, held))
                # Whatever was in the way has gone in between.

    async def plainly(self, scope: Scope | None) -> Any:
        """By the instance in which the workflow is registered."""
        starter = starter_of(self.definition)
        return await starter.start_given(self.definition, self.given, self.input.json, self.options)

    def read_back(self, output: str) -> H:
        """The handle."""
        found = json.loads(output)
        if not isinstance(found, str):
            raise DecodingFailed(f"the recorded start of {self.definition.name} names no run")
        return self.handle(found)

    def _start(self, step: Any, run_id: str, text: str) -> Start:
        definition, options = self.definition, self.options
        if options.timeout is None and definition.timeout is not None:
            options = replace(options, timeout=definition.timeout)
        if self.input.choice is not None:
            options = replace(options, serialization=self.input.choice)
        requires = workflow_requirement(definition.name)
        return Start(step, run_id, definition.name, requires, text, options, definition.max_run_attempts)

    def _give(self, calls: Calls, at: Place, run_id: str) -> H:
        calls.succeed(at, json.dumps(run_id))
        return self.handle(run_id)

    async def _check(self, calls: Calls, at: Place, there: ExistingRun) -> None:
        """Raises what is to be recorded unless the run that has the id may be given for this start."""
        mine = (there.parent_id, there.parent_step) == (at.run_id, at.index)
        name = self.definition.name
        if self.options.reuse == ReusePolicy.REJECT and not mine:
            raise calls.fail(
                at, WorkflowIdInUse(f"{there.id} is the id of a run that is there; {name} was not started", there.id)
            )
        if there.deleted:
            what = f"{there.id} is the id of a run that was deleted and is not removed yet; {name} was not started"
            raise calls.fail(at, WorkflowIdInUse(what, there.id))
        before = await calls.read(there.input, f"the input of run {there.id}")
        if there.workflow != name or not same_input(self.given, self.input.json, before):
            what = "with another input" if there.workflow == name else f"of {there.workflow}"
            raise calls.fail(at, ConflictingWorkflow(f"{there.id} is the id of a run {what}; {name} was not started"))
        if self.options.reuse == ReusePolicy.RERUN_FAILED and there.failed:
            await calls.look(calls.log.rerun(there.id, token_of(at.stem, at.index)))

    def _instead(self, calls: Calls, at: Place, held: Any) -> str:
        """The id of the run that holds the deduplication id, if that one may be given instead."""
        name, key = self.definition.name, self.options.deduplication_id
        if self.options.on_duplicate != ReusePolicy.RETURN_EXISTING:
            raise calls.fail(
                at, QueueDeduplicated(f"run {held.id} holds deduplication id {key}; {name} was not started", held.id)
            )
        if held.workflow != name:
            raise calls.fail(
                at,
                ConflictingWorkflow(
                    f"run {held.id}, which holds deduplication id {key}, is of {held.workflow}, not {name}"
                ),
            )
        return str(held.id)


def token_of(run_id: str, index: int) -> int:
    """Stands for the start at this step, the same at every claim: one that ran a run again knows that it did."""
    digest = hashlib.sha256(f"{run_id}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
