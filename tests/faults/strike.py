"""What faults on the way of workers and of clients have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from tests.faults.proxy import Armed, FaultProxy

PATIENCE = 6.0
"""Seconds that a fault waits for its statement; then it takes any."""


class Tasks:
    """Faults under way: a task each, so that a long one does not hold up the next."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[None, None, None], name: str = "fault") -> None:
        """One more."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def over(self) -> None:
        """Wait for all of them; raises what one of them raised."""
        if self._tasks:
            for task in (await asyncio.wait(self._tasks))[0]:
                task.result()


async def on_a_statement(proxy: FaultProxy, armed: Armed) -> bool:
    """Wait until the fault has struck its statement, or any; false when none came for so long."""
    proxy.arm(armed)
    for statement in (armed.statement, ""):
        armed.statement = statement
        try:
            async with asyncio.timeout(PATIENCE):
                await armed.hit.wait()
        except TimeoutError:
            continue
        return True
    proxy.disarm(armed)
    return False
