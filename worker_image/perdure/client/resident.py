"""What a client asks of a worker that lives in the same process: a slot for a run to begin in at once, and its end.

The worker implements it (`worker/resident`); the client knows only this, since it is also used where there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from perdure.model.rows import ClaimedRun
from perdure.store.clients import RunSight, RunStart


class Slot(Protocol):
    """A slot kept free for one run. One of `answered` and `failed` must follow."""

    @property
    def worker_id(self) -> str:
        """Whose slot it is."""
        ...

    @property
    def version(self) -> str:
        """Version of that worker's code, empty when it has none."""
        ...

    def answered(self, run: ClaimedRun | None) -> None:
        """The run was created and taken: it begins. None: it was not."""
        ...

    def failed(self) -> None:
        """It is not known whether it was created."""
        ...


class Resident(Protocol):
    """The worker beside a client."""

    def reserve(self, namespace: str, start: RunStart) -> Slot | None:
        """A slot, if this worker would be the next to take the run anyway."""
        ...

    def subscribe(self, ended: Callable[[RunSight], None], maybe: Callable[[str], None]) -> Callable[[], None]:
        """Be told of every run that leaves this worker: that it has ended, and how, or only that there is news of it.
        Returns what ends it."""
        ...
