"""Instruments built from `telemetry.names`, on a registry of their own. The only importer of prometheus_client.

One `Metrics` per process object (worker, operator): two workers in one test process do not share counters. All
methods may be called from any thread. Keeps the promise that labels are bounded: a value beyond the cap is counted
under `other`.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.samples import Sample

from perdure.telemetry.names import MAX_LABEL_VALUES, OTHER, Kind, Metric

Labels = tuple[str, ...]
_Instrument = Counter | Gauge | Histogram

MOST_GATHERED = 100
"""Values of a histogram that wait for the next look at it: so many are sorted in at little more than the cost of one,
and thousands of series keep a few megabytes."""


class _Counter(Counter):
    """A counter that is asked for nothing but to count: `add` does only that."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self.add: Callable[[float], None] = self._value.inc


class _Histogram(Histogram):
    """A histogram that sorts what it was given into its buckets when somebody looks, or when that has become much."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._gathered: list[float] = []
        self._sorting = Lock()

    def observe(self, amount: float, exemplar: Any = None) -> None:
        self._gathered.append(amount)
        if len(self._gathered) >= MOST_GATHERED:
            self._sort_in()

    def _child_samples(self) -> Iterable[Sample]:
        self._sort_in()
        return super()._child_samples()

    def _sort_in(self) -> None:
        with self._sorting:
            # Others may add to its end meanwhile.
            values = self._gathered[:]
            del self._gathered[: len(values)]
        counts: dict[int, int] = {}
        for value in values:
            place = bisect_left(self._upper_bounds, value)
            counts[place] = counts.get(place, 0) + 1
        self._sum.inc(sum(values))
        for place, count in counts.items():
            self._buckets[place].inc(count)


CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


class Metrics:
    """The metrics of one process object. Label values are given by position, in the order of the declaration."""

    def __init__(self, declared: Iterable[Metric], *, max_label_values: int = MAX_LABEL_VALUES) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        if platform.python_implementation() == "CPython":
            GCCollector(registry=self.registry)
        self._max = max_label_values
        self._parents: dict[str, _Instrument] = {metric.name: self._build(metric) for metric in declared}
        self._children: dict[tuple[str, Labels], Any] = {}
        """Looked up at each use. Of which kind one is was asked when it was made (`_child`): that takes longer."""
        self._seen: dict[tuple[str, int], set[str]] = {}

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Add to a counter."""
        (self._children.get((metric.name, labels)) or self._child(metric, labels, Kind.COUNTER)).add(by)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        (self._children.get((metric.name, labels)) or self._child(metric, labels, Kind.GAUGE)).set(value)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        (self._children.get((metric.name, labels)) or self._child(metric, labels, Kind.HISTOGRAM)).observe(value)

    def counter(self, metric: Metric, *labels: str) -> Callable[[float], None]:
        """What adds to this series: for places where looking it up each time would be felt."""
        add: Callable[[float], None] = self._child(metric, labels, Kind.COUNTER).add
        return add

    def observer(self, metric: Metric, *labels: str) -> Callable[[float], None]:
        """What adds a value to this series: see `counter`."""
        add: Callable[[float], None] = self._child(metric, labels, Kind.HISTOGRAM).observe
        return add

    def read_from(self, metric: Metric, read: Callable[[], float], *labels: str) -> None:
        """Let a gauge call `read` at every scrape. `read` must be quick and must not raise."""
        self._child(metric, labels, Kind.GAUGE).set_function(read)

    def replace(self, metric: Metric, values: Mapping[Labels, float]) -> None:
        """Set all series of a gauge at once; series that are not in `values` disappear. Beyond the cap they add up."""
        parent = self._parents[metric.name]
        assert isinstance(parent, Gauge)
        kept: dict[Labels, float] = {}
        seen: list[set[str]] = [set() for _ in metric.labels]
        for labels, value in values.items():
            bounded = tuple(_bounded(seen[place], item, self._max) for place, item in enumerate(labels))
            kept[bounded] = kept.get(bounded, 0.0) + value
        gone = {labels for name, labels in self._children if name == metric.name} - kept.keys()
        for labels in gone:
            del self._children[metric.name, labels]
            parent.remove(*labels)
        for labels, value in kept.items():
            child = parent.labels(*labels)
            self._children[metric.name, labels] = child
            child.set(value)

    def value(self, metric: Metric, *labels: str) -> float:
        """Current value of a counter or gauge, or the count of a histogram; 0 when nothing was recorded."""
        name = metric.name + ("_count" if metric.kind is Kind.HISTOGRAM else "")
        pairs = dict(zip(metric.labels, labels, strict=True))
        samples = (sample for family in self._parents[metric.name].collect() for sample in family.samples)
        return next((sample.value for sample in samples if sample.name == name and sample.labels == pairs), 0.0)

    def exposition(self) -> bytes:
        """What a scrape gets, in the format of `CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def _build(self, metric: Metric) -> _Instrument:
        if metric.kind is Kind.COUNTER:
            return _Counter(metric.name, metric.help, metric.labels, registry=self.registry)
        if metric.kind is Kind.GAUGE:
            return Gauge(metric.name, metric.help, metric.labels, registry=self.registry)
        return _Histogram(metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets)

    def _child(self, metric: Metric, labels: Labels, kind: Kind) -> Any:
        assert metric.kind is kind, f"{metric.name} is a {metric.kind}"
        parent = self._parents[metric.name]
        if not metric.labels:
            child = parent
        else:
            bounded = tuple(
                _bounded(self._seen.setdefault((metric.name, place), set()), item, self._max)
                for place, item in enumerate(labels)
            )
            child = parent.labels(*bounded)
            if bounded != labels:
                # Not remembered under the unbounded value: the map would grow without end.
                return child
        self._children[metric.name, labels] = child
        return child


def _bounded(seen: set[str], value: str, limit: int) -> str:
    if value in seen:
        return value
    if len(seen) >= limit:
        return OTHER
    seen.add(value)
    return value
