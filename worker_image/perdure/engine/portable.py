"""What a portable value must not have: what others read as something else, or cannot write.

Typed JSON is JSON already: dates are ISO 8601, bytes base64, sets and tuples lists, decimals and UUIDs texts. Two
things in it only Python gets back as they were: keys that are no texts, and whole numbers that no double holds exactly.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json

from perdure.errors import EncodingFailed

LARGEST = 2**53 - 1
"""Largest whole number that every JSON reader gets exactly."""

_MANY = (list, tuple, set, frozenset, deque)


def refuse_foreign(value: Any, text: str, what: str) -> None:
    """Raises `EncodingFailed` unless the value, of which `text` is the JSON, is portable."""
    _check_keys(value, what)
    _check_numbers(from_json(text), what)


def _check_keys(value: Any, what: str) -> None:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise EncodingFailed(
                    f"{what} is to be portable and has the key {key!r}: in JSON keys are texts, make it one yourself"
                )
        parts = list(value.values())
    elif isinstance(value, _MANY):
        parts = list(value)
    elif isinstance(value, BaseModel):
        parts = [*value.__dict__.values(), *(value.__pydantic_extra__ or {}).values()]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    else:
        return
    for part in parts:
        _check_keys(part, what)


def _check_numbers(value: Any, what: str) -> None:
    if isinstance(value, int) and abs(value) > LARGEST:
        raise EncodingFailed(
            f"{what} is to be portable and has the number {str(value)[:40]}, which other languages read as another: "
            "whole numbers go to 2**53 - 1, pass it as a text"
        )
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_numbers(part, what)
