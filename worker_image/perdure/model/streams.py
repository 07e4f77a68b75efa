"""Streams of runs, as the engine hands them to whoever makes them durable, and what a reader is told. Pure.

A stream is a list of values under a key of a run. It is only ever added to, until the run closes it; readers name the
offset from which they want to go on, so that none misses or repeats a value. Part of `model.calls`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from perdure.model.rows import StepWrite


def stream_key(run_id: str, key: str) -> str:
    """Under which a parked run is woken when something is written to a stream."""
    return f"stream:{run_id}/{key}"


@dataclass(frozen=True, slots=True)
class WriteStream:
    """Append a value to a stream of the run; then the step is SUCCEEDED. Nothing when the stream is closed.

    `plain`: from inside a step, which stands for it; `step` then only has its index and the number of the write.
    """

    step: StepWrite
    key: str
    value: str
    plain: bool = False


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Close a stream of the run, unless it is closed; then the step is SUCCEEDED. `plain` as in `WriteStream`."""

    step: StepWrite
    key: str
    plain: bool = False


@dataclass(frozen=True, slots=True)
class AwaitStream:
    """Have the run woken when this stream of that run has a value at the offset, or is closed; the step is WAITING."""

    step: StepWrite
    run_id: str
    key: str
    offset: int


class StreamState(Enum):
    """Whether more may come to a stream, beyond what is there."""

    OPEN = auto()
    CLOSED = auto()
    """Its run has closed it."""
    RUN_ENDED = auto()
    """Its run has ended without that."""
    NO_RUN = auto()
    """There is no such run."""


@dataclass(frozen=True, slots=True)
class StreamLook:
    """Answer to a look at a stream: the value at the offset as JSON text, None if there is none; and the count of
    wakes of the asking run."""

    value: str | None
    state: StreamState
    length: int
    wake_seq: int
