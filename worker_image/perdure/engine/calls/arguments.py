"""PURE. What callers give to durable calls, checked before a call takes its index."""

from __future__ import annotations

import math
from datetime import timedelta

from perdure.errors import InvalidArgument
from perdure.model.start import DURATION_MAX_SECONDS, Seconds, check_text

TEXT_MAX = 255
"""Longest topic, key and name of an event in characters: with an id beside it, it fits an entry of an index."""

RUN_ID_MAX = 1100
"""Longest id of a run that is looked for, in characters: children of children have longer ones than can be chosen."""


def length_of_sleep(value: Seconds) -> float:
    """Seconds, never less than zero. Raises `InvalidArgument`."""
    return max(0.0, _seconds("the time to sleep", value))


def limit_of_time(value: Seconds | None) -> float | None:
    """Seconds to wait, never less than zero; None: without end. Raises `InvalidArgument`."""
    return None if value is None else max(0.0, _seconds("timeout", value))


def topic_of(value: str) -> str:
    """A topic; the empty one is the default. Raises `InvalidArgument`."""
    if value != "":
        check_text("topic", value, TEXT_MAX)
    return value


def key_of(value: str | None) -> str | None:
    """An idempotency key. Raises `InvalidArgument`."""
    check_text("key", value, TEXT_MAX)
    return value


def event_name(value: str) -> str:
    """The name of an event. Raises `InvalidArgument`."""
    if value is None:
        raise InvalidArgument("an event has a name")
    check_text("the name of an event", value, TEXT_MAX)
    return value


def run_id_of(value: str) -> str:
    """The id of a run. Raises `InvalidArgument`."""
    if value is None:
        raise InvalidArgument("the id of a run is a text, not None")
    check_text("the id of a run", value, RUN_ID_MAX)
    return value


def _seconds(what: str, value: Seconds) -> float:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if -DURATION_MAX_SECONDS < value <= DURATION_MAX_SECONDS else math.inf
    else:
        raise InvalidArgument(f"{what} is a number of seconds or a timedelta, not {value!r}")
    if not abs(seconds) <= DURATION_MAX_SECONDS:
        raise InvalidArgument(f"{what} is at most a hundred years, not {value}")
    return seconds
