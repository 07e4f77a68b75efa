"""Durable calls beside steps, as the engine hands them to whoever makes them durable: names, keys, values.

What only concerns the run's own steps (a sleep, an outcome that was read elsewhere) is an ordinary `StepWrite`. The
calls here have an effect outside: each is one statement that writes both, at most once for each (fence, seq).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from perdure.model.rows import OwnedFlags, StepWrite
from perdure.model.start import StartOptions
from perdure.model.states import RunStatus
from perdure.model.streams import AwaitStream, CloseStream, WriteStream


class CallName(StrEnum):
    """Names under which durable calls are recorded; no step can be registered under one that begins like these."""

    SLEEP = "perdure.sleep"
    START = "perdure.start"
    DEBOUNCE = "perdure.debounce"
    RESULT = "perdure.result"
    STATUS = "perdure.status"
    SELECT_WORKFLOW = "perdure.select_workflow"
    SEND = "perdure.send"
    RECV = "perdure.recv"
    SET_EVENT = "perdure.set_event"
    GET_EVENT = "perdure.get_event"
    WRITE_STREAM = "perdure.write_stream"
    CLOSE_STREAM = "perdure.close_stream"
    READ_STREAM = "perdure.read_stream"
    SELECT = "perdure.select"
    CANCEL = "perdure.cancel"
    RESUME = "perdure.resume"
    FORK = "perdure.fork"
    REWIND = "perdure.rewind"
    DELETE = "perdure.delete"
    SET_DELAY = "perdure.set_delay"
    SET_ATTRIBUTES = "perdure.set_attributes"
    GET_WORKFLOW = "perdure.get_workflow"
    LIST_WORKFLOWS = "perdure.list_workflows"
    LIST_STEPS = "perdure.list_steps"
    NOW = "perdure.now"
    PATCH = "perdure.patch"


CHILD_PREFIX = "child:"
"""How the keys of ends of runs begin, of children and others."""


def message_key(topic: str) -> str:
    """Under which a parked run is woken by a message."""
    return f"message:{topic}"


def child_key(run_id: str) -> str:
    """Under which a parked run is woken by the end of another."""
    return f"{CHILD_PREFIX}{run_id}"


def event_key(run_id: str, name: str) -> str:
    """Under which a parked run is woken by an event."""
    return f"event:{run_id}/{name}"


@dataclass(frozen=True, slots=True)
class Start:
    """Create a child run, unless its id or its deduplication id is taken; then the step is SUCCEEDED with
    `step.output`.

    What it does not say is as in the parent: namespace, pool, queue, deadline.
    """

    step: StepWrite
    id: str
    workflow: str
    requires: str
    input: str
    options: StartOptions
    max_run_attempts: int | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Put a message into a run's inbox, once for each key; then the step is SUCCEEDED. Nothing without that run."""

    step: StepWrite
    to: str
    topic: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class PlainSend:
    """Put a message into a run's inbox out of the body of a step, once for each key; no step is recorded of it."""

    to: str
    topic: str
    key: str
    value: str


class Otherwise(StrEnum):
    """What a receive records when there is no message."""

    NOTHING = "nothing"
    WAITING = "waiting"
    """That it waits, until `step.wake_in` has passed; an instant that is recorded already stays."""
    NONE = "none"
    """That none came in time."""


@dataclass(frozen=True, slots=True)
class Receive:
    """Take the oldest message of a topic out of the run's inbox; then the step is SUCCEEDED with it."""

    step: StepWrite
    topic: str
    otherwise: Otherwise


@dataclass(frozen=True, slots=True)
class SetEvent:
    """Set an event of the run; then the step is SUCCEEDED."""

    step: StepWrite
    event: str
    value: str


@dataclass(frozen=True, slots=True)
class AwaitEvent:
    """Have the run woken when this event of that run is set; the step is WAITING."""

    step: StepWrite
    run_id: str
    event: str


@dataclass(frozen=True, slots=True)
class AwaitRuns:
    """Have the run woken when one of these runs ends, which it has not started. No step is written: `step` has the
    number of the call."""

    step: StepWrite
    runs: tuple[str, ...]


OwnCall = Start | Send | Receive | SetEvent | AwaitEvent | AwaitRuns | WriteStream | CloseStream | AwaitStream


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What became of a call. `done`: the step is SUCCEEDED with `output`. Not `done`: see each call.

    `flags.wake_seq` is at most the run's count of wakes when the call looked, never a later one. With a cancel in the
    flags nothing was written.
    """

    flags: OwnedFlags
    done: bool
    output: str | None = None


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How another run stands. `output` and `error` are JSON texts, of a run that has ended."""

    status: RunStatus
    output: str | None = None
    error: str | None = None
    reason: str | None = None
    """Of a cancel."""
    workflow: str = ""
    own: bool = True
    """Whether the asking run has started it: then its end wakes that one, else it has to be asked for (`AwaitRuns`)."""
    deleted: bool = False
    """Whether it is about to be removed: whoever asks for its outcome hears that there is no such run."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Answer to a look at other runs: those that exist, and the asking run's count of wakes (as in `CallAnswer`)."""

    runs: dict[str, RunOutcome]
    wake_seq: int


@dataclass(frozen=True, slots=True)
class Statuses:
    """Answer to the question how other runs stand: those that exist; of them those that the asking run has started
    (`RunOutcome.own`); and its count of wakes."""

    runs: dict[str, RunStatus]
    own: frozenset[str]
    wake_seq: int


@dataclass(frozen=True, slots=True)
class EventValue:
    """Answer to a look at an event: its value as JSON text, None if it is not set; and the count of wakes."""

    value: str | None
    wake_seq: int


@dataclass(frozen=True, slots=True)
class InboxLook:
    """Answer to a look into the own inbox: whether there is a message of the topic; and the count of wakes."""

    there: bool
    wake_seq: int


def is_plain(call: OwnCall) -> bool:
    """Whether the call is part of a step and leaves no row of its own: a graceful cancel lets it be."""
    return isinstance(call, WriteStream | CloseStream) and call.plain
