"""When a failed attempt is tried again: a pure function of the policy and the count of failures."""

from __future__ import annotations

from dataclasses import dataclass

MAX_ATTEMPTS_LIMIT = 1_000_000
"""More attempts than this is a mistake: at the longest default wait it is more than a century."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a step may run in all, and how long to wait between attempts. Times in seconds.

    Defaults are those of the source documents: one attempt, 1 s, doubled each time, at most an hour.
    """

    max_attempts: int = 1
    interval: float = 1.0
    backoff_rate: float = 2.0
    max_interval: float = 3600.0

    def delay_after(self, failures: int) -> float | None:
        """Seconds to wait after the given number of failures, None when there is no further attempt."""
        if failures >= max(1, self.max_attempts):
            return None
        try:
            delay = self.interval * self.backoff_rate ** (failures - 1)
        except OverflowError:
            return self.max_interval
        return min(delay, self.max_interval)
