"""Where in the user's code a durable call is made: file, line and text, for people who look at a difference."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from types import FrameType

OWN = "perdure"
DEEPEST = 60
"""Frames that are looked at: the own ones between a call and whoever made it are a dozen."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of code as it is now; lines count from 1."""

    path: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} in {self.function}: {self.text}"


def calling_line() -> SourceLine | None:
    """The line outside of this package that has led here; None for the body of declared steps."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(DEEPEST):
        if frame is None:
            return None
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in (OWN, "asyncio", "contextlib"):
            return _line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)
        frame = frame.f_back
    return None


def line_of_error(error: BaseException) -> SourceLine | None:
    """The last line outside of this package in an error's traceback."""
    found: SourceLine | None = None
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_globals.get("__name__", "").partition(".")[0] != OWN:
            found = _line(frame.f_code.co_filename, trace.tb_lineno, frame.f_code.co_qualname)
        trace = trace.tb_next
    return found


def _line(path: str, number: int, function: str) -> SourceLine:
    return SourceLine(path, number, function, linecache.getline(path, number).strip())
