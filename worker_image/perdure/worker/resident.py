"""The worker as clients in its own process see it: runs begin in its free slots at once, ends are heard without a word
to the database.

Used by `worker` and `session`. A run jumps no queue: it begins here only while a slot is free and no run that could
have it is known to wait. What is durable, and when, is as everywhere else; only hops are saved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from perdure.model.outcome import Ending, Failed, Succeeded
from perdure.model.rows import ClaimedRun, workflow_requirement
from perdure.model.states import RunStatus
from perdure.store.clients import FIRST_FENCE, RunSight, RunStart
from perdure.telemetry import names
from perdure.telemetry.prometheus import Metrics
from perdure.worker.machine import Instruction, Machine, RunKey
from perdure.worker.settings import WorkerSettings


class Host(Protocol):
    """The registration whose slots are used."""

    id: str
    machine: Machine

    def takes_starts(self, queue: str) -> bool:
        """Whether it holds its lease, no run is known to wait for a slot, and the queue is not known to have limits."""
        ...

    def carry_out(self, instructions: list[Instruction]) -> None:
        """Do what the machine says."""
        ...


@dataclass(frozen=True, slots=True)
class Slot:
    """See `perdure.client.resident`."""

    host: Host
    version: str
    run_id: str
    queue: str
    metrics: Metrics

    @property
    def worker_id(self) -> str:
        """Whose slot it is."""
        return self.host.id

    def answered(self, run: ClaimedRun | None) -> None:
        """The run was created and taken: it begins. None: it was not."""
        if run is not None:
            self.metrics.count(names.CLAIMED_RUNS, self.queue)
        self.host.carry_out(self.host.machine.start_answered(self.run_id, run))

    def failed(self) -> None:
        """It is not known whether it was created."""
        self.host.carry_out(self.host.machine.start_failed(RunKey(self.run_id, FIRST_FENCE)))


class Residence:
    """See the module; one for each worker, over all its registrations."""

    def __init__(
        self, settings: WorkerSettings, manifest: tuple[str, ...], host: Callable[[], Host | None], metrics: Metrics
    ) -> None:
        self._settings = settings
        self._manifest = frozenset(manifest)
        self._host = host
        self._metrics = metrics
        self._ears: list[tuple[Callable[[RunSight], None], Callable[[str], None]]] = []

    def reserve(self, namespace: str, start: RunStart) -> Slot | None:
        """See `perdure.client.resident`."""
        host, settings = self._host(), self._settings
        if (
            host is None
            or (namespace, start.pool) != (settings.namespace, settings.pool)
            or start.queue not in settings.queues
            or start.partition_key
            or start.delay is not None
            or workflow_requirement(start.workflow) not in self._manifest
            or not host.takes_starts(start.queue)
            or host.machine.free <= 0
            or host.machine.starting(start.id)
        ):
            return None
        host.machine.start_sent(start.id)
        return Slot(host, settings.version, start.id, start.queue, self._metrics)

    def subscribe(self, ended: Callable[[RunSight], None], maybe: Callable[[str], None]) -> Callable[[], None]:
        """See `perdure.client.resident`."""
        ears = (ended, maybe)
        self._ears.append(ears)
        return lambda: self._ears.remove(ears) if ears in self._ears else None

    def settled(self, run: ClaimedRun, status: RunStatus, ending: Ending) -> None:
        """A run of this worker has ended, durably, or is no longer its own: whoever waits for it asks the database."""
        if not self._ears:
            return
        sight = sight_of(run, status, ending)
        for ended, maybe in tuple(self._ears):
            if sight is None:
                maybe(run.id)
            else:
                ended(sight)


def sight_of(run: ClaimedRun, status: RunStatus, ending: Ending) -> RunSight | None:
    """What the row says now, where that is known without reading it."""
    output: str | None = None
    error: str | None = None
    match status, ending:
        case RunStatus.SUCCEEDED, Succeeded(text):
            output = text
        case RunStatus.FAILED, Failed(record):
            error = record.to_json()
        case _:
            return None
    return RunSight(
        id=run.id,
        workflow=run.workflow,
        status=status,
        armed=False,
        complete=True,
        output=output,
        error=error,
        cancel_reason=None,
        recoveries=run.recoveries,
    )
