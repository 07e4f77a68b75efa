"""The end of a body that was told to stop and still runs: patience, a second cancel, and then it is left behind.

Used by `Execution` once a body is to unwind, and made only then. Promises: every task that is left is cancelled after
each period of grace; after two of them `over` is called whatever the tasks do, so that a claim always ends; what is
left behind is kept until it ends by itself, as the loop alone would let it vanish.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

logger = logging.getLogger(__name__)

UNWIND_SECONDS = 2.0
"""How long the `finally` blocks of a stopped body may take before it is cancelled again, and then abandoned: enough
to close connections, short beside a lease and a pod's grace period."""

_abandoned: set[asyncio.Task[Any]] = set()


class Unwinding:
    """One for each body that is stopped. `tasks` are the body's and those of its steps in progress, as they are then;
    `seconds` is one period of grace."""

    def __init__(
        self, run_id: str, seconds: float, tasks: Callable[[], set[asyncio.Task[Any]]], over: Callable[[], None]
    ) -> None:
        self._run_id = run_id
        self._seconds = seconds
        self._tasks = tasks
        self._over = over
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, tries: int = 1) -> None:
        """The body has been told: count anew from now."""
        self.end()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._insist, tries)

    def end(self) -> None:
        """Nothing is left to wait for."""
        if self._timer is not None:
            self._timer.cancel()

    def _insist(self, tries: int) -> None:
        """The body has been told and still runs."""
        tasks = {task for task in self._tasks() if not task.done()}
        cancel(tasks)
        if tries:
            self.watch(tries - 1)
            return
        logger.error(
            "run %s: its body or a step does not end %.1f s after it was stopped and is left behind; "
            "does it catch BaseException or asyncio.CancelledError?",
            self._run_id,
            2 * self._seconds,
        )
        for task in tasks:
            _abandoned.add(task)
            task.add_done_callback(_abandoned.discard)
        self._over()


def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel each of them."""
    for task in tasks:
        task.cancel()
