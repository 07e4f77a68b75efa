"""PURE. What callers give to durable calls, checked before a call takes its index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from perdure.engine.codec import Decoder
from perdure.errors import InvalidArgument, RegistrationError
from perdure.model.start import DURATION_MAX_SECONDS, Seconds, check_text

TEXT_MAX = 255
"""Longest topic, key and name of an event in characters: with an id beside it, it fits an entry of an index."""

OFFSET_MAX = 2**63 - 2
"""Largest offset of a stream: what Postgres can count."""

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
    if value is None:
        raise InvalidArgument("topic is a text, not None: nothing would ever be received on it")
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


def change_name(value: str) -> str:
    """The name of a change of a body. Raises `InvalidArgument`."""
    if value is None:
        raise InvalidArgument("a patch has a name")
    check_text("the name of a patch", value, TEXT_MAX)
    return value


def stream_name(value: str) -> str:
    """The key of a stream. Raises `InvalidArgument`."""
    if value is None:
        raise InvalidArgument("a stream has a key")
    check_text("the key of a stream", value, TEXT_MAX)
    return value


def offset_of(value: int) -> int:
    """An offset of a stream. Raises `InvalidArgument`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= OFFSET_MAX:
        raise InvalidArgument(f"an offset is a whole number from 0 to {OFFSET_MAX}, not {value!r}")
    return value


def decoder_of(hint: Any) -> Decoder | None:
    """What reads values as this type; None for plain JSON. Raises `InvalidArgument`."""
    if hint is Any:
        return None
    if isinstance(hint, str):
        raise InvalidArgument(f"type is a type, not its name {hint!r}")
    try:
        return _cached_decoder(hint)
    except TypeError:
        return _decoder(hint)  # a type that cannot be a key of a dictionary


@lru_cache(maxsize=256)
def _cached_decoder(hint: Any) -> Decoder:
    return _decoder(hint)


def _decoder(hint: Any) -> Decoder:
    try:
        return Decoder(hint, "type")
    except RegistrationError as error:
        raise InvalidArgument(error.message) from error


def run_id_of(value: str) -> str:
    """The id of a run. Raises `InvalidArgument`."""
    if value is None:
        raise InvalidArgument("the id of a run is a text, not None")
    check_text("the id of a run", value, RUN_ID_MAX)
    return value


def run_ids_of(values: Sequence[str]) -> tuple[str, ...]:
    """The ids of several runs, each once. Raises `InvalidArgument`."""
    ids = tuple(run_id_of(value) for value in values)
    if not ids:
        raise InvalidArgument("no run is given to wait for")
    if len(set(ids)) < len(ids):
        twice = next(each for number, each in enumerate(ids) if each in ids[:number])
        raise InvalidArgument(f"run {twice} is given twice")
    return ids


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
