"""Runs as the body of another one holds them, whoever started them: results, statuses, the first or all of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from perdure.api import managed
from perdure.engine.calls.arguments import run_id_of, run_ids_of
from perdure.engine.calls.children import ChildResult
from perdure.engine.calls.kinds import build
from perdure.engine.calls.waits import JOIN, PendingJoin, PendingResults, SelectRun, StatusOf
from perdure.engine.context import Scope, current_scope
from perdure.engine.pending import PendingCall
from perdure.engine.registry import WorkflowDefinition
from perdure.errors import InsideStep, InvalidArgument, NotInWorkflow
from perdure.model.calls import CallName
from perdure.model.states import RunStatus

if TYPE_CHECKING:
    from perdure.api.workflows import Workflow

R = TypeVar("R")
R1 = TypeVar("R1")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
R4 = TypeVar("R4")
R5 = TypeVar("R5")


class RunHandle(Generic[R]):
    """A run, in the body of a run. Gotten by `await workflow.start(...)` and `perdure.handle`; good for as long as the
    body runs. Equal handles are of the same run.

    Where an instance is launched, `await workflow.start(...)` gives one outside of runs, too: its methods do there what
    those of a client's handle do, and nothing is recorded."""

    __slots__ = ("_definition", "id")

    def __init__(self, run_id: str, definition: WorkflowDefinition | None) -> None:
        self.id = run_id
        self._definition = definition

    @property
    def workflow_id(self) -> str:
        """The id of the run: another name of `id`."""
        return self.id

    def result(self) -> PendingCall[R]:
        """Wait for its end; what its workflow returned.

        Takes its place in the run when it is called, each call its own; what came of it is recorded there, so that a
        recovery does not wait again. A failure of the run is raised as its own class where that can be found and built,
        else as `WorkflowFailed`. Raises `AwaitedWorkflowCancelled`, `AwaitedWorkflowMaxRecoveryAttemptsExceeded`,
        `NonExistentWorkflow`, and `ConflictingWorkflow` when it is of another workflow than the handle's. Waiting takes
        no slot, and to stop waiting leaves the run alone. Raises `InsideStep` in a step, `NotInWorkflow` outside a run.
        """
        not_itself(CallName.RESULT, [self.id])
        kind: Any = ChildResult(self.id, self._definition)
        return build(kind)

    def status(self) -> PendingCall[RunStatus]:
        """How it stands. Recorded: a replay gets what was seen at first, so ask again for news.

        Raises `NonExistentWorkflow`, `InsideStep`, `NotInWorkflow`.
        """
        return build(StatusOf(self.id))

    # What is done with the run, and what is known of it.
    cancel = managed.cancel
    resume = managed.resume
    fork = managed.fork
    rewind = managed.rewind
    delete = managed.delete
    set_delay = managed.set_delay
    set_attributes = managed.set_attributes
    send = managed.send
    details = managed.details
    steps = managed.steps

    def of(self, run_id: str) -> RunHandle[R]:
        """The handle of another run of the same workflow."""
        return RunHandle(run_id, self._definition)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<handle of run {self.id}>"


ChildHandle = RunHandle
"""What `workflow.start` gives in a body: its older name."""


@overload
def handle(run_id: str, workflow: Workflow[..., R]) -> RunHandle[R]: ...
@overload
def handle(run_id: str, workflow: None = None) -> RunHandle[Any]: ...
def handle(run_id: str, workflow: Workflow[..., Any] | None = None) -> RunHandle[Any]:
    """Any run by its id, in the body of a run. Asks nothing, takes no place and records nothing: its calls do.

    With its workflow, results have the annotated type; without, they are plain JSON values. Raises `NotInWorkflow`
    outside a run (use `Client.handle`), `InvalidArgument` for what cannot be an id.
    """
    if current_scope.get() is None:
        raise NotInWorkflow("perdure.handle was called outside a run; use Client.handle there")
    return RunHandle(run_id_of(run_id), None if workflow is None else workflow.definition)


