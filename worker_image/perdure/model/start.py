"""What a start may say beside the workflow and its arguments: pure, checked when it is built.

Made by `Workflow.options`, read by the client and by the starts of child runs. Everything not said is the default of
where the run is started.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum, StrEnum
from typing import Any, Literal

from perdure.errors import InvalidArgument
from perdure.model.serialization import Serialization, SerializationName, chosen

Seconds = float | timedelta
"""A length of time: a number of seconds, or a timedelta."""

ID_MAX = 255
"""Longest id of a run in characters: fits every index and leaves room for the `-12` of children's children."""

NAME_MAX = 63
"""Longest name of a queue, pool or namespace: that of the custom resources, which are Kubernetes' labels."""

PARTITION_KEY_MAX = 255
"""Longest partition key in characters: long enough for a tenant's address, short enough for an index."""

DEDUPLICATION_ID_MAX = 255
"""Longest deduplication id in characters: as the id of a run."""

ATTRIBUTES_MAX_BYTES = 16 * 1024
"""Attributes of a run as JSON: they are indexed and listed, so they are no place for payloads."""

PRIORITY_MAX = 2**31 - 1
"""The column is an integer of four bytes. Lower goes first; 100 is the default."""

RUN_ATTEMPTS_MAX = 100
"""As in a Workflow's spec.maxRunAttempts."""

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")

DURATION_MAX_SECONDS = 100 * 365 * 86400.0
"""A hundred years: beyond, sums with an instant leave what clocks and databases can say."""


class NoTimeout(Enum):
    """The type of `NO_TIMEOUT`."""

    NO_TIMEOUT = "none"

    def __repr__(self) -> str:
        return "NO_TIMEOUT"


NO_TIMEOUT = NoTimeout.NO_TIMEOUT
"""A run without a deadline, even where its parent has one or its workflow has a timeout."""

Timeout = Seconds | NoTimeout


class ReusePolicy(StrEnum):
    """What a start does whose id, or deduplication id, is that of a run which is there."""

    RETURN_EXISTING = "return-existing"
    """It gives that run."""
    REJECT = "reject"
    """It is refused."""
    RERUN_FAILED = "rerun-failed"
    """It gives that run; one that has failed is run again, its finished steps are kept."""


Reuse = ReusePolicy | Literal["return-existing", "reject", "rerun-failed"]
OnDuplicate = ReusePolicy | Literal["return-existing", "reject"]


@dataclass(frozen=True, slots=True)
class StartOptions:
    """How a run is started. None = not said. Raises `InvalidArgument` for a value that cannot be used.

    `id`: the run's id, which makes the start idempotent. `reuse`: what to do when the id is in use. `queue`, `pool`:
    where workers look for it. `priority`: 1 and up, lowest first. `timeout`: how long it may take from its first
    claim, `NO_TIMEOUT` for ever. `delay`: how long it is not claimable after the start. `partition_key`: what it shares
    a queue's fairness and limits with. `deduplication_id`: held in its queue until it has ended; `on_duplicate`: what
    to do when another run holds it. `attributes`: a JSON object that is recorded with it. `serialization`: how its
    values are written.
    """

    id: str | None = None
    queue: str | None = None
    pool: str | None = None
    priority: int | None = None
    timeout: Timeout | None = None
    delay: Seconds | None = None
    partition_key: str | None = None
    reuse: Reuse | None = None
    deduplication_id: str | None = None
    on_duplicate: OnDuplicate | None = None
    attributes: Mapping[str, Any] | None = None
    serialization: Serialization | SerializationName | None = None

    def __post_init__(self) -> None:
        check_text("id", self.id, ID_MAX)
        check_text("queue", self.queue, NAME_MAX)
        check_text("pool", self.pool, NAME_MAX)
        check_text("partition_key", self.partition_key, PARTITION_KEY_MAX)
        check_text("deduplication_id", self.deduplication_id, DEDUPLICATION_ID_MAX)
        if self.priority is not None:
            _check_priority(self.priority)
        if self.timeout is not None and not isinstance(self.timeout, NoTimeout):
            positive_seconds("timeout", self.timeout)
        if self.delay is not None:
            positive_seconds("delay", self.delay)
        _check_policy("reuse", self.reuse, list(ReusePolicy))
        _check_policy("on_duplicate", self.on_duplicate, [ReusePolicy.RETURN_EXISTING, ReusePolicy.REJECT])
        if self.attributes is not None:
            attributes_text(self.attributes)
        chosen(self.serialization)

    def check_whole(self) -> None:
        """Raises `InvalidArgument` for options that do not go together. Asked when a start is made of them, since they
        may be said one after the other."""
        if self.reuse in (ReusePolicy.REJECT, ReusePolicy.RERUN_FAILED) and self.id is None:
            raise InvalidArgument(f"reuse={str(self.reuse)!r} needs an id: a new id is never in use")
        if self.on_duplicate is not None and self.deduplication_id is None:
            raise InvalidArgument("on_duplicate needs a deduplication_id: without one there are no duplicates")

    @property
    def choice(self) -> Serialization | None:
        """How values of the run are written, if the start says so."""
        return chosen(self.serialization)

    def check_run(self) -> None:
        """Raises `InvalidArgument` for options of a start that is waited for at once."""
        if self.queue is not None:
            raise InvalidArgument(
                f"run(…) takes no queue ({self.queue}): it starts at once and waits; use start(…), then result()"
            )

    def said(self) -> dict[str, Any]:
        """What was said, as JSON values: what a child's start records of its options, so that a new option with a
        default changes no input that is recorded. For the engine."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: _plain(value) for name, value in values.items() if value is not None}


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


def seconds_of(value: Seconds | NoTimeout | None) -> float | None:
    """The seconds of a length of time that was checked; None for none."""
    if value is None or isinstance(value, NoTimeout):
        return None
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


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


def attributes_text(attributes: Mapping[str, Any]) -> str:
    """Attributes as JSON text. Raises `InvalidArgument` for what is no JSON object, or too large."""
    if not isinstance(attributes, Mapping):
        raise InvalidArgument(f"attributes are a dict with texts as keys, not {attributes!r}")
    for key in attributes:
        check_text("the name of an attribute", "" if key is None else key, ID_MAX)
    try:
        text = json.dumps(dict(attributes), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"attributes cannot be written as JSON: {error}") from error
    if len(text) > ATTRIBUTES_MAX_BYTES:
        raise InvalidArgument(f"attributes are {len(text)} bytes as JSON, at most {ATTRIBUTES_MAX_BYTES}")
    if _NUL.search(text) or ("\\ud" in text and not _whole(text)):
        raise InvalidArgument("attributes hold a NUL character or half a surrogate pair, which Postgres cannot store")
    return text


def check_run_attempts(value: int | None) -> int | None:
    """How often the body of a run may fail in all. Raises `InvalidArgument`."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= RUN_ATTEMPTS_MAX:
        raise InvalidArgument(f"max_run_attempts is a whole number from 1 to {RUN_ATTEMPTS_MAX}, not {value!r}")
    return value


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


def _check_policy(name: str, value: object, allowed: list[ReusePolicy]) -> None:
    if value is not None and value not in allowed:
        raise InvalidArgument(f"{name} is one of {', '.join(allowed)}, not {value!r}")


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, NoTimeout):
        return value.value
    if isinstance(value, StrEnum):
        return str(value)
    return dict(value) if isinstance(value, Mapping) else value


def _whole(text: str) -> bool:
    """Whether no text in this JSON has half a surrogate pair."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
