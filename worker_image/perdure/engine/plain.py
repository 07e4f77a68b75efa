"""A call outside of runs that has the type of a durable one: nothing is recorded, and it has no place."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.engine.pending import PendingCall, PendingStart

if TYPE_CHECKING:
    from perdure.engine.context import Scope
    from perdure.engine.execute import Execution

R = TypeVar("R")


class PlainCall(PendingCall[R], Generic[R]):
    """Does what it was made with when it is awaited, outside of runs."""

    __slots__ = ("_make",)

    def __init__(self, name: str, make: Callable[[], Coroutine[Any, Any, R]]) -> None:
        super().__init__(None, name, None, "")
        self._make = make

    def _durably(self, execution: Execution) -> Coroutine[Any, Any, R]:
        raise AssertionError("it has no place in a run")

    def _plainly(self, scope: Scope | None) -> Coroutine[Any, Any, R]:
        return self._make()


class PlainStart(PlainCall[R], PendingStart[R]):
    """One that gives the handle of a run which it has started, anew or again."""

    __slots__ = ()
