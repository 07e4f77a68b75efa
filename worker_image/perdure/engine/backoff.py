"""The waits of one run: in memory when short, by giving the slot back when long and nothing else is in progress.

Steps wait for their next attempt, durable calls for a time, a message, an event or another run.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from perdure.model.outcome import NO_WAKE, Parked
from perdure.model.rows import WaitingFor

QUIET_ROUNDS = 5
"""Turns of the event loop without a step starting before a run parks: what was built beside the waiting step, or
follows from another's end through `gather` or a task group, has begun by then."""

MAX_KEYS = 32
"""Keys of a parked run that are listed; with more, any wake wakes it. They stand in the row that every claim reads."""

ANY_KEY = "*"
"""Stands for all keys."""

RETRY_KIND = "RetryBackoff"


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait. `why` says what for, given the seconds that are left; `seconds` None: until it is woken.

    `key`: under which somebody else ends it; empty: only time does. `seen`: the run's count of wakes when the thing
    was last looked for. `hold`: seconds in memory before it is worth parking for a wake that may come any moment.
    """

    why: Callable[[float], WaitingFor]
    seconds: float | None
    key: str = ""
    seen: int = NO_WAKE
    hold: float = 0.0


def retry(name: str, failures: int, seconds: float) -> Wait:
    """The wait of a step for its next attempt."""

    def why(left: float) -> WaitingFor:
        times = "once" if failures == 1 else f"{failures} times"
        return WaitingFor(RETRY_KIND, name, f"step {name} failed {times}; its next attempt is in {left:.0f} s")

    return Wait(why, seconds)


@dataclass(eq=False, slots=True)
class _Waiting:
    wait: Wait
    until: float
    hold_until: float
    wake: asyncio.Future[None]


class Backoffs:
    """The waits of one run.

    `busy` says whether a step is in progress; `park` is called once when the run had better give its slot back.
    """

    def __init__(self, park_after: float, busy: Callable[[], bool], park: Callable[[Parked], None]) -> None:
        self._park_after = park_after
        self._busy = busy
        self._park = park
        self._waiting: dict[_Waiting, None] = {}
        self._starts = 0
        self._later: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def park_after(self) -> float:
        """Seconds that a wait may take in memory."""
        return self._park_after

    @property
    def seen(self) -> int | None:
        """The oldest count of wakes at which something was looked for that a wake may bring; None: nothing of that."""
        return min((waiting.wait.seen for waiting in self._waiting if waiting.wait.key), default=None)

    async def wait(self, wait: Wait) -> None:
        """Return after its seconds, when it is woken, or when `wake_all` ends every wait."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        until = math.inf if wait.seconds is None else now + wait.seconds
        waiting = _Waiting(wait, until, now + wait.hold, loop.create_future())
        timer = None if wait.seconds is None else loop.call_at(until, _wake, waiting.wake)
        self._waiting[waiting] = None
        self.consider()
        try:
            await waiting.wake
        finally:
            if timer is not None:
                timer.cancel()
            del self._waiting[waiting]
            if not self._waiting and self._later is not None:
                self._later.cancel()
                self._later = None
        self.consider()  # others may be left that waited in company of this one

    def wake_all(self) -> None:
        """End every wait."""
        for waiting in self._waiting:
            _wake(waiting.wake)

    def wake_keyed(self) -> None:
        """End the waits that somebody else may end: each looks again."""
        for waiting in self._waiting:
            if waiting.wait.key:
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
        if any(waiting.wake.done() for waiting in self._waiting):
            return  # it goes on in this turn, and whatever it does next is considered then
        first = min(self._waiting, key=lambda waiting: waiting.until)
        now = loop.time()
        if first.until - now <= self._park_after:
            return
        hold = max(waiting.hold_until for waiting in self._waiting)
        if hold > now:
            if self._later is None or self._later.when() < hold:
                self._later = self._instead(hold)
            return
        left = first.until - now
        keys = tuple(dict.fromkeys(waiting.wait.key for waiting in self._waiting if waiting.wait.key))
        if len(keys) > MAX_KEYS:
            keys = (ANY_KEY,)
        seen = self.seen
        self._park(
            Parked(
                replace(first.wait.why(left), on=keys),
                None if left == math.inf else left,
                NO_WAKE if seen is None else seen,
            )
        )

    def _instead(self, when: float) -> asyncio.TimerHandle:
        if self._later is not None:
            self._later.cancel()
        return asyncio.get_running_loop().call_at(when, self._held)

    def _held(self) -> None:
        self._later = None
        self.consider()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
