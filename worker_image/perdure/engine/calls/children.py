"""The wait of a run for the result of another one, a child or any, and a start with the wait for its result.

Its start stands in `starting`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.engine.backoff import Wait
from perdure.engine.calls.calls import Calls
from perdure.engine.calls.kinds import Common, DurableCall, Place, build, input_of
from perdure.engine.codec import Decoder
from perdure.engine.context import Scope, current_scope
from perdure.engine.failures import NONE, rebuild, rebuild_run
from perdure.engine.pending import PendingCall
from perdure.engine.registry import WorkflowDefinition
from perdure.errors import (
    AwaitedWorkflowCancelled,
    AwaitedWorkflowMaxRecoveryAttemptsExceeded,
    ConflictingWorkflow,
    NonExistentWorkflow,
)
from perdure.model.calls import CallName, RunOutcome, child_key
from perdure.model.outcome import ErrorRecord
from perdure.model.rows import WaitingFor
from perdure.model.states import RunStatus, StepStatus

if TYPE_CHECKING:
    from perdure.engine.execute import Execution

R = TypeVar("R")

KIND = "Child"

_ANY = Decoder(Any, "the result of a run")
_OWN = (
    AwaitedWorkflowCancelled,
    AwaitedWorkflowMaxRecoveryAttemptsExceeded,
    ConflictingWorkflow,
    NonExistentWorkflow,
)
_OWN_CODES = frozenset(kind.code for kind in _OWN)


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
                if outcome is not None and not outcome.own and not outcome.status.finished:
                    await calls.listening.to([self.run_id])
                    outcome, seen = await calls.outcome_of(self.run_id)
                if outcome is None or outcome.status.finished:
                    return await self._ended(calls, at, outcome)
                if not recorded:
                    calls.record(calls.write(at, StepStatus.WAITING))
                    recorded = True
            await calls.wait(Wait(self._why, None, child_key(self.run_id), seen, calls.hold(at)))

    async def _ended(self, calls: Calls, at: Place, outcome: RunOutcome | None) -> Any:
        if outcome is None or outcome.deleted:
            raise calls.fail(at, NonExistentWorkflow(f"there is no run {self.run_id}"))
        expected = self.definition.name if self.definition is not None else outcome.workflow
        if outcome.workflow not in ("", expected):
            what = f"run {self.run_id} is of workflow {outcome.workflow}, and was awaited as one of {expected}"
            raise calls.fail(at, ConflictingWorkflow(what))
        match outcome.status:
            case RunStatus.SUCCEEDED:
                output = "null" if outcome.output is None else outcome.output
                calls.succeed(at, output)
                return calls.read_back(at.call, await calls.read(output, f"the result of run {self.run_id}"))
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


class PendingRun(PendingCall[R]):
    """Starts a run and waits for its result: two calls, at two indexes that both are taken when it is built."""

    __slots__ = ("result", "start")

    def __init__(self, scope: Scope, start: PendingCall[Any], result: DurableCall[R]) -> None:
        super().__init__(scope, start.name, start.step_id, start.input)
        self.start = start
        self.result = result

    def _durably(self, execution: Execution) -> Coroutine[Any, Any, R]:
        return self._both(execution)

    def _plainly(self, scope: Scope | None) -> Coroutine[Any, Any, R]:
        raise AssertionError("it has two indexes")

    def close(self) -> None:
        """As of any coroutine; for asyncio."""
        self.start.close()
        self.result.close()
        super().close()

    async def _both(self, execution: Execution) -> R:
        try:
            handle = await self.start
        except BaseException:
            execution.forgo(self.result)
            raise
        kind: Any = self.result.kind
        if kind.run_id != handle.id:
            # Another run than was thought when this was built: the one that has the deduplication id, or, in a run that
            # was forked or rewound, the child of before.
            self.result.kind = replace(kind, run_id=handle.id)
            if await execution.perform_unrecorded(self._recorded_input) != self.result.input:
                self.result.input = input_of(self.result.kind)
        return await self.result

    async def _recorded_input(self, calls: Calls) -> str | None:
        """What the wait is recorded with. Earlier releases have written the id that was thought; it stays as it is."""
        assert self.result.step_id is not None
        if not await calls.was_beyond(self.result.step_id):
            return None
        recorded = calls.recorded(self.result.step_id)
        return None if recorded is None else recorded.input


def run_of(start: PendingCall[Any], run_id: str | None, definition: WorkflowDefinition) -> PendingRun[Any]:
    """The start and the wait in one, from a start that was just built in a body; `run_id` if one was asked for."""
    scope = current_scope.get()
    assert scope is not None
    assert scope.index is None
    awaited = run_id or f"{scope.execution.claimed.stem}-{start.step_id}"
    return PendingRun(scope, start, build(ChildResult(awaited, definition)))
