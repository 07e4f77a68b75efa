"""The work queue: every key that may need attention, each once, never two at a time for one key.

The watch, the resync and the sweeps only put keys in; `reconcile` looks at the whole state of a key when its turn
comes, so it does not matter how often or why a key was put in. `QueueCore` decides and has neither clock nor IO;
`WorkQueue` is the loop around it. Keeps invariant 7: one key that fails is tried again later and later, the others
go on. When what *all* keys need is away (`Unavailable`), the queue as a whole waits and then tries with one key.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from perdure.errors import StoreUnavailable
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics

from perdure_operator.kube.errors import ApiUnavailable

log = get_logger(__name__)

K = TypeVar("K", bound=Hashable)

BASE_DELAY = 0.2
"""Wait after the first failure of a key, doubled each time: a hiccup costs no visible delay."""

MAX_DELAY = 30.0
"""Longest wait of a failing key: soon enough that a person who repaired something sees it take effect."""

RECONCILE_SECONDS = 60.0
"""Longest look at one key: above every time limit inside it, so that a hang ends as a failure of that key."""

MAX_PAUSE = 3.0
"""Longest wait of the whole queue between two tries while Postgres is away: one attempt every few seconds is free,
and work resumes that soon."""


class QueueCore(Generic[K]):
    """Deduplicating, level-triggered, serial per key, backoff with jitter. All times are seconds of one clock."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter
        self._ready: dict[K, float] = {}
        self._delayed: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._pushed = 0
        self._running: dict[K, float | None] = {}
        self._failures: dict[K, int] = {}
        self._strikes = 0
        self._paused_until = 0.0

    # -- putting in

    def add(self, key: K, now: float) -> None:
        """Have the key looked at as soon as possible; while it is being looked at, once more afterwards."""
        if key in self._running:
            if self._running[key] is None:
                self._running[key] = now
        elif key not in self._ready:
            self._delayed.pop(key, None)
            self._ready[key] = now

    def add_after(self, key: K, delay: float, now: float) -> None:
        """Have the key looked at after `delay` at the latest; an earlier appointment stands."""
        if key in self._ready:
            return
        due = now + delay
        if key in self._delayed and self._delayed[key] <= due:
            return
        self._delayed[key] = due
        self._pushed += 1
        heapq.heappush(self._heap, (due, self._pushed, key))

    # -- taking out

    def take(self, now: float) -> tuple[K, float] | None:
        """The key that has waited longest and for how long, now marked as being looked at; None: nothing to do."""
        self._promote(now)
        if now < self._paused_until or (self._strikes and self._running):
            return None
        for key, since in self._ready.items():
            del self._ready[key]
            self._running[key] = None
            return key, max(0.0, now - since)
        return None

    def done(self, key: K, now: float) -> None:
        """The key was looked at with success; it goes back in only if it was put in meanwhile."""
        self._strikes = 0
        self._failures.pop(key, None)
        again = self._running.pop(key)
        if again is not None:
            self.add(key, again)

    def failed(self, key: K, now: float) -> float:
        """Looking at the key failed for reasons of its own; the answer is how long it waits."""
        self._strikes = 0
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        again = self._running.pop(key)
        if again is not None:  # something has changed since: worth a look at once, the count stays
            self.add(key, again)
            return 0.0
        delay = self._spread(min(MAX_DELAY, BASE_DELAY * 2.0 ** min(failures - 1, 32)))
        self.add_after(key, delay, now)
        return delay

    def unavailable(self, key: K, now: float) -> float:
        """What all keys need is away: the key keeps its place, the queue waits; the answer is how long."""
        self._running.pop(key)
        self._delayed.pop(key, None)
        self._ready = {key: now, **self._ready}
        if now >= self._paused_until:  # of many that fail together the first one counts
            self._strikes += 1
            self._paused_until = now + self._spread(min(MAX_PAUSE, BASE_DELAY * 2.0 ** min(self._strikes - 1, 32)))
        return self._paused_until - now

    # -- looking at it

    def next_due(self, now: float) -> float | None:
        """Seconds until `take` may have something that it has not now; None until something is put in or ends."""
        self._promote(now)
        if now < self._paused_until and (self._ready or self._delayed):
            return self._paused_until - now
        if self._ready:
            return None if self._strikes and self._running else 0.0
        return max(0.0, self._heap[0][0] - now) if self._heap else None

    @property
    def depth(self) -> int:
        """Keys that wait for their turn, without appointments in the future."""
        return len(self._ready)

    @property
    def running(self) -> int:
        """Keys that are being looked at."""
        return len(self._running)

    def oldest_age(self, now: float) -> float:
        """How long the first ready key has waited, 0 when none waits."""
        return max(0.0, now - min(self._ready.values())) if self._ready else 0.0

    def clear(self) -> None:
        """Forget everything that waits (another process leads now); what is being looked at ends by itself."""
        self._ready.clear()
        self._delayed.clear()
        self._heap.clear()
        self._failures.clear()

    def _promote(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._delayed.get(key) != due:
                continue  # superseded by an earlier appointment or by `add`
            if key in self._running:
                del self._delayed[key]
                self.add(key, now)
            else:
                self.add(key, due)

    def _spread(self, delay: float) -> float:
        return delay * (0.5 + 0.5 * self._jitter())


@dataclass(frozen=True, slots=True)
class Again:
    """Answer of a reconcile: look at this key again after so many seconds."""

    after: float


class WorkQueue(Generic[K]):
    """Runs `reconcile` for each key with at most `limit` at once. Use from one event loop only."""

    def __init__(
        self, kind: str, reconcile: Callable[[K], Awaitable[Again | None]], *, limit: int, metrics: Metrics
    ) -> None:
        self._kind = kind
        self._reconcile = reconcile
        self._limit = limit
        self._metrics = metrics
        self._core: QueueCore[K] = QueueCore()
        self._wake = asyncio.Event()
        self._moved_at = 0.0

    def add(self, key: K) -> None:
        """See `QueueCore.add`."""
        self._core.add(key, _now())
        self._wake.set()

    def add_after(self, key: K, delay: float) -> None:
        """See `QueueCore.add_after`."""
        self._core.add_after(key, delay, _now())
        self._wake.set()

    @property
    def depth(self) -> int:
        """Keys that wait for their turn."""
        return self._core.depth

    @property
    def oldest_age(self) -> float:
        """Seconds that the first of them has waited."""
        return self._core.oldest_age(_now())

    @property
    def stuck_for(self) -> float:
        """Seconds since the loop last moved although there was something to do: for the liveness probe."""
        return _now() - self._moved_at if self._core.depth or self._core.running else 0.0

    async def run(self) -> None:
        """Until cancelled. Keys being looked at are cancelled too: the next leader looks at all of them anyway."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._wake.clear()
                    now = self._moved_at = _now()
                    while self._core.running < self._limit and (taken := self._core.take(now)) is not None:
                        key, waited = taken
                        self._metrics.observe(names.WORKQUEUE_WAIT_SECONDS, waited, self._kind)
                        group.create_task(self._one(key))
                    self._metrics.set(names.WORKQUEUE_DEPTH, self._core.depth, self._kind)
                    full = self._core.running >= self._limit
                    await self._pause(None if full else self._core.next_due(now))
        finally:
            self._core.clear()

    async def _pause(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _one(self, key: K) -> None:
        started = _now()
        try:
            async with asyncio.timeout(RECONCILE_SECONDS):
                again = await self._reconcile(key)
        except asyncio.CancelledError:
            self._core.done(key, _now())
            raise
        except StoreUnavailable as error:
            delay = self._core.unavailable(key, _now())
            result = "retry"
            log.debug("the queue waits for the database", kind=self._kind, seconds=round(delay, 1), error=str(error))
        except ApiUnavailable as error:
            delay = self._core.failed(key, _now())
            result = "retry"
            log.debug("the API server does not answer", kind=self._kind, key=str(key), error=str(error))
        except Exception:
            delay = self._core.failed(key, _now())
            result = "error"
            log.exception("reconcile failed", kind=self._kind, key=str(key), retry_in=round(delay, 1))
        else:
            self._core.done(key, _now())
            result = "ok"
            if again is not None:
                self._core.add_after(key, again.after, _now())
        self._metrics.count(names.RECONCILES, self._kind, result)
        self._metrics.observe(names.RECONCILE_SECONDS, _now() - started, self._kind)
        self._wake.set()


def _now() -> float:
    """The clock of the event loop, which threads may ask, too: the probes do."""
    return time.monotonic()
