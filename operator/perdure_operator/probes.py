"""What the kubelet is told: alive means that the loop runs and the work moves, ready means that there is a schema.

Never asks the database or the API server: when one of them is away, a restart of the operator would not help.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LOOP_SECONDS = 30.0
"""Silence of the event loop that counts as hung: far above any pause of a busy node."""

STUCK_SECONDS = 180.0
"""How long a queue may stand still with work in it: above the longest look at a key and all waits between tries."""

TRY_SECONDS = 600.0
"""Silence of the full comparison beyond its interval: it tries every few seconds while it fails."""


class Health:
    """Facts that the services set and the probes read; safe to read from any thread."""

    def __init__(self) -> None:
        self.started = False
        self.migrated = False
        self.served = False
        """The API server serves our kinds."""

        self._ticked_at = time.monotonic()
        self._watched: dict[str, tuple[Callable[[], float], float]] = {}

    def tick(self) -> None:
        """The event loop has come by."""
        self._ticked_at = time.monotonic()

    def watch(self, what: str, silent_for: Callable[[], float], limit: float) -> None:
        """Count as dead when `silent_for` is above `limit` seconds. It must be quick."""
        self._watched[what] = (silent_for, limit)

    def alive(self) -> str | None:
        """None, or what hangs."""
        silent = time.monotonic() - self._ticked_at
        if silent > LOOP_SECONDS:
            return f"the event loop has not moved for {silent:.0f} s"
        for what, (silent_for, limit) in self._watched.items():
            seconds = silent_for()
            if seconds > limit:
                return f"{what} has not moved for {seconds:.0f} s"
        return None

    def ready(self) -> str | None:
        """None, or what is missing before this operator can do its work."""
        if not self.migrated:
            return "the database has not this program's schema yet (it may be unreachable)"
        if not self.served:
            return "the API server does not serve perdure.dev yet: install the chart perdure-crds"
        return None

    def startup(self) -> str | None:
        """None once the process has come so far that the liveness probe means something."""
        return None if self.started else "starting"
