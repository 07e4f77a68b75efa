"""The waits of one run: in memory when short, by giving the slot back when long and nothing else is in progress.

Steps wait for their next attempt, durable calls for a time, a message, an event or another run.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Container
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
    `on`: the keys under which it is parked, where `key` stands for many.
    """

    why: Callable[[float], WaitingFor]
    seconds: float | None
    key: str = ""
    seen: int = NO_WAKE
    hold: float = 0.0
    on: tuple[str, ...] = ()


def retry(name: str, failures: int, seconds: float) -> Wait:
    """The wait of a step for its next attempt."""

    def why(left: float) -> WaitingFor:
        if not failures:
            return WaitingFor(RETRY_KIND, name, f"step {name} met no database; it is tried again in {left:.0f} s")
        times = "once" if failures == 1 else f"{failures} times"
        return WaitingFor(RETRY_KIND, name, f"step {name} failed {times}; its next attempt is in {left:.0f} s")

    return Wait(why, seconds)


@dataclass(eq=False, slots=True)
class _Waiting:
    wait: Wait
    until: float
    hold_until: float
    wake: asyncio.Future[None]
    seen: int


class Backoffs:
    """The waits of one run.

    `busy` says whether a step is in progress; `park` is called once when the run had better give its slot back.
    """

    def __init__(self, park_after: float, busy: Callable[[], bool], park: Callable[[Parked], None]) -> None:
        self._park_after = park_after
        self._busy = busy
        self._park = park
        self._waiting: dict[_Waiting, None] = {}
        self._keyed = 0
        self._starts = 0
        self._starts_seen = 0
        self._rounds = 0
        self._looking = False
        self._later: asyncio.Handle | None = None
        self._later_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def park_after(self) -> float:
        """Seconds that a wait may take in memory."""
        return self._park_after

    @property
    def keyed(self) -> bool:
        """Whether somebody else may end one of the waits."""
        return self._keyed > 0

    @property
    def keys(self) -> list[str]:
        """The keys under which somebody else may end a wait."""
        return [waiting.wait.key for waiting in self._waiting if waiting.wait.key] if self._keyed else []

    async def wait(self, wait: Wait) -> None:
        """Return after its seconds, when it is woken, or when `wake_all` ends every wait."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        until = math.inf if wait.seconds is None else now + wait.seconds
        waiting = _Waiting(wait, until, now + wait.hold, loop.create_future(), wait.seen)
        timer = None if wait.seconds is None else loop.call_at(until, _wake, waiting.wake)
        self._waiting[waiting] = None
        self._keyed += bool(wait.key)
        self.consider()
        try:
            await waiting.wake
        finally:
            if timer is not None:
                timer.cancel()
            del self._waiting[waiting]
            self._keyed -= bool(wait.key)
            if not self._waiting and self._later is not None:
                self._later.cancel()
                self._later = None
        self.consider()  # others may be left that waited in company of this one

    def wake_all(self) -> None:
        """End every wait."""
        for waiting in self._waiting:
            _wake(waiting.wake)

    def woken(self, not_there: Container[str], seen: int) -> None:
        """The run was woken: end the waits that somebody else may end, so that each looks again; but for those of whose
        keys it is known that there was nothing at the count of wakes `seen`."""
        for waiting in self._waiting:
            if not waiting.wait.key:
                continue
            if waiting.wait.key in not_there:
                waiting.seen = seen
            else:
                _wake(waiting.wake)

    def started(self) -> None:
        """A step begins: whoever was about to park looks again."""
        self._starts += 1

    def consider(self) -> None:
        """Park soon if only waits are left. Called when a wait begins and when no step is in progress any more."""
        if self._waiting and not self._busy():
            self._rounds, self._starts_seen = QUIET_ROUNDS, self._starts
            if not self._looking:
                self._looking = True
                asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._looking = False
        if self._busy() or self._starts_seen != self._starts or not self._waiting:
            return
        if self._rounds:
            self._rounds -= 1
            self._looking = True
            loop.call_soon(self._look)
            return
        if any(waiting.wake.done() for waiting in self._waiting):
            return  # it goes on in this turn, and whatever it does next is considered then
        first = min(self._waiting, key=lambda waiting: waiting.until)
        now = loop.time()
        if first.until - now <= self._park_after:
            return
        hold = max(waiting.hold_until for waiting in self._waiting)
        if hold > now:
            if self._later is None or self._later_at < hold:
                self._later, self._later_at = self._instead(hold), hold
            return
        left = first.until - now
        keys = tuple(dict.fromkeys(key for each in self._waiting for key in each.wait.on or (each.wait.key,) if key))
        if len(keys) > MAX_KEYS:
            keys = (ANY_KEY,)
        seen = min((waiting.seen for waiting in self._waiting if waiting.wait.key), default=NO_WAKE)
        self._park(Parked(replace(first.wait.why(left), on=keys), None if left == math.inf else left, seen))

    def _instead(self, when: float) -> asyncio.Handle:
        if self._later is not None:
            self._later.cancel()
        return asyncio.get_running_loop().call_at(when, self._held)

    def _held(self) -> None:
        self._later = None
        self.consider()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
