"""Outcomes and durations of steps, entered into the metrics without looking them up for each.

Used by `journal`.
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

    __slots__ = ("count", "seconds")

    def __init__(self, metrics: Metrics, workflow: str, step: str) -> None:
        self.seconds = metrics.observer(names.STEP_SECONDS, workflow, step)
        self.count = {
            status: metrics.counter(names.STEPS, workflow, step, outcome) for status, outcome in _OUTCOMES.items()
        }


class Meters:
    """See the module. Not thread-safe: everything happens on the worker's loop."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._meters: dict[tuple[str, str], _Meter] = {}

    def note(self, workflow: str, step: str, status: StepStatus, seconds: float | None) -> None:
        """An attempt has ended like this, `seconds` after its start was durable. No outcome: nothing is noted."""
        if status not in _OUTCOMES:
            return
        meter = self._meters.get((workflow, step))
        if meter is None:
            if len(self._meters) >= MAX_METERS:
                self._meters.clear()
            meter = self._meters[workflow, step] = _Meter(self._metrics, workflow, step)
        meter.count[status](1.0)
        if seconds is not None:
            meter.seconds(seconds)
