"""`perdure.patch` and `perdure.deprecate_patch`: whether a run goes by the code of before or after a change.

Where the change is, a run of the new code records a marker at the next index. A run that has anything else there, or
anything behind, went that way with the code of before: it takes the old way again, and its calls keep their indexes. A
hole alone says nothing: a call that was dropped leaves one, and only what stands behind it shows that it was passed.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from perdure.engine.calls.alone import AloneCall, body_scope
from perdure.engine.calls.calls import Calls
from perdure.engine.calls.kinds import Common, Place
from perdure.engine.context import Scope
from perdure.model.calls import CallName

MARKER = "true"
"""Recorded output."""


@dataclass(frozen=True)
class Patch(Common):
    """The change of this name. `marks`: a run that comes here for the first time records it."""

    change: str
    marks: bool
    name = CallName.PATCH

    @property
    def arguments(self) -> list[Any]:
        """The name of the change; not whether it marks, since both kinds read what either has recorded."""
        return [self.change]

    async def perform(self, calls: Calls, at: Place) -> bool:
        """Record the marker, with what the run writes next."""
        calls.succeed(at, MARKER)
        return True

    def read_back(self, output: str) -> bool:
        """The run was marked."""
        return True


class PatchCall(AloneCall[bool]):
    """Takes an index only where a marker is, or is to be. Made by `build_patch`."""

    __slots__ = ("_marks",)

    def __init__(self, scope: Scope, kind: Patch) -> None:
        super().__init__(scope, kind)
        self._marks = kind.marks

    def _plainly(self, scope: Scope | None) -> Coroutine[Any, Any, bool]:
        assert scope is not None
        self.check_position(scope)
        return scope.execution.perform_unrecorded(lambda calls: self._decide(scope, calls))

    async def _decide(self, scope: Scope, calls: Calls) -> bool:
        index = scope.execution.next_index
        passed = await calls.was_beyond(index)
        self.check_position(scope)  # others may have run while the history was read
        if passed:
            there = calls.recorded(index)
            marked = there is not None and (there.name, there.input) == (self.name, self.input)
        else:
            marked = self._marks
        if not marked:
            return not self._marks
        return await self.claim(scope)


def build_patch(change: str, *, marks: bool) -> PatchCall:
    """The call. Raises `NotInWorkflow`, `InsideStep`."""
    scope = body_scope("perdure.patch" if marks else "perdure.deprecate_patch")
    return PatchCall(scope, Patch(change, marks))
