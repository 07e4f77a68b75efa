"""Waits between attempts: in memory when short, by giving the slot back when long and nothing else is in progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from perdure.model.outcome import Parked
from perdure.model.rows import WaitingFor

QUIET_ROUNDS = 5
"""Turns of the event loop without a step starting before a run parks: what was built beside the waiting step, or
follows from another's end through `gather` or a task group, has begun by then."""

WAITING_KIND = "RetryBackoff"


@dataclass(eq=False, slots=True)
class _Waiting:
    name: str
    failures: int
    until: float
    wake: asyncio.Future[None]


class Backoffs:
    """The steps of one run that wait for their next attempt.

    `busy` says whether a step is in progress; `park` is called once when the run had better give its slot back.
    """

    def __init__(self, park_after: float, busy: Callable[[], bool], park: Callable[[Parked], None]) -> None:
        self._park_after = park_after
        self._busy = busy
        self._park = park
        self._waiting: dict[_Waiting, None] = {}
        self._starts = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def wait(self, name: str, failures: int, seconds: float) -> None:
        """Return after these seconds, or when `wake_all` ends every wait."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(name, failures, loop.time() + seconds, loop.create_future())
        timer = loop.call_at(waiting.until, _wake, waiting.wake)
        self._waiting[waiting] = None
        self.consider()
        try:
            await waiting.wake
        finally:
            timer.cancel()
            del self._waiting[waiting]

    def wake_all(self) -> None:
        """End every wait."""
        for waiting in self._waiting:
            _wake(waiting.wake)

    def started(self) -> None:
        """A step begins: whoever was about to park looks again."""
        self._starts += 1

    def consider(self) -> None:
        """Park soon if only waits are left. Called when a wait begins and when no step is in progress any more."""
        if self._waiting and not self._busy():
            asyncio.get_running_loop().call_soon(self._look, QUIET_ROUNDS, self._starts)

    def _look(self, rounds: int, starts: int) -> None:
        loop = asyncio.get_running_loop()
        if self._busy() or starts != self._starts or not self._waiting:
            return
        if rounds:
            loop.call_soon(self._look, rounds - 1, starts)
            return
        first = min(self._waiting, key=lambda waiting: waiting.until)
        seconds = first.until - loop.time()
        if seconds > self._park_after:
            times = "once" if first.failures == 1 else f"{first.failures} times"
            message = f"step {first.name} failed {times}; its next attempt is in {seconds:.0f} s"
            self._park(Parked(WaitingFor(WAITING_KIND, first.name, message), seconds))


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
