"""`perdure.current().step.cancelled`: how a step's body learns that nobody wants its result any more.

An async body also sees `asyncio.CancelledError`; a sync one in its thread, and what a body has started beside itself,
have only this. Made when it is first asked for, so that steps that never ask pay nothing. Set and read in any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Container
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.engine.context import Scope


class Cancellation:
    """Set once the attempt is given up: its run was cancelled or lost, its time is over, or it lost a `select`."""

    __slots__ = ("_lock", "_set", "_waiting")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}

    def is_set(self) -> bool:
        """Whether the attempt is given up: what the body returns from here on is dropped. From any thread."""
        return self._set

    async def wait(self) -> None:
        """Return once it is. In any event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._set:
                return
            self._waiting[future] = loop
        try:
            await future
        finally:
            with self._lock:
                self._waiting.pop(future, None)

    def set(self) -> None:
        """Give the attempt up. For the engine; from any thread."""
        with self._lock:
            self._set = True
            waiting = list(self._waiting.items())
        for future, loop in waiting:
            with suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(_wake, future)


class Cancellations(dict["Scope", Cancellation]):
    """Those that attempts in progress of one claim have asked for."""

    def stop(self, indexes: Container[int | None] | None = None) -> None:
        """Give up the attempts of the steps at these indexes, or all. Those that ask later see it by themselves."""
        for scope in list(self):
            if indexes is None or scope.index in indexes:
                scope.stop()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
