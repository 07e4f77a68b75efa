"""What a run holds of a child that it started."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from perdure.engine.calls.children import ChildResult
from perdure.engine.calls.kinds import build
from perdure.engine.pending import PendingCall
from perdure.engine.registry import WorkflowDefinition

R = TypeVar("R")


class ChildHandle(Generic[R]):
    """A run that this run has started. Gotten by `await workflow.start(...)`; good for as long as the body runs."""

    __slots__ = ("_definition", "id")

    def __init__(self, run_id: str, definition: WorkflowDefinition | None) -> None:
        self.id = run_id
        self._definition = definition

    def result(self) -> PendingCall[R]:
        """Wait for its end; what its workflow returned.

        Takes its place in the run when it is called. A failure of the child is raised as its own class where that can
        be found and built, else as `WorkflowFailed`. Raises `AwaitedWorkflowCancelled`, `NonExistentWorkflow`. Waiting
        takes no slot. To stop waiting leaves the child running.
        """
        kind: Any = ChildResult(self.id, self._definition)
        return build(kind)

    def __repr__(self) -> str:
        return f"<child run {self.id}>"
