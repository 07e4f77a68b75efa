import pytest

from benchmarks.goals import Goal, Limit, goals, goals_table
from benchmarks.parts import PARTS, bare, claims, latency, peers, recovery, sleepers
from benchmarks.results import PartResult, Results, Row, aggregate

ROWS = {
    "drain": [
        Row("perdure", "64 slots", {"steps_per_second": 9_000, "cpu": 0.1}),
        Row("perdure", "1000 slots", {"steps_per_second": 12_000, "cpu": 0.12}),
    ],
    "bare": [
        Row(bare.WRITER, "1000 slots", {"steps_per_second": 20_000, "cpu": 0.05}),
        Row(bare.COMMITS, "one", {"p50_ms": 0.6}),
        Row(bare.COMMITS, bare.RUN, {"p50_ms": 5.0}),
    ],
    "latency": [Row("perdure", latency.HERE, {"p50_ms": 10.0, "p99_ms": 20.0})],
    "peers": [
        Row(peers.DBOS_PYTHON, "drain, from a queue", {"steps_per_second": 100, "cpu": 10.0}),
        Row(peers.DBOS_PYTHON, "drain, started directly", {"steps_per_second": 150, "cpu": 8.0}),
        Row("Other", "drain", {"steps_per_second": 1_000, "cpu": 2.0}),
        Row("Other", "one run", {"p50_ms": 12.5}),
        Row("Absent", "", {}, "no compiler"),
    ],
    "claims": [
        *(Row("perdure", claims.case(limit, claims.SMALL), {"p50_ms": 1.0}) for limit in claims.LIMITS),
        *(Row("perdure", claims.case(limit, claims.LARGE), {"p50_ms": 2.0}) for limit in claims.LIMITS),
        Row("perdure", claims.FREE, {"steps_per_second": 100}),
        Row("perdure", claims.HELD, {"steps_per_second": 90}),
    ],
    "sleepers": [
        Row("perdure", sleepers.IDLE, {"worker_mb": 50}),
        Row("perdure", f"100,000 {sleepers.ASLEEP}", {"worker_mb": 51}),
        Row("perdure", sleepers.WAKING, {"p99_ms": 400}),
    ],
    "recovery": [
        Row("perdure", recovery.LEASE, {"p99_s": 3.5, "lease": 2.0}),
        Row("perdure", recovery.PROOF, {"p99_s": 0.5, "lease": 30.0}),
    ],
}


def results(runs: dict[str, str] | None = None) -> Results:
    parts = {name: PartResult((runs or {}).get(name, "one"), aggregate(rows)) for name, rows in ROWS.items()}
    return Results("full", {}, parts)


def measured(found: list[Goal]) -> dict[str, float | None]:
    return {goal.text: goal.measured for goal in found}


def test_each_goal_is_the_ratio_that_it_names() -> None:
    assert measured(goals(results())) == {
        "steps/s against DBOS Python": 80.0,
        "steps/s against the best peer": 12.0,
        "steps/s against the bare writer": 0.6,
        "CPU-s a step against the best peer": 0.05,
        "p50 of a run against 7 bare commits": 2.0,
        "p50 of a run against the fastest peer": 0.8,
        "p99 of a run against its p50": 2.0,
        "claim of 4 runs, many rows against few": 2.0,
        "claim of 100 runs, many rows against few": 2.0,
        "steps/s with a held horizon against without": 0.9,
        "memory of a worker, all asleep against none": 1.02,
        "p99 of fresh runs while many wake": 400,
        "recovery by lease alone, p99 over the lease": 1.5,
        "recovery with proof of death, p99": 0.5,
    }


def test_a_goal_whose_parts_are_of_different_runs_is_not_known() -> None:
    found = {goal.text: goal for goal in goals(results({"bare": "two"}))}
    assert found["steps/s against the bare writer"].met is None
    assert "different runs" in found["steps/s against the bare writer"].verdict
    assert found["steps/s against DBOS Python"].measured == 80.0


def test_a_goal_without_its_numbers_is_not_known() -> None:
    assert set(measured(goals(Results("full", {}, {}))).values()) == {None}


@pytest.mark.parametrize(
    ("limit", "value", "verdict"),
    [
        (Limit(100, at_least=True), 150.0, "met, 50% to spare"),
        (Limit(100, at_least=True), 80.0, "**missed by 20%**"),
        (Limit(2.0), 1.0, "met, 50% to spare"),
        (Limit(2.0), 3.0, "**missed by 50%**"),
        (Limit(0.6, at_least=True), 0.6, "met, 0% to spare"),
    ],
)
def test_a_verdict_says_by_how_much(limit: Limit, value: float, verdict: str) -> None:
    assert Goal("it", limit, value).verdict == verdict


def test_the_table_has_a_row_for_each_goal() -> None:
    found = goals(results())
    lines = goals_table(found).splitlines()
    assert len(lines) == len(found) + 2
    assert "at least 100x" in lines[2]
    assert "missed by 20%" in lines[2]


def test_parts_have_names_of_their_own() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)
