"""What this process may believe about its own lease (rule R13).

The deadline runs from the *send* of the last successful beat on a monotonic clock, so that the database never
promises less than this object says. Written by the beater's thread, read by everyone; one float, so no lock.
"""

from __future__ import annotations

import time

# The boot clock goes on while the machine sleeps or a virtual machine is paused, as other workers' clocks do.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def lease_clock() -> float:
    """Seconds on a clock that never goes back and does not stop while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class LocalLease:
    """The lease as this process sees it, `seconds` long. Not held before the first `extend`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._sent_at = lease_clock() - 2 * seconds

    def extend(self, sent_at: float) -> None:
        """A beat (or the registration) that was sent at `sent_at` succeeded."""
        self._sent_at = sent_at

    def age(self) -> float:
        """Seconds since the send of the last success."""
        return lease_clock() - self._sent_at

    def holds(self) -> bool:
        """Whether nobody else can have taken this worker's runs yet."""
        # Asked twice a step: without the call of `lease_clock`.
        return time.clock_gettime(_CLOCK) - self._sent_at < self.seconds
