"""Durable calls that take their place in the run when they are awaited, not when they are built.

They have to be awaited on their own, before any other call is built: so whoever builds others beside one is told,
instead of getting places that depend on what was awaited first.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from perdure.engine.calls.kinds import DurableCall, Kind, input_of
from perdure.engine.context import Scope, current_scope
from perdure.engine.pending import PendingStart
from perdure.errors import InsideStep, NotInWorkflow, PatchNondeterminism

R = TypeVar("R")


class AloneCall(DurableCall[R]):
    """Made by `build_alone`. `step_id` is None until it is awaited."""

    __slots__ = ("_position",)

    def __init__(self, scope: Scope, kind: Kind[R]) -> None:
        super().__init__(scope, kind, None, input_of(kind))
        self._position = scope.execution.next_index

    def _plainly(self, scope: Scope | None) -> Coroutine[Any, Any, R]:
        assert scope is not None
        self.check_position(scope)
        return self.claim(scope)

    def check_position(self, scope: Scope) -> None:
        """Raises `PatchNondeterminism` when another call was built since this one."""
        if scope.execution.next_index != self._position:
            raise PatchNondeterminism(
                f"{self.name} was built where the next call takes index {self._position}, and is awaited where "
                f"{scope.execution.next_index} is next: another call took its position; "
                "await it where it is built, on its own"
            )

    def claim(self, scope: Scope) -> Coroutine[Any, Any, R]:
        """Take the next index, and replay or do it there."""
        execution = scope.execution
        call = execution.build(scope, self.kind)
        self.step_id = call.step_id
        return execution.perform_call(call)


class AloneStart(AloneCall[R], PendingStart[R]):
    """One that starts a run."""

    __slots__ = ()


def build_alone(kind: Kind[R]) -> AloneCall[R]:
    """The call of a kind that is awaited on its own. Raises `NotInWorkflow`, `InsideStep`, `EncodingFailed`."""
    scope = body_scope(kind.name, "; from a program of its own use perdure.Client")
    return (AloneStart if kind.starts else AloneCall)(scope, kind)


def body_scope(called: str, outside: str = "") -> Scope:
    """The body in which such a call is built. Raises `NotInWorkflow`, which ends with `outside`, and `InsideStep`."""
    scope = current_scope.get()
    if scope is None:
        raise NotInWorkflow(f"{called} was called outside the body of a run{outside}")
    if scope.index is not None:
        raise InsideStep(f"{called} was called in step {scope.name}: a step is a leaf; call it from the workflow")
    return scope


def build_alone_start(kind: Kind[R]) -> AloneStart[R]:
    """`build_alone` for a kind that starts a run."""
    call = build_alone(kind)
    assert isinstance(call, AloneStart)
    return call
