"""The goals for the speed of the engine, and how far each is met: pure, from the lines of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.figures import significant
from benchmarks.part import table
from benchmarks.parts import bare, claims, drain, latency, peers, recovery, sleepers
from benchmarks.results import Results

Choose = Callable[[Iterable[float]], float]


@dataclass(frozen=True)
class Limit:
    """What is wanted of a number; `unit` x is a ratio."""

    number: float
    at_least: bool = False
    unit: str = "x"


AT_LEAST_DBOS_PYTHON = Limit(100, at_least=True)
AT_LEAST_BEST_PEER = Limit(10, at_least=True)
AT_LEAST_BARE = Limit(0.6, at_least=True)
AT_LEAST_HELD = Limit(0.8, at_least=True)
AT_MOST_PEERS_CPU = Limit(0.1)
AT_MOST_COMMITS = Limit(1.5)
AT_MOST_PEERS_LATENCY = Limit(1.0)
AT_MOST_P99 = Limit(3.0)
AT_MOST_CLAIM = Limit(1.3)
FLAT = Limit(1.05)
"""But for what the allocator does from one look to the next."""
FRESH = Limit(1000, unit=" ms")
"""A run that waits longer than a poll behind the waking ones is starved."""
OVER_LEASE = Limit(1.0, unit=" s")
WITH_PROOF = Limit(2.0, unit=" s")


@dataclass(frozen=True)
class Goal:
    """One goal. `measured` None: what it compares was not taken, or not in one run; `why` says which."""

    text: str
    limit: Limit
    measured: float | None
    why: str = ""

    @property
    def met(self) -> bool | None:
        """None: nobody knows."""
        if self.measured is None:
            return None
        return self.measured >= self.limit.number if self.limit.at_least else self.measured <= self.limit.number

    @property
    def verdict(self) -> str:
        """Met or missed, and by how much of the limit."""
        if self.measured is None:
            return f"not known: {self.why}"
        distance = f"{abs(self.measured - self.limit.number) / self.limit.number:.0%}"
        return f"met, {distance} to spare" if self.met else f"**missed by {distance}**"


@dataclass(frozen=True)
class Value:
    """A median of a part; None where it was not taken."""

    part: str
    number: float | None


def goals(results: Results) -> list[Goal]:
    """All of them, in the order of the table."""

    def of(part: str, case: str, name: str, subject: str = drain.SUBJECT) -> Value:
        line = results.line(part, subject, case)
        return Value(part, None if line is None else line.median(name))

    def best(choose: Choose, part: str, name: str, subject: str | None = None) -> Value:
        found = [line.median(name) for line in results.lines(part) if subject in (None, line.subject)]
        numbers = [number for number in found if number is not None]
        return Value(part, choose(numbers) if numbers else None)

    def ratio(text: str, limit: Limit, value: Value, other: Value) -> Goal:
        missing = [each.part for each in (value, other) if each.number is None]
        if missing or not other.number or value.number is None:
            return Goal(text, limit, None, f"no number of {' or '.join(dict.fromkeys(missing))}")
        if not results.comparable([value.part, other.part]):
            return Goal(text, limit, None, f"{value.part} and {other.part} were taken in different runs")
        return Goal(text, limit, value.number / other.number)

    def alone(text: str, limit: Limit, value: Value, less: float | None = 0.0) -> Goal:
        if value.number is None or less is None:
            return Goal(text, limit, None, f"no number of {value.part}")
        return Goal(text, limit, value.number - less)

    steps = best(max, "drain", "steps_per_second")
    p50 = of("latency", latency.HERE, "p50_ms")
    asleep = [line.case for line in results.lines("sleepers") if line.case.endswith(f" {sleepers.ASLEEP}")]
    return [
        ratio(
            "steps/s against DBOS Python",
            AT_LEAST_DBOS_PYTHON,
            steps,
            best(max, "peers", "steps_per_second", peers.DBOS_PYTHON),
        ),
        ratio("steps/s against the best peer", AT_LEAST_BEST_PEER, steps, best(max, "peers", "steps_per_second")),
        ratio(
            "steps/s against the bare writer",
            AT_LEAST_BARE,
            steps,
            best(max, "bare", "steps_per_second", bare.WRITER),
        ),
        ratio(
            "CPU-s a step against the best peer",
            AT_MOST_PEERS_CPU,
            best(min, "drain", "cpu"),
            best(min, "peers", "cpu"),
        ),
        ratio(
            f"p50 of a run against {bare.RUN_COMMITS} bare commits",
            AT_MOST_COMMITS,
            p50,
            of("bare", bare.RUN, "p50_ms", bare.COMMITS),
        ),
        ratio("p50 of a run against the fastest peer", AT_MOST_PEERS_LATENCY, p50, best(min, "peers", "p50_ms")),
        ratio("p99 of a run against its p50", AT_MOST_P99, of("latency", latency.HERE, "p99_ms"), p50),
        *(
            ratio(
                f"claim of {limit} runs, many rows against few",
                AT_MOST_CLAIM,
                *(of("claims", claims.case(limit, rows), "p50_ms") for rows in (claims.LARGE, claims.SMALL)),
            )
            for limit in claims.LIMITS
        ),
        ratio(
            "steps/s with a held horizon against without",
            AT_LEAST_HELD,
            *(of("claims", case, "steps_per_second") for case in (claims.HELD, claims.FREE)),
        ),
        ratio(
            "memory of a worker, all asleep against none",
            FLAT,
            *(of("sleepers", case, "worker_mb") for case in (asleep[0] if asleep else "", sleepers.IDLE)),
        ),
        alone("p99 of fresh runs while many wake", FRESH, of("sleepers", sleepers.WAKING, "p99_ms")),
        alone(
            "recovery by lease alone, p99 over the lease",
            OVER_LEASE,
            of("recovery", recovery.LEASE, "p99_s"),
            of("recovery", recovery.LEASE, "lease").number,
        ),
        alone("recovery with proof of death, p99", WITH_PROOF, of("recovery", recovery.PROOF, "p99_s")),
    ]


def goals_table(found: Sequence[Goal]) -> str:
    """As Markdown."""
    cells = [["goal", "wanted", "measured", "verdict"]]
    for goal in found:
        limit = goal.limit
        wanted = f"{'at least' if limit.at_least else 'at most'} {significant(limit.number)}{limit.unit}"
        measured = "" if goal.measured is None else f"{significant(goal.measured)}{limit.unit}"
        cells.append([goal.text, wanted, measured, goal.verdict])
    return table(cells, numeric=(1, 2))
