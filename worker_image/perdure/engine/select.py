"""The call of `perdure.select`: several durable calls of which the first to end wins.

Built by `perdure.api.concurrency`; carried out by `Race` in a run, and here where nothing is recorded. The branches
have taken their indexes when they were built; the select takes its own after them, when it is called. From then on they
belong to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.engine.calls.alone import AloneCall
from perdure.engine.calls.kinds import DurableCall
from perdure.engine.context import Scope, current_scope
from perdure.engine.pending import PendingCall, PendingStart, PendingStep
from perdure.errors import SelectMisused
from perdure.model.calls import CallName

if TYPE_CHECKING:
    from perdure.engine.execute import Execution

R = TypeVar("R")

NO_INPUT = "[]"
"""Recorded input of a select. The list of branches is not in it: a winner that is not among them any more is told as
such, and the winner's own row compares what it was called with."""


@dataclass(frozen=True, slots=True)
class Selected(Generic[R]):
    """Which branch won, and its result. `index` counts the branches from 0; `name` is None where they have none."""

    name: str | None
    index: int
    value: R


class PendingSelect(PendingCall[Selected[Any]]):
    """A race of durable calls, awaited once, where it was built."""

    __slots__ = ("branches", "names")

    def __init__(
        self,
        scope: Scope | None,
        branches: Sequence[PendingCall[Any]],
        names: Sequence[str] | None,
        step_id: int | None,
    ) -> None:
        super().__init__(scope, CallName.SELECT, step_id, NO_INPUT)
        self.branches = branches
        self.names = names

    def won(self, position: int, value: Any) -> Selected[Any]:
        """The answer when this branch has won with this result."""
        return Selected(None if self.names is None else self.names[position], position, value)

    def _durably(self, execution: Execution) -> Coroutine[Any, Any, Selected[Any]]:
        return execution.perform_select(self)

    def _plainly(self, scope: Scope | None) -> Coroutine[Any, Any, Selected[Any]]:
        return _race(self, scope)


def build_select(branches: Sequence[PendingCall[Any]], names: Sequence[str] | None) -> PendingSelect:
    """The race of these calls. Raises `SelectMisused`, `StepBuiltElsewhere`, and then takes neither them nor an index.

    Outside a run and in a step nothing is recorded of it.
    """
    _check(branches)
    for branch in branches:
        branch.check_place()
    for branch in branches:
        branch.take()
    scope = current_scope.get()
    if scope is not None and scope.index is None:
        return scope.execution.select(scope, branches, names)
    return PendingSelect(scope, branches, names, None)


def _check(branches: Sequence[PendingCall[Any]]) -> None:
    if len(branches) < 2:
        raise SelectMisused(f"a select has two branches or more, not {len(branches)}")
    for branch in branches:
        if not isinstance(branch, PendingCall):
            raise SelectMisused(
                f"each branch of a select is one durable call, not {type(branch).__name__}: a coroutine would take the "
                "indexes of its calls in the order in which they happen to begin"
            )
        if isinstance(branch, PendingStart):
            raise SelectMisused(f"{branch.name} is no branch of a select: a run would be started or not as it goes")
        if isinstance(branch, AloneCall):
            raise SelectMisused(f"{branch.name} is no branch of a select: it is awaited on its own")
        if isinstance(branch, PendingStep) and branch.definition.transaction is not None:
            raise SelectMisused(
                f"transaction {branch.name} is no branch of a select: what is committed would depend on how it goes"
            )
        if not isinstance(branch, PendingStep | DurableCall):
            raise SelectMisused(f"{branch.name} is no branch of a select: race its own calls instead")
    if len({id(branch) for branch in branches}) < len(branches):
        raise SelectMisused("the same call is a branch of a select only once")


async def _race(call: PendingSelect, scope: Scope | None) -> Selected[Any]:
    """Where nothing is recorded: plain calls, of which the first to end wins and the others are cancelled."""
    tasks = [asyncio.ensure_future(branch._plainly(scope)) for branch in call.branches]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        position = next(position for position, task in enumerate(tasks) if task.done())
    finally:
        await give_up(tasks)
    return call.won(position, tasks[position].result())


async def give_up(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel those that still run, and wait until all have ended. What they raise is nobody's news."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)
    for task in tasks:
        if not task.cancelled():
            task.exception()
