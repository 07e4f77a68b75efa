"""One wait after the other on an idle system."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

PAUSE_SECONDS = 0.02
"""Between two waits, so that none begins in the wake of another. It has a price of its own: processors go to sleep."""

WARM_UP = 10
"""First waits, that are not counted: connections are opened, statements prepared."""


async def one_by_one(wait: Callable[[], Awaitable[object]], count: int) -> list[float]:
    """Milliseconds that each of `count` waits takes."""
    found = []
    for number in range(-WARM_UP, count):
        started = time.perf_counter()
        await wait()
        if number >= 0:
            found.append((time.perf_counter() - started) * 1000)
        await asyncio.sleep(PAUSE_SECONDS)
    return found
