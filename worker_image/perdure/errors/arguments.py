"""What callers give: the base of every refusal of an argument or an option."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class InvalidArgument(PerdureError):
    """An argument of a call is out of its range: an empty or too long id, a length of time of zero."""

    code = "PRD-520"
