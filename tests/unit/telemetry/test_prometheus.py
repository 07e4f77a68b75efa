"""Counters, gauges and histograms through the one wrapper: bounded labels, no state shared, readable by a scraper."""

from concurrent.futures import ThreadPoolExecutor

from perdure.telemetry import names
from perdure.telemetry.names import Kind, Metric, declared
from perdure.telemetry.prometheus import Metrics
from prometheus_client.parser import text_string_to_metric_families

JOBS = Metric("perdure_things_total", Kind.COUNTER, "Things.", ("workflow", "outcome"))
DEPTH = Metric("perdure_depth", Kind.GAUGE, "Depth.", ("queue",))
SECONDS = Metric("perdure_seconds", Kind.HISTOGRAM, "Seconds.", ("step",), (0.1, 1.0))
PLAIN = Metric("perdure_plain", Kind.GAUGE, "Plain.")


def test_every_declared_metric_can_be_built_and_scraped() -> None:
    metrics = Metrics(declared())
    for metric in declared():
        labels = ["x"] * len(metric.labels)
        if metric.kind is Kind.COUNTER:
            metrics.count(metric, *labels)
        elif metric.kind is Kind.GAUGE:
            metrics.set(metric, 1.0, *labels)
        else:
            metrics.observe(metric, 0.5, *labels)
    text = metrics.exposition().decode()
    families = {family.name for family in text_string_to_metric_families(text)}
    assert {metric.name.removesuffix("_total") for metric in declared()} <= families
    assert "process_resident_memory_bytes" in families


def test_two_objects_share_nothing() -> None:
    one, two = Metrics([JOBS]), Metrics([JOBS])
    one.count(JOBS, "w", "ok", by=3)
    assert one.value(JOBS, "w", "ok") == 3
    assert two.value(JOBS, "w", "ok") == 0


def test_values_beyond_the_cap_are_counted_as_other() -> None:
    metrics = Metrics([JOBS], max_label_values=2)
    for name in ("a", "b", "c", "d", "a"):
        metrics.count(JOBS, name, "ok")
    assert metrics.value(JOBS, "a", "ok") == 2
    assert metrics.value(JOBS, names.OTHER, "ok") == 2
    assert 'workflow="c"' not in metrics.exposition().decode()


def test_the_cap_is_one_for_each_label() -> None:
    metrics = Metrics([JOBS], max_label_values=2)
    for number in range(10):
        metrics.count(JOBS, "w", f"outcome{number}")
    assert metrics.value(JOBS, "w", names.OTHER) == 8


def test_replaced_series_disappear() -> None:
    metrics = Metrics([DEPTH])
    metrics.replace(DEPTH, {("a",): 1.0, ("b",): 2.0})
    metrics.replace(DEPTH, {("b",): 3.0})
    assert metrics.value(DEPTH, "b") == 3.0
    assert 'queue="a"' not in metrics.exposition().decode()


def test_replaced_series_beyond_the_cap_add_up() -> None:
    metrics = Metrics([DEPTH], max_label_values=1)
    metrics.replace(DEPTH, {("a",): 1.0, ("b",): 2.0, ("c",): 4.0})
    assert metrics.value(DEPTH, names.OTHER) == 6.0


def test_a_gauge_can_be_read_at_the_scrape() -> None:
    metrics = Metrics([PLAIN])
    age = 1.0
    metrics.read_from(PLAIN, lambda: age)
    age = 7.0
    assert metrics.value(PLAIN) == 7.0


def test_histograms_count_what_they_observe() -> None:
    metrics = Metrics([SECONDS])
    metrics.observe(SECONDS, 0.05, "s")
    metrics.observe(SECONDS, 5.0, "s")
    assert metrics.value(SECONDS, "s") == 2
    assert 'perdure_seconds_bucket{le="0.1",step="s"} 1.0' in metrics.exposition().decode()


def test_no_value_of_a_histogram_is_lost_however_many_there_are_and_from_which_thread() -> None:
    metrics = Metrics([SECONDS])
    add = metrics.observer(SECONDS, "s")
    with ThreadPoolExecutor(4) as threads:
        for _ in range(4):
            threads.submit(lambda: [add(0.5) for _ in range(1234)])
    assert metrics.value(SECONDS, "s") == 4 * 1234
    text = metrics.exposition().decode()
    assert 'perdure_seconds_bucket{le="0.1",step="s"} 0.0' in text
    assert 'perdure_seconds_bucket{le="1.0",step="s"} 4936.0' in text
    assert 'perdure_seconds_sum{step="s"} 2468.0' in text
