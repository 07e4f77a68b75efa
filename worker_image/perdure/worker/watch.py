"""Watches the event loop: how late it is, whether it answers at all, and what it is doing when it does not.

A blocking call in an async step stops everything on the loop: other runs, claims, in the end the lease. The thread
here notices and logs the stack that blocks, so that a person sees the line and not only the consequences.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback

from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.worker.service import Service

log = get_logger(__name__)

TICK_SECONDS = 0.1
"""Between two ticks of the loop: often enough to see a lag, too seldom to cost anything."""

BLOCKED_SECONDS = 1.0
"""Without a tick for so long, the stack is logged: far above any lag that load explains."""

FRAMES = 30
"""Innermost frames of the stack that are logged."""


class LoopWatch(Service):
    """Ticks on the loop it is started on, and watches the ticks from a thread."""

    name = "loop watch"

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics
        self._ticked_at = time.monotonic()
        self._loop_thread = threading.get_ident()
        self._ended = threading.Event()

    def silent_for(self) -> float:
        """Seconds since the last tick. Callable from any thread."""
        return time.monotonic() - self._ticked_at

    async def run(self) -> None:
        """Tick for ever."""
        self._ended.clear()
        threading.Thread(target=self._watch, name="perdure-loop-watch", daemon=True).start()
        try:
            while True:
                due = time.monotonic() + TICK_SECONDS
                await asyncio.sleep(TICK_SECONDS)
                self._ticked_at = time.monotonic()
                self._metrics.observe(names.LOOP_LAG_SECONDS, max(0.0, self._ticked_at - due))
        finally:
            self._ended.set()

    def _watch(self) -> None:
        told = False
        while not self._ended.wait(BLOCKED_SECONDS / 4):
            silent = self.silent_for()
            if silent < BLOCKED_SECONDS:
                told = False
            elif not told:
                told = True
                log.warning("the event loop is blocked", seconds=round(silent, 1), stack=self._stack())

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        return "".join(traceback.format_stack(frame, FRAMES)) if frame is not None else "unknown"
