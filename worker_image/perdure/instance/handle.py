"""What `workflow.start(…)` gives outside of runs: the handle of a child there, and that of a client here."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from perdure.api.handles import RunHandle
from perdure.client.handle import Handle
from perdure.client.management import REASON as FROM_OUTSIDE
from perdure.engine.calls.management import REASON
from perdure.engine.context import current_scope
from perdure.engine.pending import PendingCall, PendingStart
from perdure.engine.plain import PlainCall, PlainStart
from perdure.engine.registry import WorkflowDefinition
from perdure.model.calls import CallName
from perdure.model.listing import RunDetails, StepDetails
from perdure.model.management import Cut
from perdure.model.serialization import Serialization, SerializationName
from perdure.model.start import Seconds
from perdure.model.states import CancelMode, RunStatus

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
        return super().result() if _in_run() else PlainCall(CallName.RESULT, self.outside.result)

    def status(self) -> PendingCall[RunStatus]:
        """How it stands now."""
        return super().status() if _in_run() else PlainCall(CallName.STATUS, self.outside.status)

    def cancel(
        self, reason: str = REASON, *, mode: CancelMode = CancelMode.GRACEFUL, cascade: bool = True
    ) -> PendingCall[RunStatus]:
        """As `Handle.cancel`."""
        if _in_run():
            return super().cancel(reason, mode=mode, cascade=cascade)
        said = FROM_OUTSIDE if reason == REASON else reason
        return PlainCall(CallName.CANCEL, lambda: self.outside.cancel(said, mode=mode, cascade=cascade))

    def resume(self) -> PendingStart[RunHandle[R]]:
        """As `Handle.resume`."""
        return super().resume() if _in_run() else self._gives(CallName.RESUME, self.outside.resume)

    def fork(
        self,
        at: Cut | int | str = Cut.BEGINNING,
        *,
        id: str | None = None,
        children: Mapping[str, str] | None = None,
    ) -> PendingStart[RunHandle[R]]:
        """As `Handle.fork`."""
        if _in_run():
            return super().fork(at, id=id, children=children)
        return self._gives(CallName.FORK, lambda: self.outside.fork(at, id=id, children=children))

    def rewind(self, to: Cut | int | str) -> PendingStart[RunHandle[R]]:
        """As `Handle.rewind`."""
        return super().rewind(to) if _in_run() else self._gives(CallName.REWIND, lambda: self.outside.rewind(to))

    def delete(self) -> PendingCall[None]:
        """As `Handle.delete`."""
        return super().delete() if _in_run() else PlainCall(CallName.DELETE, self.outside.delete)

    def set_delay(self, delay: Seconds) -> PendingCall[None]:
        """As `Handle.set_delay`."""
        if _in_run():
            return super().set_delay(delay)
        return PlainCall(CallName.SET_DELAY, lambda: self.outside.set_delay(delay))

    def set_attributes(self, attributes: Mapping[str, Any]) -> PendingCall[None]:
        """As `Handle.set_attributes`."""
        if _in_run():
            return super().set_attributes(attributes)
        return PlainCall(CallName.SET_ATTRIBUTES, lambda: self.outside.set_attributes(attributes))

    def send(
        self,
        value: Any,
        topic: str = "",
        key: str | None = None,
        *,
        serialization: Serialization | SerializationName | None = None,
    ) -> PendingCall[None]:
        """As `Handle.send`."""
        if _in_run():
            return super().send(value, topic, key, serialization=serialization)
        return PlainCall(CallName.SEND, lambda: self.outside.send(value, topic, key, serialization=serialization))

    def details(self, *, payloads: bool = True) -> PendingCall[RunDetails]:
        """As `Handle.details`."""
        if _in_run():
            return super().details(payloads=payloads)
        return PlainCall(CallName.GET_WORKFLOW, lambda: self.outside.details(payloads=payloads))

    def steps(
        self, *, after: int = -1, limit: int = 100, payloads: bool = True
    ) -> PendingCall[tuple[StepDetails, ...]]:
        """As `Handle.steps`."""
        if _in_run():
            return super().steps(after=after, limit=limit, payloads=payloads)
        return PlainCall(CallName.LIST_STEPS, lambda: self.outside.steps(after=after, limit=limit, payloads=payloads))

    def _gives(self, name: str, make: Callable[[], Coroutine[Any, Any, Handle[R]]]) -> PendingStart[RunHandle[R]]:
        async def given() -> RunHandle[R]:
            return LaunchedHandle(await make(), self._definition)

        return PlainStart(name, given)


def _in_run() -> bool:
    return current_scope.get() is not None
