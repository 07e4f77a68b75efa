"""What a workflow does with other runs, and what it asks of them: durable calls for the body of a workflow.

Each takes its place in the run when it is called and is recorded there, once done and never again. In a step they are
part of the step: under the fence, not recorded, and done again when the step is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from perdure.api.handles import RunHandle
from perdure.engine.calls.arguments import run_id_of
from perdure.engine.calls.kinds import build, start
from perdure.engine.calls.management import (
    REASON,
    attributed,
    cancel_of,
    delay_of,
    delete_of,
    details_of,
    forked,
    list_of,
    resume_of,
    rewind_of,
    steps_of,
)
from perdure.engine.context import namespace_of
from perdure.engine.pending import PendingCall, PendingStart
from perdure.model.listing import RunDetails, RunFilters, RunPage, RunQuery, StepDetails, StepQuery, filter_of
from perdure.model.management import Cut
from perdure.model.start import Seconds
from perdure.model.states import CancelMode, RunStatus

if TYPE_CHECKING:
    from perdure.api.workflows import Workflow

R = TypeVar("R")


def cancel(
    run_id: str, reason: str = REASON, *, mode: CancelMode = CancelMode.GRACEFUL, cascade: bool = True
) -> PendingCall[RunStatus]:
    """Ask for the end of a run; its status afterwards, as `Client.cancel`. `cascade`: those that it has started follow.

    Raises `NotInWorkflow` outside a run; when awaited, `NonExistentWorkflow`.
    """
    return build(cancel_of(run_id_of(run_id), reason, mode, cascade))


@overload
def resume(run_id: str, workflow: Workflow[..., R]) -> PendingStart[RunHandle[R]]: ...
@overload
def resume(run_id: str, workflow: None = None) -> PendingStart[RunHandle[Any]]: ...
def resume(run_id: str, workflow: Workflow[..., Any] | None = None) -> PendingStart[RunHandle[Any]]:
    """Take a run up again where it stands, as `Client.resume`; `await` gives its handle.

    Raises `NotInWorkflow` outside a run; when awaited, `NonExistentWorkflow`.
    """
    return start(resume_of(run_id_of(run_id), _handles(workflow)))


@overload
def fork(
    run_id: str,
    at: Cut | int | str = ...,
    workflow: None = None,
    *,
    id: str | None = None,
    children: Mapping[str, str] | None = None,
) -> PendingStart[RunHandle[Any]]: ...
@overload
def fork(
    run_id: str,
    at: Cut | int | str,
    workflow: Workflow[..., R],
    *,
    id: str | None = None,
    children: Mapping[str, str] | None = None,
) -> PendingStart[RunHandle[R]]: ...
@overload
def fork(
    run_id: str,
    *,
    workflow: Workflow[..., R],
    id: str | None = None,
    children: Mapping[str, str] | None = None,
) -> PendingStart[RunHandle[R]]: ...
def fork(
    run_id: str,
    at: Cut | int | str = Cut.BEGINNING,
    workflow: Workflow[..., Any] | None = None,
    *,
    id: str | None = None,
    children: Mapping[str, str] | None = None,
) -> PendingStart[RunHandle[Any]]:
    """Start a run with the steps that another has recorded before a cut, as `Client.fork`; `await` gives its handle.

    Its id is `{this run}-{step}` unless one was asked for. It is no child: it goes on when this run is cancelled.
    Raises `NotInWorkflow` outside a run, `InvalidArgument`; when awaited, `NonExistentWorkflow`, `ConflictingWorkflow`,
    and `InvalidArgument` where there is no such step or child.
    """
    return start(forked(run_id_of(run_id), at, id, children, _handles(workflow)))


@overload
def rewind(run_id: str, to: Cut | int | str, workflow: Workflow[..., R]) -> PendingStart[RunHandle[R]]: ...
@overload
def rewind(run_id: str, to: Cut | int | str, workflow: None = None) -> PendingStart[RunHandle[Any]]: ...
def rewind(
    run_id: str, to: Cut | int | str, workflow: Workflow[..., Any] | None = None
) -> PendingStart[RunHandle[Any]]:
    """Undo the steps of a run that has ended from a cut on, as `Client.rewind`; `await` gives its handle.

    Raises `NotInWorkflow` outside a run, `InvalidArgument`; when awaited, `WorkflowNotRewindable`,
    `NonExistentWorkflow`, and `InvalidArgument` where there is no such step.
    """
    return start(rewind_of(run_id_of(run_id), to, _handles(workflow)))


def delete(run_id: str) -> PendingCall[None]:
    """Remove a run, as `Client.delete`.

    Raises `NotInWorkflow` outside a run; when awaited, `NonExistentWorkflow`, and `InvalidArgument` for a run that
    belongs to a resource.
    """
    return build(delete_of(run_id_of(run_id)))


def set_delay(run_id: str, delay: Seconds) -> PendingCall[None]:
    """Let a run that has not begun begin so long from now, as `Client.set_delay`.

    Raises `NotInWorkflow` outside a run, `InvalidArgument`; when awaited, `NonExistentWorkflow`, `InvalidArgument`.
    """
    return build(delay_of(run_id_of(run_id), delay))


def set_attributes(run_id: str, attributes: Mapping[str, Any]) -> PendingCall[None]:
    """Set attributes of a run, as `Client.set_attributes`.

    Raises `NotInWorkflow` outside a run, `InvalidArgument`; when awaited, `NonExistentWorkflow`, `InvalidArgument`.
    """
    return build(attributed(run_id_of(run_id), attributes))


def get_workflow(run_id: str, *, payloads: bool = True) -> PendingCall[RunDetails]:
    """What is known of a run, as `Client.get_workflow`. What was seen at first is recorded: ask again for news.

    Raises `NotInWorkflow` outside a run; when awaited, `NonExistentWorkflow`, `PayloadTooLarge`.
    """
    return build(details_of(run_id_of(run_id), payloads))


def list_steps(
    run_id: str, *, after: int = -1, limit: int = 100, payloads: bool = True
) -> PendingCall[tuple[StepDetails, ...]]:
    """The recorded steps of a run, as `Client.list_steps`, and recorded.

    Raises `NotInWorkflow` outside a run, `InvalidArgument`; when awaited, `NonExistentWorkflow`, `PayloadTooLarge`.
    """
    return build(steps_of(StepQuery(run_id_of(run_id), after, limit, payloads)))


def list_workflows(
    *,
    limit: int = 100,
    after: str | None = None,
    newest_first: bool = True,
    payloads: bool = False,
    **filters: Unpack[RunFilters],
) -> PendingCall[RunPage]:
    """A page of the runs of this run's namespace, as `Client.list_workflows`, and recorded.

    Raises `NotInWorkflow` outside a run, `InvalidArgument`; when awaited, `PayloadTooLarge`: ask for fewer.
    """
    query = RunQuery(namespace_of("perdure.list_workflows"), filter_of(filters), limit, after, newest_first, payloads)
    return build(list_of(query, filters))


def _handles(workflow: Workflow[..., Any] | None) -> Any:
    definition = None if workflow is None else workflow.definition
    return lambda run_id: RunHandle(run_id, definition)
