"""Outcomes and durations of steps, gathered and entered into the metrics once a statement of the journal.

Used by `journal`: an entry takes a lock and walks the buckets, which a batch of steps need do only once. A scrape is
late by what is gathered: at most until the next answer to the journal, and a run's own are in when its end is known.
"""

from __future__ import annotations

from perdure.model.states import StepStatus
from perdure.telemetry import names
from perdure.telemetry.prometheus import Metrics

MAX_METERS = 2000
"""Looked-up metrics that are kept: declared steps may have any name, so there could be ever more."""

_OUTCOMES = {StepStatus.SUCCEEDED: "succeeded", StepStatus.FAILED: "failed", StepStatus.RETRYING: "retrying"}


class _Meter:
    """One step of one workflow."""

    __slots__ = ("add", "count", "counts", "seconds")

    def __init__(self, metrics: Metrics, workflow: str, step: str) -> None:
        self.seconds: list[float] = []
        self.counts = dict.fromkeys(_OUTCOMES, 0)
        self.add = metrics.observer(names.STEP_SECONDS, workflow, step)
        self.count = {
            status: metrics.counter(names.STEPS, workflow, step, outcome) for status, outcome in _OUTCOMES.items()
        }

    def enter(self) -> None:
        """Into the metrics with what was gathered."""
        self.add(self.seconds)
        self.seconds.clear()
        for status, count in self.counts.items():
            if count:
                self.count[status](count)
                self.counts[status] = 0


class Meters:
    """See the module. Not thread-safe: everything happens on the worker's loop."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._meters: dict[tuple[str, str], _Meter] = {}
        self._gathered: set[_Meter] = set()

    def note(self, workflow: str, step: str, status: StepStatus, seconds: float | None) -> None:
        """An attempt has ended like this, `seconds` after its start was durable. No outcome: nothing is noted."""
        if status not in _OUTCOMES:
            return
        meter = self._meters.get((workflow, step))
        if meter is None:
            if len(self._meters) >= MAX_METERS:
                self.enter()
                self._meters.clear()
            meter = self._meters[workflow, step] = _Meter(self._metrics, workflow, step)
        meter.counts[status] += 1
        if seconds is not None:
            meter.seconds.append(seconds)
        self._gathered.add(meter)

    def enter(self) -> None:
        """Enter what was gathered."""
        for meter in self._gathered:
            meter.enter()
        self._gathered.clear()
