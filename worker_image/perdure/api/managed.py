"""What a run does with another one that it holds: the calls of `api.management`, of that run. Taken by `RunHandle` as
its methods; each takes its place when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.api.calls import send as send_to
from perdure.engine.calls.kinds import build, start
from perdure.engine.calls.management import (
    REASON,
    attributed,
    cancel_of,
    delay_of,
    delete_of,
    details_of,
    forked,
    resume_of,
    rewind_of,
    steps_of,
)
from perdure.engine.pending import PendingCall, PendingStart
from perdure.model.listing import RunDetails, StepDetails, StepQuery
from perdure.model.management import Cut
from perdure.model.serialization import Serialization, SerializationName
from perdure.model.start import Seconds
from perdure.model.states import CancelMode, RunStatus

if TYPE_CHECKING:
    from perdure.api.handles import RunHandle

R = TypeVar("R")


def cancel(
    self: RunHandle[Any], reason: str = REASON, *, mode: CancelMode = CancelMode.GRACEFUL, cascade: bool = True
) -> PendingCall[RunStatus]:
    """Ask for the end of the run: `perdure.cancel`."""
    return build(cancel_of(self.id, reason, mode, cascade))


def resume(self: RunHandle[R]) -> PendingStart[RunHandle[R]]:
    """Take the run up again where it stands: `perdure.resume`."""
    return start(resume_of(self.id, self.of))


def fork(
    self: RunHandle[R],
    at: Cut | int | str = Cut.BEGINNING,
    *,
    id: str | None = None,
    children: Mapping[str, str] | None = None,
) -> PendingStart[RunHandle[R]]:
    """Start a run with the steps that this one has recorded before a cut: `perdure.fork`."""
    return start(forked(self.id, at, id, children, self.of))


def rewind(self: RunHandle[R], to: Cut | int | str) -> PendingStart[RunHandle[R]]:
    """Undo the steps of the run, which has ended, from a cut on: `perdure.rewind`."""
    return start(rewind_of(self.id, to, self.of))


def delete(self: RunHandle[Any]) -> PendingCall[None]:
    """Remove the run: `perdure.delete`."""
    return build(delete_of(self.id))


def set_delay(self: RunHandle[Any], delay: Seconds) -> PendingCall[None]:
    """Let the run begin so long from now: `perdure.set_delay`."""
    return build(delay_of(self.id, delay))


def set_attributes(self: RunHandle[Any], attributes: Mapping[str, Any]) -> PendingCall[None]:
    """Set attributes of the run: `perdure.set_attributes`."""
    return build(attributed(self.id, attributes))


def details(self: RunHandle[Any], *, payloads: bool = True) -> PendingCall[RunDetails]:
    """What is known of the run: `perdure.get_workflow`."""
    return build(details_of(self.id, payloads))


def steps(
    self: RunHandle[Any], *, after: int = -1, limit: int = 100, payloads: bool = True
) -> PendingCall[tuple[StepDetails, ...]]:
    """Its recorded steps: `perdure.list_steps`."""
    return build(steps_of(StepQuery(self.id, after, limit, payloads)))


def send(
    self: RunHandle[Any],
    value: Any,
    topic: str = "",
    key: str | None = None,
    *,
    serialization: Serialization | SerializationName | None = None,
) -> PendingCall[None]:
    """Send the run a message: `perdure.send`."""
    return send_to(self.id, value, topic, key, serialization=serialization)
