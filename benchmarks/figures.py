"""Pure arithmetic on samples: rates within the steady part of a drain, percentiles, medians of rounds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RAMP = 0.05
"""Share of a drain that is left out at either end: caches are cold in the beginning and slots empty in the end."""

LEAST_SAMPLES = 3
"""Fewer within the steady part say nothing; the whole drain is taken instead."""


@dataclass(frozen=True)
class Sample:
    """How a drain stood at one moment."""

    at: float
    """Seconds of a clock that never goes back."""
    done: int
    """Runs that have ended."""
    processor: Mapping[str, float]
    """Processor seconds so far, by who used them."""
    memory: Mapping[str, float]
    """Megabytes in use now."""


@dataclass(frozen=True)
class Figure:
    """A number as taken in several rounds."""

    median: float
    low: float
    high: float
    rounds: int


def steady(samples: Sequence[Sample], total: int) -> tuple[Sample, Sample]:
    """First and last sample of the steady part. Raises ValueError when nothing got done."""
    most = samples[-1].done if samples else 0
    inner = [sample for sample in samples if sample.done >= max(1.0, most * RAMP)]
    if most >= total:
        inner = [sample for sample in inner if sample.done <= total * (1 - RAMP)]
    if len(inner) < LEAST_SAMPLES:
        idle = [sample for sample in samples if sample.done == samples[0].done]
        inner = [idle[-1], next((each for each in samples if each.done == most), samples[-1])] if samples else []
    if len(inner) < 2 or inner[-1].done <= inner[0].done:
        raise ValueError(f"only {most} of {total} runs were done, in {len(samples)} samples")
    return inner[0], inner[-1]


def rates(samples: Sequence[Sample], total: int, steps: int) -> dict[str, float]:
    """What a drain of runs of `steps` steps comes to: rates, processor seconds per 1,000 steps, memory."""
    first, last = steady(samples, total)
    runs = last.done - first.done
    seconds = last.at - first.at
    thousands = runs * steps / 1000
    processor = {name: (last.processor[name] - first.processor[name]) / thousands for name in last.processor}
    return {
        "steps_per_second": runs * steps / seconds,
        "runs_per_second": runs / seconds,
        "cpu": sum(processor.values()),
        **{f"{name}_cpu": value for name, value in processor.items()},
        **{f"{name}_mb": max(sample.memory[name] for sample in samples) for name in last.memory},
        "seconds": seconds,
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed."""
    if not values:
        raise ValueError("there is no value")
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(0, int(rank) - 1)]


def spread(values: Sequence[float], unit: str) -> dict[str, float]:
    """p50, p99 and the greatest, named with their unit."""
    return {
        f"p50_{unit}": percentile(values, 50),
        f"p99_{unit}": percentile(values, 99),
        f"max_{unit}": max(values),
        "samples": float(len(values)),
    }


def figure(values: Sequence[float]) -> Figure:
    return Figure(statistics.median(values), min(values), max(values), len(values))


def significant(value: float) -> str:
    """Three digits that count, and thousands apart."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if value == int(value):
        return f"{value:.0f}"  # a count
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3
    return f"{value:.{digits}f}"
