"""Streams that are read too early or too late, or written to after their end."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class StreamTimeout(PerdureError):
    """A read of a stream ended without a value: none came in time, or the stream has ended before that offset."""

    code = "PRD-409"


class StreamClosed(PerdureError):
    """A value was to be written to a stream that the run has closed."""

    code = "PRD-410"