def select_workflow(*runs: str | RunHandle[Any]) -> PendingCall[str]:
    """Wait until one of several runs has ended, however it did; its id. Of those that have, the first as given.

    Runs are given by their ids or handles: `await perdure.select_workflow(*ids)`. The id is recorded, so that a replay
    goes the same way. One question to the database a look, however many runs there are; waiting takes no slot. What
    came of the run says `perdure.handle(id).result()`. Raises `InvalidArgument` for no run, one that is given twice and
    the own one; `NotInWorkflow` outside a run (use `Client.select_workflow`), `InsideStep`; when awaited,
    `NonExistentWorkflow` if one of them is not there.
    """
    ids = run_ids_of([_id_of(run) for run in runs])
    not_itself(CallName.SELECT_WORKFLOW, ids)
    return build(SelectRun(ids))


@overload
def join_workflows(*runs: str) -> PendingCall[None]: ...
@overload
def join_workflows(first: RunHandle[R1], /) -> PendingCall[tuple[R1]]: ...
@overload
def join_workflows(first: RunHandle[R1], second: RunHandle[R2], /) -> PendingCall[tuple[R1, R2]]: ...
@overload
def join_workflows(
    first: RunHandle[R1], second: RunHandle[R2], third: RunHandle[R3], /
) -> PendingCall[tuple[R1, R2, R3]]: ...
@overload
def join_workflows(
    first: RunHandle[R1], second: RunHandle[R2], third: RunHandle[R3], fourth: RunHandle[R4], /
) -> PendingCall[tuple[R1, R2, R3, R4]]: ...
@overload
def join_workflows(
    first: RunHandle[R1], second: RunHandle[R2], third: RunHandle[R3], fourth: RunHandle[R4], fifth: RunHandle[R5], /
) -> PendingCall[tuple[R1, R2, R3, R4, R5]]: ...
@overload
def join_workflows(*runs: RunHandle[R]) -> PendingCall[tuple[R, ...]]: ...
def join_workflows(*runs: Any) -> PendingCall[Any]:
    """Wait until all of several runs have ended, however they did.

    Given ids, it gives None, takes no place in the run and records nothing: a recovery waits for them again, and a run
    that was removed since counts as ended. Given handles, it gives a tuple of their results in that order: each takes a
    place as `result()` does and is recorded, all are waited for, and of those that failed the first in order is raised.
    Waiting takes no slot. Raises `InvalidArgument` for no run, one that is given twice, the own one, and ids beside
    handles; `NotInWorkflow` outside a run (use `Client.join_workflows`), `InsideStep`. When awaited with handles,
    `NonExistentWorkflow` if one of them is not there; with ids, that fails this run and cannot be caught, since nothing
    is recorded that a replay could go by.
    """
    handles = [run for run in runs if isinstance(run, RunHandle)]
    if 0 < len(handles) < len(runs):
        raise InvalidArgument("join_workflows takes ids or handles, not both")
    ids = run_ids_of([_id_of(run) for run in runs])
    scope = not_itself(JOIN, ids)
    if handles:
        return PendingResults(scope, [each.result() for each in handles])
    return PendingJoin(scope, ids, scope.execution.next_index)


def not_itself(name: str, runs: Sequence[str]) -> Scope:
    """The scope of the body that waits for these runs. Raises what refuses a wait elsewhere, or for oneself."""
    scope = current_scope.get()
    if scope is None:
        raise NotInWorkflow(
            f"{name} was called outside the body of a run; from a program of its own use perdure.Client"
        )
    if scope.index is not None:
        raise InsideStep(f"{name} was called in step {scope.name}: a step is a leaf; call it from the workflow")
    if scope.execution.claimed.id in runs:
        raise InvalidArgument("a run cannot wait for its own end")
    return scope


def _id_of(run: Any) -> str:
    if isinstance(run, RunHandle):
        return run.id
    if isinstance(run, str):
        return run
    raise InvalidArgument(f"a run is given by its id or its handle, not as {run!r}")
