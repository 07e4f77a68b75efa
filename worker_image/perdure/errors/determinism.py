"""Bodies that may not do the same thing twice, and races that would not."""

from __future__ import annotations

from perdure.errors.arguments import InvalidArgument
from perdure.errors.base import PerdureError


class NotDeterministic(PerdureError):
    """The body gave a durable call up (a limit of time, a race of its own) and went on: a replay might not."""

    code = "PRD-315"


class SelectMisused(InvalidArgument):
    """A select has fewer than two branches, or one that cannot be raced. Nothing was begun, no index is taken."""

    code = "PRD-316"
