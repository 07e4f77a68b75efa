"""When the status of which run is written: pure, driven by the caller's clock.

Used by `reporter`. First change at once, then at most one write a run and interval, the last always; only the newest
counts, so nothing is kept but the run's name. Keeps memory bounded while the API server is away: beyond the cap the
oldest finished runs are left to the operator, which writes whatever stays unreported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MIN_INTERVAL = 1.0
"""Seconds between two writes of one run: what a person can follow, and what the API server bears."""

MAX_INTERVAL = 30.0
"""Longest interval while the API server asks for less: still a sign of life."""

MAX_PENDING = 10_000
"""Runs kept while the API server is away, at about a kilobyte each."""


@dataclass(slots=True)
class Tracked:
    """One run whose status this worker writes. `sent_at` is None before the first write."""

    namespace: str
    name: str
    dirty: bool = False
    final: bool = False
    in_flight: bool = False
    sent_at: float | None = None
    not_before: float = 0.0
    failures: int = 0


@dataclass(slots=True)
class Schedule:
    """Which runs are due. All instants are seconds of one monotonic clock."""

    interval: float = MIN_INTERVAL
    max_pending: int = MAX_PENDING
    paused_until: float = 0.0
    dropped: int = 0
    _runs: dict[str, Tracked] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, run_id: str) -> Tracked | None:
        """What is known of a run."""
        return self._runs.get(run_id)

    def changed(self, run_id: str, namespace: str, name: str, *, final: bool) -> None:
        """Something of the run was committed; `final` when this worker will write no more of it in this claim."""
        tracked = self._runs.get(run_id)
        if tracked is None:
            if len(self._runs) >= self.max_pending:
                self._make_room()
            tracked = self._runs[run_id] = Tracked(namespace, name)
        tracked.dirty = True
        tracked.final = final
        if final:
            tracked.failures = 0

    def due(self, now: float, limit: int) -> list[str]:
        """Runs to write now, at most `limit`; each counts as in flight until `sent`, `failed` or `drop`."""
        if now < self.paused_until:
            return []
        chosen: list[str] = []
        for run_id, tracked in self._runs.items():
            if len(chosen) >= limit:
                break
            if self._due_at(tracked) <= now:
                chosen.append(run_id)
        for run_id in chosen:
            self._runs[run_id].in_flight = True
            self._runs[run_id].dirty = False
        return chosen

    def next_due(self) -> float | None:
        """Instant at which something may be due, None when nothing is to be written."""
        instants = [self._due_at(tracked) for tracked in self._runs.values() if tracked.dirty]
        instants = [instant for instant in instants if instant != float("inf")]
        return max(min(instants), self.paused_until) if instants else None

    def sent(self, run_id: str, now: float) -> None:
        """The write went well."""
        self.interval = max(MIN_INTERVAL, self.interval * 0.9)
        tracked = self._runs.get(run_id)
        if tracked is None:
            return
        tracked.in_flight = False
        tracked.sent_at = now
        tracked.failures = 0
        if tracked.final and not tracked.dirty:
            del self._runs[run_id]

    def failed(self, run_id: str, now: float, pause: float) -> None:
        """No good answer: try again after `pause` seconds, with whatever is newest then."""
        tracked = self._runs.get(run_id)
        if tracked is None:
            return
        tracked.in_flight = False
        tracked.dirty = True
        tracked.failures += 1
        tracked.not_before = now + pause

    def drop(self, run_id: str) -> None:
        """The status of this run is none of this worker's business any more."""
        self._runs.pop(run_id, None)

    def slow_down(self, now: float, retry_after: float | None) -> None:
        """The API server is overloaded: twice the interval, and nothing at all before `retry_after` seconds."""
        self.interval = min(MAX_INTERVAL, self.interval * 2)
        if retry_after is not None:
            self.paused_until = max(self.paused_until, now + min(retry_after, MAX_INTERVAL))

    def _due_at(self, tracked: Tracked) -> float:
        if tracked.in_flight or not tracked.dirty:
            return float("inf")
        if tracked.sent_at is None or tracked.final:
            return tracked.not_before
        return max(tracked.not_before, tracked.sent_at + self.interval)

    def _make_room(self) -> None:
        for run_id, tracked in self._runs.items():
            if tracked.final and not tracked.in_flight:
                del self._runs[run_id]
                self.dropped += 1
                return
