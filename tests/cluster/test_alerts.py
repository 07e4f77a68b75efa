"""A real Prometheus scrapes the real pods as the chart's monitors say, and the chart's alerts fire in it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import release as installed
from tests.cluster.release import Release
from tests.support import helm, prometheus
from tests.support.prometheus import Prometheus

FLOWS = Path(__file__).parent / "e2e_flows.py"
POOL = "alerts"
# From the first scrape after the event; the rest is for a machine that is busy with other tests.
SECONDS = 60.0
# What a person would wait for is cut short, and one failed run is enough.
SETTINGS: dict[str, Any] = {
    "database": {"throwaway": {"enabled": True}},
    "metrics": {
        "podMonitor": {"enabled": True},
        "prometheusRule": {
            "enabled": True,
            "alerts": {
                "runsFailing": {"for": "0s", "thresholds": {"minimumFailed": 1}},
                "operatorNotReconciling": {"for": "30s"},
            },
        },
    },
}


@pytest.fixture(scope="module")
def rendered() -> list[helm.Resource]:
    """The monitors and rules of the very release that is installed."""
    text = helm.template(overrides=SETTINGS, release=installed.NAME, namespace=installed.NAMESPACE)
    return helm.objects(text)


@pytest.fixture(scope="module")
def watched(
    release: Release, rendered: list[helm.Resource], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Prometheus, with the operator and one worker up in it."""
    release.worker_pool(POOL, FLOWS, scaling={"min": 1, "max": 1})
    monitors = [each for each in rendered if each["kind"] == "PodMonitor"]
    rules = helm.only(rendered, "PrometheusRule")
    folder = tmp_path_factory.mktemp("prometheus")
    with (
        release.api_proxy() as api_server,
        prometheus.running(folder, monitors=monitors, rules=rules, api_server=api_server) as running,
    ):
        for name in ("operator", "workers"):
            running.until_there(f'up{{job="{installed.NAMESPACE}/{installed.NAME}-{name}"}} == 1', seconds=SECONDS)
        yield running


def workflow(name: str, **spec: Any) -> dict[str, Any]:
    kind = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow"}
    return {**kind, "metadata": {"name": name}, "spec": {"workerPool": POOL, **spec}}


def test_a_failing_run_makes_its_alert_fire(release: Release, watched: Prometheus) -> None:
    assert watched.alerts("PerdureRunsFailing") == []
    release.kubectl.apply([workflow("alert-failing", workflow="e2e.failing")])
    release.kubectl.run("wait", "--for=jsonpath={.status.phase}=Failed", "workflow/alert-failing", "--timeout=60s")

    (alert,) = watched.until("the alert", lambda: watched.alerts("PerdureRunsFailing"), seconds=SECONDS)

    assert alert["labels"]["namespace"] == release.namespace
    assert alert["labels"]["workflow"] == "e2e.failing"
    assert alert["labels"]["severity"] == "warning"
    assert alert["annotations"]["runbook_url"] == "docs/runbooks/runs-failing.md"


def test_no_other_alert_fires_and_every_rule_can_be_evaluated(
    watched: Prometheus, rendered: list[helm.Resource]
) -> None:
    groups = helm.only(rendered, "PrometheusRule")["spec"]["groups"]
    names = {rule["alert"] for group in groups for rule in group["rules"]} - {"PerdureRunsFailing"}
    assert len(names) == 4
    assert [watched.alerts(name) for name in sorted(names)] == [[]] * 4
    assert watched.rule_problems() == []


def test_every_metric_of_the_alerts_is_in_a_real_scrape(watched: Prometheus, rendered: list[helm.Resource]) -> None:
    """The failed run before has been counted, so all of them must be there."""
    groups = helm.only(rendered, "PrometheusRule")["spec"]["groups"]
    used = {name for group in groups for rule in group["rules"] for name in re.findall(r"perdure_\w+", rule["expr"])}
    for name in sorted(used):
        watched.until_there(name, seconds=SECONDS)


def test_labels_of_the_operator_are_those_of_the_runs(release: Release, watched: Prometheus) -> None:
    """Not those of the operator's pod: that is what honorLabels is for."""
    query = f'perdure_pool_workers{{state="live", pool="{POOL}", namespace="{release.namespace}"}} == 1'
    watched.until_there(query, seconds=SECONDS)
