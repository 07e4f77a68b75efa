"""How instants, texts and foreign JSON values become something that the API server takes. Pure; used by the
projection, where nothing may raise whatever a row holds."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import Any, NoReturn, overload

from perdure.model.outcome import ErrorRecord

CUT_FIELDS = re.compile(r'[{,]\s*"(type|name|message|code|step)":\s*("(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*")')
"""Complete text fields in the beginning of a stored error; it is written as ASCII, without control characters."""

_WRITTEN_BY = re.compile(r"!([a-z0-9_.-]{1,63}):")

MAX_SHOWN_DEPTH = 32
"""Deepest nesting of a value that is shown: `managedFields` describes each level once more."""

MAX_SHOWN_INTEGER = 2**63 - 1
"""Larger numbers become floats in the API server, and wrong; beyond its floats it refuses the whole status."""


@overload
def instant(at: datetime, *, fraction: bool = True) -> str: ...
@overload
def instant(at: datetime | None, *, fraction: bool = True) -> str | None: ...
def instant(at: datetime | None, *, fraction: bool = True) -> str | None:
    """RFC 3339 in UTC, to the millisecond or the second. A time without a zone is a mistake of the caller."""
    if at is None:
        return None
    if at.tzinfo is None:
        raise ValueError("an instant needs a time zone")
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds" if fraction else "seconds") + "Z"


@overload
def shorten(text: str, limit: int) -> str: ...
@overload
def shorten(text: str | None, limit: int) -> str | None: ...
def shorten(text: str | None, limit: int) -> str | None:
    """At most `limit` characters, an ellipsis at the end if any were lost; what is no valid text becomes `?`."""
    if text is None:
        return None
    valid = text.encode("utf-8", "replace").decode("utf-8")
    return valid if len(valid) <= limit else valid[: limit - 1] + "…"


def json_bytes(value: Any) -> int:
    """Length as compact JSON in UTF-8."""
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace"))


def read_error(text: str) -> ErrorRecord:
    """A stored error. The store sends only the beginning of a long one: what can be read of that is still shown."""
    if text.startswith("{"):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            # Of each the first: further in stand those of the attempts behind it.
            found = {key: json.loads(value) for key, value in reversed(CUT_FIELDS.findall(text))}
            name = found.pop("name", "Error")  # as the portable form calls the type
            found.setdefault("type", name)
            return ErrorRecord(**{"type": "Error", "message": "the message is too long to be shown", **found})
    return ErrorRecord.from_json(text)


def showable(text: str | None, size: int, limit: int) -> tuple[Any, bool]:
    """A stored JSON text as a value, and whether it can be shown: small, shallow, and numbers that survive."""
    if text is None or size > limit:
        return None, False
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None, False
    return (value, True) if _plain(value, MAX_SHOWN_DEPTH) else (None, False)


def written_by(text: str | None) -> str | None:
    """The name of the serializer or codec that has written this text, which then is no JSON; None for JSON."""
    found = None if text is None else _WRITTEN_BY.match(text)
    return None if found is None else found[1]


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _plain(value: Any, depth: int) -> bool:
    if depth < 0:
        return False
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) <= MAX_SHOWN_INTEGER
    if isinstance(value, str):
        return not any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, dict):
        return all(_plain(key, 0) and _plain(item, depth - 1) for key, item in value.items())
    return all(_plain(item, depth - 1) for item in value) if isinstance(value, list) else True
