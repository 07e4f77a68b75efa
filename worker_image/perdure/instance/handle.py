"""What `workflow.start(…)` gives outside of runs: the handle of a child there, and that of a client here."""

from __future__ import annotations

from typing import Any, TypeVar

from perdure.api.handles import RunHandle
from perdure.client.handle import Handle
from perdure.engine.context import current_scope
from perdure.engine.pending import PendingCall
from perdure.engine.plain import PlainCall
from perdure.engine.registry import WorkflowDefinition
from perdure.model.calls import CallName
from perdure.model.states import RunStatus

R = TypeVar("R")


class LaunchedHandle(RunHandle[R]):
    """A run that was started outside of runs through the launched instance. `outside` is the client's handle of it,
    whose waits have limits. Given to the body of a run it is as any handle there."""

    __slots__ = ("outside",)

    def __init__(self, outside: Handle[R], definition: WorkflowDefinition | None) -> None:
        super().__init__(outside.id, definition)
        self.outside = outside

    def result(self) -> PendingCall[R]:
        """Wait for its end; what its workflow returned. As `Handle.result` outside of runs, where it also raises
        `Interrupted` when the instance is shut down meanwhile."""
        if current_scope.get() is not None:
            return super().result()
        return PlainCall(CallName.RESULT, self.outside.result)

    def status(self) -> PendingCall[RunStatus]:
        """How it stands now."""
        if current_scope.get() is not None:
            return super().status()
        call: PlainCall[Any] = PlainCall(CallName.STATUS, self.outside.status)
        return call
