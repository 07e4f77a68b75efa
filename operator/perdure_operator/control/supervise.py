"""Keeps a service running: one that fails is logged and started again with a growing pause, the others go on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from perdure.telemetry.logs import get_logger

log = get_logger(__name__)

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 15.0
"""Seconds before a service that failed runs again: a bug that always fails costs a few log lines a minute."""


async def supervise(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run `run` for ever. Returns when it returns by itself; a cancel ends it."""
    pause = FIRST_PAUSE
    loop = asyncio.get_running_loop()
    while True:
        started = loop.time()
        try:
            return await run()
        except Exception:
            if loop.time() - started > LONGEST_PAUSE * 4:
                pause = FIRST_PAUSE
            log.exception("a service failed and is started again", service=name, seconds=round(pause, 1))
        await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311 # spreads load, keeps no secret
        pause = min(LONGEST_PAUSE, pause * 2)
