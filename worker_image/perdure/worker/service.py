"""The one way in which everything that runs beside others starts and stops.

Stopping has two phases: `quiesce` (take on nothing new) and `stop` (end). Neither is an error. A service whose
`run` raises is logged and started again with a growing pause: one bad turn must not end the loop.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from typing import ClassVar

from perdure.telemetry.logs import get_logger

log = get_logger(__name__)

FIRST_PAUSE = 0.2
"""Seconds before a service that failed starts again: long enough not to spin, short enough not to be noticed."""

LONGEST_PAUSE = 10.0
"""Upper bound of that pause: a cause that went away is found gone soon."""


def backoff(failures: int, *, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE) -> float:
    """Seconds to wait after so many failures in a row: doubled each time, with jitter so that workers spread."""
    return min(longest, first * 2.0 ** min(failures - 1, 30)) * random.uniform(0.75, 1.25)  # noqa: S311 - not a secret


class Service(ABC):
    """Base: subclasses give a `name` and `run`, and override `quiesce` when they take on work."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self._runner: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run in the background from now on."""
        assert self._runner is None, "a service starts once"
        self._runner = asyncio.create_task(self._supervise(), name=self.name)

    def quiesce(self) -> None:  # noqa: B027 - most services take on nothing
        """First phase: take on nothing new. Returns at once."""

    async def stop(self) -> None:
        """Second phase: end. Returns when `run` has returned; may be called twice, and without a start."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait([self._runner])

    @abstractmethod
    async def run(self) -> None:
        """What the service does, until it is cancelled."""

    async def _supervise(self) -> None:
        failures = 0
        while True:
            try:
                return await self.run()
            except Exception:
                failures += 1
                log.exception("a service failed and starts again", service=self.name, failures=failures)
                await asyncio.sleep(backoff(failures))
