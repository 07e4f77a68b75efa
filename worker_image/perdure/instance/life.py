"""PURE. The life of an instance: one enum and one table."""

from __future__ import annotations

from enum import StrEnum


class Life(StrEnum):
    """Where an instance is in its life."""

    NEW = "is not launched yet"
    LAUNCHING = "is being launched"
    LAUNCHED = "is launched"
    STOPPING = "is being shut down"
    STOPPED = "has been shut down"


NEXT: dict[Life, frozenset[Life]] = {
    Life.NEW: frozenset({Life.LAUNCHING, Life.STOPPED}),
    Life.LAUNCHING: frozenset({Life.LAUNCHED, Life.NEW}),  # NEW: the launch has failed and may be tried again
    Life.LAUNCHED: frozenset({Life.STOPPING}),
    Life.STOPPING: frozenset({Life.STOPPED}),
    Life.STOPPED: frozenset(),
}

OPEN = frozenset({Life.LAUNCHED, Life.STOPPING})
"""Where calls are made. While it is being shut down, runs still end that somebody waits for."""
