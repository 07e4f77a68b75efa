"""What the probes say: functions of what is true now, called from the HTTP server's threads, never from the loop.

Startup = imported and registered once. Ready = could work: registered, not draining. Live = the loop ticks and the
claimer turns. None of them asks the database: a slow database must not restart healthy pods, and a database that is
away makes a worker not ready, never dead.
"""

from __future__ import annotations

from perdure.worker.settings import WorkerSettings
from perdure.worker.worker import State, Worker

CLAIMER_LEASES = 3
"""Leases without a turn of the claimer before the pod is restarted: each of its calls is bounded by a third of one."""


class Probes:
    """Answers of one process. `worker` stays None while modules are imported."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self.worker: Worker | None = None
        self.importing = True

    def startup(self) -> str | None:
        """None once the worker has registered for the first time, else what it waits for."""
        if self.importing:
            return f"importing {', '.join(self._settings.modules)}"
        if self.worker is None or not self.worker.registered_once:
            return self._waiting_for()
        return None

    def ready(self) -> str | None:
        """None while the worker is registered and claims."""
        if self.importing or self.worker is None or self.worker.state is not State.WORKING:
            return self._waiting_for()
        return None

    def live(self) -> str | None:
        """None while the loop and the claimer turn."""
        if self.worker is None:
            return None
        silent = self.worker.loop_silent_for()
        # As long as the beater waits for the loop: after that no beat is sent and the lease runs out.
        if silent > self._settings.lease_seconds / 3:
            return f"the event loop has not answered for {silent:.0f} s"
        idle = self.worker.claimer_silent_for()
        if idle > self._settings.lease_seconds * CLAIMER_LEASES:
            return f"the claimer has not turned for {idle:.0f} s"
        return None

    def _waiting_for(self) -> str:
        return "starting" if self.worker is None else f"{self.worker.state}: {self.worker.waits_for}".rstrip(": ")
