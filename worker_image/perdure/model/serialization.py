"""PURE. How the values of a run, or a single one, are to be written: what may be chosen."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from perdure.errors import InvalidArgument


class Serialization(StrEnum):
    """How values are written. Reading never needs it: each stored value says how it was written."""

    DEFAULT = "default"
    """As where it is said: what the workflow is registered with, in a body what its run has, else as configured."""
    PORTABLE = "portable"
    """JSON without anything that only Python can write or read exactly, whatever is configured: no codec either, so
    nothing of it is compressed, encrypted or kept elsewhere."""
    NATIVE = "native"
    """Perdure's own typed JSON, whatever is configured: no codec either."""


SerializationName = Literal["default", "portable", "native"]

NUMBERS: dict[Serialization | None, int | None] = {None: None, Serialization.PORTABLE: 1, Serialization.NATIVE: 2}
"""As the column says it; null is what most runs have."""

_BY_NUMBER = {number: serialization for serialization, number in NUMBERS.items()}


def chosen(value: Serialization | SerializationName | None) -> Serialization | None:
    """The choice; None where there is none. Raises `InvalidArgument`."""
    if value is None:
        return None
    try:
        found = Serialization(value)
    except ValueError:
        raise InvalidArgument(f"serialization is one of {', '.join(Serialization)}, not {value!r}") from None
    return None if found is Serialization.DEFAULT else found


def from_number(number: int | None) -> Serialization | None:
    """From the column; a number that is not known counts as none, since reading never needs it."""
    return _BY_NUMBER.get(number)
