"""The six alerts: rules that promtool takes, that fire and stay silent, over metrics that exist, with a runbook."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from perdure.telemetry import names

from tests.chart import cases
from tests.support import helm
from tests.support.helm import APP_CHART, ROOT
from tests.support.tiers import unavailable

RULES = {path.stem: path for path in sorted((APP_CHART / "alerts").glob("*.yaml"))}
TESTS = Path(__file__).parent / "alerts"
THRESHOLD = re.compile(r"([0-9.]+) # threshold: (\w+)\n")
# What a scrape itself adds, or what a rule makes.
SCRAPE_LABELS = {"namespace", "instance", "pod"}
HEADINGS = ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"]
EVERY_ALERT = {"metrics": {"prometheusRule": {"enabled": True}}}


def rule(path: Path) -> dict[str, Any]:
    (group,) = yaml.safe_load(path.read_text())["groups"]
    (found,) = group["rules"]
    assert group["name"] == f"perdure-{path.stem}"
    assert isinstance(found, dict)
    return found


def camel_case(name: str) -> str:
    first, *rest = name.split("-")
    return first + "".join(part.capitalize() for part in rest)


def promtool(*arguments: str | Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        unavailable("chart", "promtool is missing: it is in Debian's package prometheus")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_six() -> None:
    assert len(RULES) == 6


@pytest.mark.parametrize("name", RULES)
def test_promtool_takes_the_plain_file(name: str) -> None:
    promtool("check", "rules", RULES[name])


@pytest.mark.parametrize("name", RULES)
def test_it_fires_and_stays_silent(name: str) -> None:
    path = TESTS / f"{name}.yaml"
    wanted = [
        bool(case["exp_alerts"])
        for test in yaml.safe_load(path.read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    assert {True, False} == set(wanted), "there must be a case for each"
    promtool("test", "rules", path)


@pytest.mark.parametrize("name", RULES)
def test_its_metrics_and_labels_are_declared(name: str) -> None:
    expression = rule(RULES[name])["expr"]
    declared = {metric.name: set(metric.labels) for metric in names.declared()}
    used = set(re.findall(r"\bperdure_\w+", expression))
    assert used
    assert used <= declared.keys()
    labels = set(re.findall(r"(\w+)=~?\"", expression))
    for listed in re.findall(r"(?:by|on) ?\(([^)]*)\)", expression):
        labels.update(label.strip() for label in listed.split(","))
    assert labels <= SCRAPE_LABELS.union(*(declared[metric] for metric in used))


@pytest.mark.parametrize("name", RULES)
def test_the_series_of_its_test_are_declared(name: str) -> None:
    declared = {metric.name: set(metric.labels) for metric in names.declared()}
    for series in re.findall(r"series: (perdure_.*)", (TESTS / f"{name}.yaml").read_text()):
        metric, _, labels = series.partition("{")
        assert set(re.findall(r"(\w+)=\"", labels)) <= declared[metric] | SCRAPE_LABELS


@pytest.mark.parametrize("name", RULES)
def test_it_has_a_runbook_with_all_its_parts(name: str) -> None:
    found = rule(RULES[name])
    path = ROOT / found["annotations"]["runbook_url"]
    assert path == ROOT / "docs" / "runbooks" / f"{name}.md"
    lines = path.read_text().splitlines()
    assert lines[0] == f"# {found['alert']}"
    assert [line for line in lines if line.startswith("## ")] == HEADINGS


def test_no_runbook_is_left_over() -> None:
    assert {path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")} == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_the_plain_file_and_the_values_have_the_same_defaults(name: str) -> None:
    """Who loads the files without Helm gets what Helm renders by default."""
    found = rule(RULES[name])
    values = yaml.safe_load((APP_CHART / "values.yaml").read_text())["metrics"]["prometheusRule"]["alerts"]
    settings = values[camel_case(name)]
    assert settings["for"] == found["for"]
    assert settings["severity"] == found["labels"]["severity"]
    assert {key: float(number) for number, key in THRESHOLD.findall(found["expr"])} == settings["thresholds"]


def test_by_default_the_chart_renders_the_plain_files() -> None:
    rendered = helm.only(cases.render({**cases.SMALLEST, **EVERY_ALERT}), "PrometheusRule")
    assert rendered["spec"]["groups"] == [yaml.safe_load(path.read_text())["groups"][0] for path in RULES.values()]


def test_values_reach_the_rules() -> None:
    groups = helm.only(cases.objects("everything"), "PrometheusRule")["spec"]["groups"]
    rules = {group["name"].removeprefix("perdure-"): group["rules"][0] for group in groups}
    thresholds = {name: dict(map(reversed, THRESHOLD.findall(each["expr"]))) for name, each in rules.items()}
    assert thresholds == {
        "runs-failing": {"failureRatio": "0.25", "minimumFailed": "10"},
        "undo-incomplete": {"runs": "3"},
        "no-worker": {"readyRuns": "5"},
        "oldest-ready": {"seconds": "60"},
        "leases-expiring": {"expiries": "10"},
        "operator-not-reconciling": {"resyncAgeSeconds": "1800", "errorRatio": "0.75"},
    }
    for name, each in rules.items():
        assert each["for"] == "1m"
        assert each["labels"]["team"] == "platform"
        assert each["annotations"]["runbook_url"] == f"https://runbooks.example.com/docs/runbooks/{name}.md"
    assert rules["no-worker"]["labels"]["severity"] == "warning"


@pytest.mark.parametrize("name", RULES)
def test_an_alert_can_be_switched_off(name: str) -> None:
    switches = {"metrics": {"prometheusRule": {"enabled": True, "alerts": {camel_case(name): {"enabled": False}}}}}
    rendered = helm.only(cases.render({**cases.SMALLEST, **switches}), "PrometheusRule")
    there = {group["name"].removeprefix("perdure-") for group in rendered["spec"]["groups"]}
    assert there == RULES.keys() - {name}


def test_what_is_rendered_is_taken_by_promtool(tmp_path: Path) -> None:
    rendered = helm.only(cases.objects("everything"), "PrometheusRule")
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(rendered["spec"]))
    promtool("check", "rules", path)


def test_monitors_select_the_pods_by_labels_and_port_that_they_have() -> None:
    found = cases.render({**cases.SMALLEST, "metrics": {"podMonitor": {"enabled": True}}})
    operator = helm.only(found, "PodMonitor", "demo-perdure-operator")["spec"]
    template = helm.only(found, "Deployment")["spec"]["template"]
    assert operator["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert operator["namespaceSelector"] == {"matchNames": ["perdure-system"]}
    ports = [port["name"] for port in template["spec"]["containers"][0]["ports"]]
    workers = helm.only(found, "PodMonitor", "demo-perdure-workers")["spec"]
    for endpoint in (*operator["podMetricsEndpoints"], *workers["podMetricsEndpoints"]):
        assert endpoint["port"] in ports
        # Else the operator's own namespace would replace that of the runs it reports about.
        assert endpoint["honorLabels"] is True


def test_workers_are_found_in_every_watched_namespace() -> None:
    values = {**cases.SMALLEST, "watchNamespaces": ["a", "b"], "metrics": {"podMonitor": {"enabled": True}}}
    workers = helm.only(cases.render(values), "PodMonitor", "demo-perdure-workers")["spec"]
    assert workers["namespaceSelector"] == {"matchNames": ["a", "b"]}
    assert workers["selector"] == {"matchExpressions": [{"key": "perdure.dev/pool", "operator": "Exists"}]}
