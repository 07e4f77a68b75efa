"""What a handle does with its run, beside waiting: `Client`'s verbs, of this run. Taken by `Handle` as its methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.client.management import REASON, carry_out, details_of, steps_of, tell_ready
from perdure.client.messages import Outgoing, send_message
from perdure.model.listing import RunDetails, StepDetails, StepQuery
from perdure.model.management import Cancel, Cut, Delay, Delete, Resume, Rewind, attributes_of, cut_of, fork_of
from perdure.model.serialization import Serialization, SerializationName
from perdure.model.start import Seconds, positive_seconds
from perdure.model.states import CancelMode, RunStatus

if TYPE_CHECKING:
    from perdure.client.handle import Handle

R = TypeVar("R")


async def cancel(
    self: Handle[Any], reason: str = REASON, *, mode: CancelMode = CancelMode.GRACEFUL, cascade: bool = True
) -> RunStatus:
    """Ask for the end of the run; its status afterwards. Durable on return.

    CANCELLED: it has ended. RUNNING: its worker ends it, after the step in progress (GRACEFUL) or at once (IMMEDIATE);
    wait for it. With COMPENSATE it ends as with GRACEFUL, and before that a worker undoes its steps that say how
    (`step(...).undo`); ENQUEUED or WAITING: it is on its way to that. From then on no other cancel has an effect, and
    the status says so. Another final status: it had ended, nothing changed. `cascade`: the runs that it has started,
    and theirs, are cancelled so soon after; without it they go on. Raises `NonExistentWorkflow`.
    """
    [done] = await carry_out(self._database, self._watcher, [self.id], Cancel(reason, mode, cascade))
    return done.status


async def details(self: Handle[Any], *, payloads: bool = True) -> RunDetails:
    """Everything that is known of the run: `Client.get_workflow`."""
    return await details_of(self._database, self.id, payloads)


async def steps(
    self: Handle[Any], *, after: int = -1, limit: int = 100, payloads: bool = True
) -> tuple[StepDetails, ...]:
    """Its recorded steps: `Client.list_steps`."""
    return await steps_of(self._database, StepQuery(self.id, after, limit, payloads))


async def resume(self: Handle[R]) -> Handle[R]:
    """Take the run up again where it stands: `Client.resume`; this handle."""
    await carry_out(self._database, self._watcher, [self.id], Resume())
    return self


async def fork(
    self: Handle[R],
    at: Cut | int | str = Cut.BEGINNING,
    *,
    id: str | None = None,
    children: Mapping[str, str] | None = None,
) -> Handle[R]:
    """Start a new run with the steps that this one has recorded before a cut: `Client.fork`; its handle."""
    [made] = await carry_out(self._database, self._watcher, [self.id], fork_of(id, at, children))
    return self.of(made.id)


async def rewind(self: Handle[R], to: Cut | int | str) -> Handle[R]:
    """Undo the steps of the run, which has ended, from a cut on: `Client.rewind`; this handle."""
    await carry_out(self._database, self._watcher, [self.id], Rewind(cut_of(to)))
    return self


async def delete(self: Handle[Any]) -> None:
    """Remove the run: `Client.delete`."""
    await carry_out(self._database, self._watcher, [self.id], Delete())


async def set_delay(self: Handle[Any], delay: Seconds) -> None:
    """Let the run begin so long from now: `Client.set_delay`."""
    seconds = positive_seconds("delay", delay)
    await carry_out(self._database, self._watcher, [self.id], Delay(seconds))


async def set_attributes(self: Handle[Any], attributes: Mapping[str, Any]) -> None:
    """Set attributes of the run: `Client.set_attributes`."""
    await carry_out(self._database, self._watcher, [self.id], attributes_of(attributes))


async def send(
    self: Handle[Any],
    value: Any,
    topic: str = "",
    key: str | None = None,
    *,
    serialization: Serialization | SerializationName | None = None,
) -> None:
    """Send the run a message: `Client.send`."""
    message = Outgoing(value, topic, key, serialization)
    await tell_ready(self._database, await send_message(self._database, self._serializers, self.id, message))
