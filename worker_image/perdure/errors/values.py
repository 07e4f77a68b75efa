"""Values that cannot be stored, or not read back."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class EncodingFailed(PerdureError):
    """A value cannot be written as JSON, or cannot be stored (NUL, lone surrogate, NaN, too large)."""

    code = "PRD-401"


class DecodingFailed(PerdureError):
    """A stored value does not fit the type that the code now asks for."""

    code = "PRD-402"


class PayloadTooLarge(EncodingFailed):
    """A value is over the size limit of a payload."""

    code = "PRD-403"


class UnknownSerialization(PerdureError):
    """A value was written by a serializer or codec that this process does not have; `name` names it."""

    code = "PRD-407"

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name
