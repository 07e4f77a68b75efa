"""Child runs: their start, recorded at the parent's step, and the wait for their result.

A child has the id `{parent}-{step}` unless another is asked for, so that a parent that starts it again after a crash
finds it. It is a run of its own: it goes on when the parent ends, and ends when the parent is cancelled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from perdure.engine.backoff import Wait
from perdure.engine.calls.calls import Calls
from perdure.engine.calls.kinds import Common, Place
from perdure.engine.codec import Decoder, same_input
from perdure.engine.failures import NONE, rebuild, rebuild_run
from perdure.engine.registry import WorkflowDefinition
from perdure.errors import (
    AwaitedWorkflowCancelled,
    AwaitedWorkflowMaxRecoveryAttemptsExceeded,
    ConflictingWorkflow,
    DecodingFailed,
    InvalidArgument,
    NonExistentWorkflow,
)
from perdure.model.calls import CallName, RunOutcome, Start, child_key
from perdure.model.outcome import ErrorRecord
from perdure.model.rows import WaitingFor, workflow_requirement
from perdure.model.start import StartOptions
from perdure.model.states import RunStatus, StepStatus

KIND = "Child"

H = TypeVar("H")

ID_MAX_BYTES = 1100
"""Longest id of a child: with a topic or a key beside it, it fits an entry of an index."""

_ANY = Decoder(Any, "the result of a run")
_OWN = (AwaitedWorkflowCancelled, AwaitedWorkflowMaxRecoveryAttemptsExceeded, NonExistentWorkflow)
_OWN_CODES = frozenset(kind.code for kind in _OWN)


@dataclass(frozen=True)
class StartChild(Common, Generic[H]):
    """Start a run; its result is the handle that `handle` makes of its id. `given` are the arguments by position,
    `input` is their JSON text."""

    definition: WorkflowDefinition
    given: Sequence[Any]
    input: str
    options: StartOptions
    handle: Callable[[str], H]
    name = CallName.START

    @property
    def arguments(self) -> list[Any]:
        """Workflow, arguments, and what was said of how."""
        said = {name: _plain(value) for name, value in asdict(self.options).items() if value is not None}
        return [self.definition.name, list(self.given), said]

    async def perform(self, calls: Calls, at: Place) -> H:
        """Create the run, unless one of the same start has the id."""
        run_id = self.options.id or f"{at.run_id}-{at.index}"
        output = json.dumps(run_id)
        with calls.busy():
            if len(run_id.encode()) > ID_MAX_BYTES:
                raise calls.fail(at, InvalidArgument(f"the id {run_id[:100]}… is too long; give the child another one"))
            while True:
                step = calls.write(at, StepStatus.SUCCEEDED, output=output)
                requires = workflow_requirement(self.definition.name)
                answer = await calls.ask(Start(step, run_id, self.definition.name, requires, self.input, self.options))
                if answer.done:
                    return self.handle(run_id)
                there = await calls.look(calls.log.existing(run_id))
                if there is None:
                    continue  # it was removed in between
                if there.workflow == self.definition.name and same_input(self.given, self.input, there.input):
                    calls.succeed(at, output)
                    return self.handle(run_id)
                what = "with another input" if there.workflow == self.definition.name else f"of {there.workflow}"
                raise calls.fail(
                    at,
                    ConflictingWorkflow(f"{run_id} is the id of a run {what}; {self.definition.name} was not started"),
                )

    def read_back(self, output: str) -> H:
        """The handle."""
        found = json.loads(output)
        if not isinstance(found, str):
            raise DecodingFailed(f"the recorded start of {self.definition.name} names no run")
        return self.handle(found)


@dataclass(frozen=True)
class ChildResult(Common):
    """Wait for the end of a run; its result. `definition` says of what type, if it is known."""

    run_id: str
    definition: WorkflowDefinition | None
    name = CallName.RESULT

    @property
    def arguments(self) -> list[Any]:
        """The run."""
        return [self.run_id]

    async def perform(self, calls: Calls, at: Place) -> Any:
        """Look how the run stands, wait until it has ended, record its outcome as this step's."""
        # A run-level retry opens a failure again that ended the attempt before: then it is not said that this waits.
        recorded = at.recorded is not None and at.recorded.status is StepStatus.WAITING
        while True:
            with calls.busy():
                outcome, seen = await calls.outcome_of(self.run_id)
                if outcome is None or outcome.status.finished:
                    return self._ended(calls, at, outcome)
                if not recorded:
                    calls.record(calls.write(at, StepStatus.WAITING))
                    recorded = True
            await calls.wait(Wait(self._why, None, child_key(self.run_id), seen, calls.hold(at)))

    def _ended(self, calls: Calls, at: Place, outcome: RunOutcome | None) -> Any:
        if outcome is None:
            raise calls.fail(at, NonExistentWorkflow(f"there is no run {self.run_id}"))
        match outcome.status:
            case RunStatus.SUCCEEDED:
                output = "null" if outcome.output is None else outcome.output
                calls.succeed(at, output)
                return calls.read_back(at.call, output)
            case RunStatus.CANCELLED:
                reason = outcome.reason or "no reason was given"
                raise calls.fail(at, AwaitedWorkflowCancelled(f"run {self.run_id} was cancelled: {reason}"))
            case RunStatus.FAILED:
                error = ErrorRecord.from_json(outcome.error or "{}")
                raise calls.fail_as(at, error)
            case _:
                raise calls.fail(
                    at,
                    AwaitedWorkflowMaxRecoveryAttemptsExceeded(
                        f"run {self.run_id} was taken over too often without progress and is parked"
                    ),
                )

    def read_back(self, output: str) -> Any:
        """The result, as its workflow's annotation says."""
        decoder = _ANY if self.definition is None else self.definition.result
        return decoder.decode(output, f"the result of run {self.run_id}")

    def rebuild(self, error: ErrorRecord) -> Exception:
        """The child's own failure, or that there is no result to be had."""
        if error.code in _OWN_CODES:
            return rebuild(error, NONE, "")
        return rebuild_run(error, self.run_id)

    def _why(self, left: float) -> WaitingFor:
        return WaitingFor(KIND, self.run_id, f"it waits for the end of run {self.run_id}")


def _plain(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value
