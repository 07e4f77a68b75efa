import pytest

from benchmarks.figures import Sample, percentile, rates, significant, spread, steady


def sample(at: float, done: int, worker: float = 0.0, postgres: float = 0.0, memory: float = 0.0) -> Sample:
    return Sample(at, done, {"worker": worker, "postgres": postgres}, {"worker": memory})


def test_the_rate_is_that_of_the_steady_part() -> None:
    # A second of starting, then 100 runs a second, then a tail in which the slots run empty.
    ramp = [sample(0.0, 0), sample(1.0, 0), sample(2.0, 4)]
    even = [sample(3.0 + second, 100 * (second + 1)) for second in range(9)]
    tail = [sample(12.0, 999), sample(20.0, 1000)]
    found = rates([*ramp, *even, *tail], 1000, steps=5)
    assert found["runs_per_second"] == 100
    assert found["steps_per_second"] == 500
    assert found["seconds"] == 8


def test_costs_are_per_thousand_steps_and_apart() -> None:
    samples = [
        sample(second, 200 * second, worker=2.0 * second, postgres=second, memory=50 + second) for second in range(6)
    ]
    found = rates(samples, 100_000, steps=5)
    assert found["worker_cpu"] == 2
    assert found["postgres_cpu"] == 1
    assert found["cpu"] == 3
    assert found["worker_mb"] == 55


def test_a_drain_cut_off_by_time_is_steady_to_its_last_sample() -> None:
    samples = [sample(second, 100 * second) for second in range(11)]
    assert steady(samples, 1_000_000)[1] == samples[-1]


def test_a_drain_too_short_for_a_steady_part_counts_from_its_first_work_to_its_end() -> None:
    samples = [sample(0.0, 0), sample(1.0, 0), sample(2.0, 10), sample(3.0, 10)]
    first, last = steady(samples, 10)
    assert (first.at, last.at) == (1.0, 2.0)


@pytest.mark.parametrize("samples", [[], [sample(0.0, 0)], [sample(0.0, 0), sample(1.0, 0)], [sample(0.0, 5)]])
def test_a_drain_in_which_nothing_was_done_has_no_rate(samples: list[Sample]) -> None:
    with pytest.raises(ValueError, match="runs were done"):
        rates(samples, 10, steps=5)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([7.0], 50, 7.0), ([3.0, 1.0, 2.0], 50, 2.0), ([1.0, 2.0], 50, 1.0), (list(range(1, 101)), 99, 99),
     (list(range(1, 31)), 99, 30), (list(range(1, 1001)), 99, 990), ([1.0, 2.0], 100, 2.0)],
)  # fmt: skip
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(
    values: list[float], percent: float, expected: float
) -> None:
    assert percentile(values, percent) == expected


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no value"):
        percentile([], 50)


def test_a_spread_names_its_unit() -> None:
    assert spread([1.0, 3.0, 2.0], "ms") == {"p50_ms": 2.0, "p99_ms": 3.0, "max_ms": 3.0, "samples": 3.0}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12345.6, "12,346"), (999.4, "999"), (99.96, "100.0"), (12.34, "12.3"), (1.234, "1.23"),
     (0.0471, "0.047"), (-1.5, "-1.50"), (31.0, "31")],
)  # fmt: skip
def test_numbers_are_shown_with_the_digits_that_count(value: float, text: str) -> None:
    assert significant(value) == text
