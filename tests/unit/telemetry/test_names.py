"""The declarations keep the conventions that dashboards and alerts rely on, and the page tells of all of them."""

import re
from pathlib import Path

import pytest
from perdure.telemetry import reference
from perdure.telemetry.names import Component, Kind, Metric, declared

ROOT = Path(__file__).parents[3]
UNBOUNDED = {"run", "run_id", "id", "name", "uid", "pod", "worker", "message", "error", "key"}


@pytest.mark.parametrize("metric", declared(), ids=lambda metric: metric.name)
def test_each_metric_keeps_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"perdure_[a-z_]+", metric.name)
    assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
    assert (metric.kind is Kind.HISTOGRAM) == bool(metric.buckets)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert not UNBOUNDED & set(metric.labels)
    assert len(metric.labels) == len(set(metric.labels)) <= 3
    assert metric.help.endswith(".")
    assert metric.emitted_by


def test_names_are_declared_once() -> None:
    names = [metric.name for metric in declared()]
    assert len(names) == len(set(names))


def test_a_component_gets_what_it_emits() -> None:
    worker, operator = declared(Component.WORKER), declared(Component.OPERATOR)
    assert set(worker) | set(operator) == set(declared())
    assert "perdure_step_duration_seconds" in {metric.name for metric in worker}
    assert "perdure_step_duration_seconds" not in {metric.name for metric in operator}


def test_the_page_equals_the_declarations() -> None:
    page = ROOT / "docs" / "reference" / "metrics.md"
    assert page.read_text(encoding="utf-8") == reference.render(), (
        "run: python -m perdure.telemetry.reference docs/reference/metrics.md"
    )
