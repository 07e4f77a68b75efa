"""What a worker knows of the limits of its queues. Pure: it is given the time. Used by `claimer`.

The limits hold in the database, where claims of a limited queue follow each other (statement `claim`). What is kept
here only spares it claims that would bring nothing: a queue at a limit is not asked again before a run of it has left
this worker, its rate lets another begin, or a poll interval has passed.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.store.claims import Taken
from perdure.worker.machine import RunKey

POLL_SHARE = 0.8
"""Longest hold as a share of the poll interval: the least of the pauses between two rounds, so each poll asks again."""

RATE_PAUSE = 0.05
"""Least seconds between two claims that a rate cuts short: at a hundred runs a second each still brings five."""


@dataclass(frozen=True, slots=True)
class _Hold:
    until: float
    by_rate: bool


class Limits:
    """Of the queues of one worker. Times in seconds of any one clock."""

    def __init__(self, poll_seconds: float) -> None:
        self._longest = poll_seconds * POLL_SHARE
        self._limited: set[str] = set()
        self._short: set[str] = set()
        self._holds: dict[str, _Hold] = {}
        self._runs: dict[RunKey, str] = {}

    def limited(self, queue: str) -> bool:
        """Whether the queue had limits when it was last claimed from."""
        return queue in self._limited

    def open(self, queue: str, now: float) -> bool:
        """Whether a claim from the queue may bring something."""
        hold = self._holds.get(queue)
        return hold is None or now >= hold.until

    def opens_in(self, now: float) -> float | None:
        """Seconds until a rate lets another run begin; None when no queue waits for that."""
        waits = (hold.until - now for hold in self._holds.values() if hold.by_rate)
        return min((wait for wait in waits if wait > 0), default=None)

    def claimed(self, queue: str, taken: Taken, asked: int, now: float) -> None:
        """A claim of `asked` runs was answered."""
        self._holds.pop(queue, None)
        self._short.discard(queue)
        if taken.room is None:
            self._limited.discard(queue)
            return
        self._limited.add(queue)
        self._runs.update((RunKey(run.id, run.fence), queue) for run in taken.runs)
        if taken.total >= asked:
            return
        self._short.add(queue)
        if taken.again_in is not None:
            self._holds[queue] = _Hold(now + min(max(taken.again_in, RATE_PAUSE), self._longest), by_rate=True)
        elif taken.total >= taken.room:
            self._holds[queue] = _Hold(now + self._longest, by_rate=False)

    def left(self, key: RunKey) -> str | None:
        """A run left this worker: its queue, if that may take another now that the last claim did not get."""
        queue = self._runs.pop(key, None)
        if queue is None or queue not in self._short:
            return None
        hold = self._holds.get(queue)
        if hold is not None and hold.by_rate:
            return None
        self._holds.pop(queue, None)
        return queue
