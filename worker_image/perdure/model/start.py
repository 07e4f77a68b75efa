"""What a start may say beside the workflow and its arguments: pure, checked when it is built.

Made by `Workflow.options`, read by the client and by the starts of child runs. Everything not said is the default of
where the run is started.
"""

from __future__ import annotations

import math
import secrets
import time
import uuid
from dataclasses import dataclass
from datetime import timedelta

from perdure.errors import InvalidArgument

Seconds = float | timedelta
"""A length of time: a number of seconds, or a timedelta."""

ID_MAX = 255
"""Longest id of a run in characters: fits every index and leaves room for the `-12` of children's children."""

NAME_MAX = 63
"""Longest name of a queue, pool or namespace: that of the custom resources, which are Kubernetes' labels."""

PARTITION_KEY_MAX = 255
"""Longest partition key in characters: long enough for a tenant's address, short enough for an index."""

PRIORITY_MAX = 2**31 - 1
"""The column is an integer of four bytes. Lower goes first; 100 is the default."""

DURATION_MAX_SECONDS = 100 * 365 * 86400.0
"""A hundred years: beyond, sums with an instant leave what clocks and databases can say."""


@dataclass(frozen=True, slots=True)
class StartOptions:
    """How a run is started. None = not said. Raises `InvalidArgument` for a value that cannot be used.

    `id`: the run's id, which makes the start idempotent. `queue`, `pool`: where workers look for it. `priority`: 1
    and up, lowest first. `timeout`: how long it may take from its first claim. `delay`: how long it is not claimable
    after the start. `partition_key`: what it shares a queue's fairness and limits with.
    """

    id: str | None = None
    queue: str | None = None
    pool: str | None = None
    priority: int | None = None
    timeout: Seconds | None = None
    delay: Seconds | None = None
    partition_key: str | None = None

    def __post_init__(self) -> None:
        check_text("id", self.id, ID_MAX)
        check_text("queue", self.queue, NAME_MAX)
        check_text("pool", self.pool, NAME_MAX)
        check_text("partition_key", self.partition_key, PARTITION_KEY_MAX)
        if self.priority is not None:
            _check_priority(self.priority)
        for name in ("timeout", "delay"):
            value = getattr(self, name)
            if value is not None:
                positive_seconds(name, value)


def positive_seconds(name: str, value: Seconds) -> float:
    """A length of time in seconds. Raises `InvalidArgument` unless it is longer than zero and ends within a century."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise InvalidArgument(f"{name} is a number of seconds or a timedelta, not {value!r}")
    if not (math.isfinite(seconds) and 0 < seconds <= DURATION_MAX_SECONDS):
        raise InvalidArgument(f"{name} must be longer than zero and at most a hundred years, not {value}")
    return seconds


def check_text(name: str, value: str | None, longest: int) -> None:
    """Raises `InvalidArgument` unless the value is None or 1 to `longest` printable characters.

    What is not printable (NUL, line ends, half a surrogate pair) could not be stored, or not be told from another.
    """
    if value is None:
        return
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} is a text, not {value!r}")
    if not value:
        raise InvalidArgument(f"{name} must not be empty")
    if len(value) > longest:
        raise InvalidArgument(f"{name} has {len(value)} characters, at most {longest} are allowed")
    if not value.isprintable():
        raise InvalidArgument(f"{name} holds a character that is not printable: {value!r}")


def new_run_id() -> str:
    """A random id whose beginning rises with time, so that new rows lie side by side in the index: UUID version 7.

    Python has it from 3.14 on only. The time in it comes from this machine's clock and decides nothing.
    """
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (2**48 - 1)) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def _check_priority(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"priority is a whole number, not {value!r}")
    if not 1 <= value <= PRIORITY_MAX:
        raise InvalidArgument(f"priority must be 1 to {PRIORITY_MAX} (lower goes first), not {value}")
