"""Durable calls for the body of a workflow, beside its steps.

Each takes its place in the run when it is called, not when it is awaited, and its outcome is recorded there, so that
it may stand in `asyncio.gather` and a replay goes the same way. One that waits gives its slot back.
"""

from __future__ import annotations

from typing import Any, TypeVar, overload

from perdure.engine.calls.arguments import (
    decoder_of,
    event_name,
    key_of,
    length_of_sleep,
    limit_of_time,
    run_id_of,
    topic_of,
)
from perdure.engine.calls.events import GetRunEvent, SetRunEvent
from perdure.engine.calls.kinds import build
from perdure.engine.calls.messages import ReceiveMessage, SendMessage
from perdure.engine.calls.sleep import Sleep
from perdure.engine.pending import PendingCall
from perdure.engine.stored import begun
from perdure.model.serialization import Serialization, SerializationName
from perdure.model.start import Seconds

T = TypeVar("T")


def sleep(seconds: Seconds) -> PendingCall[None]:
    """Sleep for a number of seconds, or a timedelta, by the database's clock; zero and less is no time at all.

    The end is fixed when the call is first awaited and recorded: whatever happens to the worker, the run goes on then.
    Longer than about a second it takes no slot. In a step it is `asyncio.sleep`. Raises `NotInWorkflow` outside a run,
    `InvalidArgument` for what is no length of time.
    """
    return build(Sleep(length_of_sleep(seconds)))


def send(
    to: str,
    value: Any,
    topic: str = "",
    key: str | None = None,
    *,
    serialization: Serialization | SerializationName | None = None,
) -> PendingCall[None]:
    """Send a message to a run, which takes it with `recv` of the same topic, in the order in which they were sent.

    Durable when awaited, and sent once however often this run is recovered. `key`: what makes the message the same one
    for its receiver whoever sends it; a second with a key that the receiver has had is none. A run that has ended keeps
    the message unread. Inside a step it is part of the step, sent again when that is tried again. `topic` and `key` are
    1 to 255 printable characters. `serialization`: how the value is written; without it as this run's values are.

    Raises `NotInWorkflow` (use `Client`), `InsideStep` in a sync step (use `run_sync`), `EncodingFailed`,
    `PayloadTooLarge`, `InvalidArgument`; when awaited, `NonExistentWorkflow`, and `InsideStep` in a transaction.
    """
    text, encoding = begun(value, "the message", serialization)
    return build(SendMessage(run_id_of(to), value, text, topic_of(topic), key_of(key), encoding))


@overload
def recv(topic: str = "", timeout: Seconds | None = None) -> PendingCall[Any]: ...
@overload
def recv(topic: str = "", timeout: Seconds | None = None, *, type: type[T]) -> PendingCall[T | None]: ...
@overload
def recv(topic: str = "", timeout: Seconds | None = None, *, type: Any) -> PendingCall[Any]: ...
def recv(topic: str = "", timeout: Seconds | None = None, *, type: Any = Any) -> PendingCall[Any]:
    """Take the oldest message of a topic that was sent to this run; None when there is none in time.

    Each message is taken once, by the step that records it. `timeout`: seconds or a timedelta by the database's clock,
    fixed when the call is first awaited and recorded; None waits without end, zero only looks. Waiting takes no slot.
    `type`: what the message is read as; without, it is plain JSON. One that does not fit is taken all the same, and
    `DecodingFailed` is raised, at each replay. Raises `NotInWorkflow`, `InsideStep`, `InvalidArgument`.
    """
    return build(ReceiveMessage(topic_of(topic), limit_of_time(timeout), decoder_of(type)))


def set_event(
    name: str, value: Any, *, serialization: Serialization | SerializationName | None = None
) -> PendingCall[None]:
    """Publish a value of this run under a name, in place of the one before, for `get_event` and clients.

    Durable when awaited; every value stays in the run's history. Names are 1 to 255 printable characters.
    `serialization` as in `send`. Raises `NotInWorkflow`, `InsideStep`, `EncodingFailed`, `PayloadTooLarge`,
    `InvalidArgument`.
    """
    text, encoding = begun(value, f"the value of event {name}", serialization)
    return build(SetRunEvent(event_name(name), value, text, encoding))


@overload
def get_event(run_id: str, name: str, timeout: Seconds | None = None) -> PendingCall[Any]: ...
@overload
def get_event(run_id: str, name: str, timeout: Seconds | None = None, *, type: type[T]) -> PendingCall[T | None]: ...
@overload
def get_event(run_id: str, name: str, timeout: Seconds | None = None, *, type: Any) -> PendingCall[Any]: ...
def get_event(run_id: str, name: str, timeout: Seconds | None = None, *, type: Any = Any) -> PendingCall[Any]:
    """The value that a run has published under a name, waiting until there is one; None when there is none in time.

    `timeout` and `type` as in `recv`. Also for a run that does not exist yet, or has ended: without a timeout that is a
    wait without end. Waiting takes no slot. Inside a step it is part of the step, which keeps its slot and looks every
    now and then. Raises `NotInWorkflow`, `InsideStep` in a sync step (use `run_sync`), `InvalidArgument`.
    """
    return build(GetRunEvent(run_id_of(run_id), event_name(name), limit_of_time(timeout), decoder_of(type)))
