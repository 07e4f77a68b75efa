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

FLOWS = Path(__file__).parent / "alert_flows.py"
POOL = "alerts"
NO_POOL = "no-such-pool"
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
                "noWorker": {"for": "0s"},
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


@pytest.fixture(scope="module")
def quiet(watched: Prometheus, rendered: list[helm.Resource]) -> dict[str, list[Any]]:
    """The firing alerts by name, before anything went wrong."""
    return {rule["alert"]: watched.alerts(rule["alert"]) for rule in rules_of(rendered)}


@pytest.fixture(scope="module")
def trouble(release: Release, watched: Prometheus, quiet: dict[str, list[Any]]) -> Prometheus:
    """One run that fails, half undone, and one that nobody can claim. Prometheus, which is to notice."""
    release.kubectl.apply([workflow("alert-failing", POOL), workflow("alert-waiting", NO_POOL)])
    done = release.kubectl.ask("wait", "--for=condition=Finished", "workflow/alert-failing", "--timeout=55s")
    assert done.returncode == 0, release.story("alert-failing")
    return watched


def workflow(name: str, pool: str) -> dict[str, Any]:
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": {"workerPool": pool, "workflow": "alerts.failing", "maxRunAttempts": 1},
    }


def rules_of(rendered: list[helm.Resource]) -> list[dict[str, Any]]:
    groups = helm.only(rendered, "PrometheusRule")["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_all_is_quiet_while_all_is_well(quiet: dict[str, list[Any]]) -> None:
    assert quiet == {name: [] for name in quiet}
    assert len(quiet) == 6


def test_a_failing_run_makes_its_alert_fire(release: Release, trouble: Prometheus) -> None:
    (alert,) = trouble.until("the alert", lambda: trouble.alerts("PerdureRunsFailing"), seconds=SECONDS)

    assert alert["labels"]["namespace"] == release.namespace
    assert alert["labels"]["workflow"] == "alerts.failing"
    assert alert["labels"]["severity"] == "warning"
    assert alert["annotations"]["runbook_url"] == "docs/runbooks/runs-failing.md"


def test_what_that_run_could_not_undo_makes_another_one_fire(release: Release, trouble: Prometheus) -> None:
    (alert,) = trouble.until("the alert", lambda: trouble.alerts("PerdureUndoIncomplete"), seconds=SECONDS)

    assert alert["labels"]["namespace"] == release.namespace
    assert alert["labels"]["workflow"] == "alerts.failing"
    assert alert["labels"]["severity"] == "critical"


def test_a_run_that_nobody_can_claim_makes_its_alert_fire(release: Release, trouble: Prometheus) -> None:
    """Labelled with the run's namespace and pool, not those of the operator that reports it: honorLabels."""
    (alert,) = trouble.until("the alert", lambda: trouble.alerts("PerdureNoWorker"), seconds=SECONDS)

    assert alert["labels"]["namespace"] == release.namespace
    assert alert["labels"]["pool"] == NO_POOL
    assert alert["labels"]["severity"] == "critical"


def test_every_metric_of_the_alerts_is_in_a_real_scrape(trouble: Prometheus, rendered: list[helm.Resource]) -> None:
    used = {name for rule in rules_of(rendered) for name in re.findall(r"perdure_\w+", rule["expr"])}
    for name in sorted(used):
        trouble.until_there(name, seconds=SECONDS)
    assert trouble.rule_problems() == []


def test_the_other_alerts_stay_silent(trouble: Prometheus, rendered: list[helm.Resource]) -> None:
    fire = {"PerdureRunsFailing", "PerdureUndoIncomplete", "PerdureNoWorker"}
    others = {rule["alert"] for rule in rules_of(rendered)} - fire
    assert {name: trouble.alerts(name) for name in others} == {name: [] for name in others}
