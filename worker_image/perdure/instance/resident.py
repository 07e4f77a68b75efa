"""The worker of an instance as its client sees it before there is one."""

from __future__ import annotations

from collections.abc import Callable

from perdure.client.resident import Resident, Slot
from perdure.store.clients import RunSight, RunStart

Ended = Callable[[RunSight], None]
Maybe = Callable[[str], None]


class LateResident:
    """See `perdure.client.resident`: there are no slots and no news until a worker is there."""

    def __init__(self) -> None:
        self._worker: Resident | None = None
        self._ears: list[tuple[Ended, Maybe]] = []
        self._ends: list[Callable[[], None]] = []

    def there_is(self, worker: Resident) -> None:
        """This is the worker."""
        self._worker = worker
        self._ends = [worker.subscribe(*ears) for ears in self._ears]

    def gone(self) -> None:
        """There is none any more."""
        for end in self._ends:
            end()
        self._worker, self._ends = None, []

    def reserve(self, namespace: str, start: RunStart) -> Slot | None:
        """See `perdure.client.resident`."""
        return None if self._worker is None else self._worker.reserve(namespace, start)

    def subscribe(self, ended: Ended, maybe: Maybe) -> Callable[[], None]:
        """See `perdure.client.resident`. Only before there is a worker."""
        self._ears.append((ended, maybe))
        return self.gone
