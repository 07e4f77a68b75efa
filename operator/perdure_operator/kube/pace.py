"""How fast the operator may write to the API server: a rate that adapts to the server's answers.

Pure core, times are given. Used by the status writer and the poster of events, so that a backlog of ten thousand
statuses after an outage does not take the API server from everybody else. Up slowly while answers are quick, down
by a fifth when they get slow, to a half and a pause when the server says so.
"""

from __future__ import annotations

FASTEST = 200.0
"""Writes a second that no answer can raise the rate above: about one core of an API server."""

SLOWEST = 1.0
"""Writes a second that are always allowed, or nothing would ever tell that the server is well again."""

START = 40.0
"""Writes a second at the start: a few hundred runs are shown in seconds, an API server of one core barely notices."""

SLOW_SECONDS = 1.0
"""An answer that takes longer counts as a sign of load; usual ones take 10 to 50 ms."""

GAIN = 5.0
"""Writes a second by which the rate rises for each second of quick answers."""

EASE_SECONDS = 1.0
"""The rate falls at most once in this time: answers that were under way together are one sign, not many."""

LONGEST_PAUSE = 60.0
"""A Retry-After above this is not believed: load does not last that long, a mistake in a proxy does."""


class Pace:
    """Permits writes one by one: `wait` says how long to hold the next one back, the answers set the rate."""

    def __init__(self, rate: float = START) -> None:
        self.rate = rate
        self._next = 0.0
        self._eased_at = float("-inf")

    def wait(self, now: float) -> float:
        """Reserve the next permit; the answer is how many seconds from now it is valid."""
        at = max(now, self._next)
        self._next = at + 1.0 / self.rate
        return at - now

    def answered(self, seconds: float, now: float) -> None:
        """The server took the write after so many seconds."""
        if seconds > SLOW_SECONDS:
            self._ease(0.8, now)
        else:
            self.rate = min(FASTEST, self.rate + GAIN / self.rate)

    def throttled(self, retry_after: float | None, now: float) -> None:
        """The server asked for less, or did not answer: half the rate, and a pause of what it asked for."""
        self._ease(0.5, now)
        if retry_after is not None:
            self._next = max(self._next, now + min(LONGEST_PAUSE, max(0.0, retry_after)))

    def _ease(self, factor: float, now: float) -> None:
        if now - self._eased_at >= EASE_SECONDS:
            self._eased_at = now
            self.rate = max(SLOWEST, self.rate * factor)
