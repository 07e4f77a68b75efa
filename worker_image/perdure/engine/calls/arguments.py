"""PURE. What callers give to durable calls, checked before a call takes its index."""

from __future__ import annotations

import math
from datetime import timedelta

from perdure.errors import InvalidArgument
from perdure.model.start import DURATION_MAX_SECONDS, Seconds


def length_of_sleep(value: Seconds) -> float:
    """Seconds, never less than zero. Raises `InvalidArgument`."""
    return max(0.0, _seconds("the time to sleep", value))


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
