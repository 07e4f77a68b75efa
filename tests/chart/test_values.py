"""values.yaml, its schema, its table in the README and the templates agree; wrong values are refused in words."""

import json
from typing import Any

import pytest
import yaml

from tests.chart import cases
from tests.support import helm
from tests.support.helm import APP_CHART, HelmFailed

BEGIN, END = "<!-- values -->", "<!-- end of values -->"
NOT_VALUES = {"enabled"}


def test_every_value_has_a_comment_that_says_what_it_is() -> None:
    for value in cases.values():
        assert value.comment.endswith("."), f"{value.name}: {value.comment!r}"


def test_the_schema_knows_exactly_the_values() -> None:
    def names(node: Any, path: tuple[str, ...]) -> set[str]:
        node = cases.schema_of(node)
        if node.get("additionalProperties") is not False or "properties" not in node:
            return {".".join(path)}
        return set().union(*(names(inner, (*path, key)) for key, inner in node["properties"].items()))

    assert names(cases.schema(), ()) - NOT_VALUES == {value.name for value in cases.values()}


@pytest.mark.parametrize("value", cases.values(), ids=lambda value: value.name)
def test_every_value_changes_what_is_rendered(value: cases.Value) -> None:
    """Some file in ci/ sets it, and without that setting something else is rendered: no value is without effect."""
    for case, path in cases.CI_VALUES.items():
        tree = yaml.safe_load(path.read_text())
        given = cases.value_at(tree, value.path)
        if given is None or given == value.default:
            continue
        cases.value_at(tree, value.path[:-1]).pop(value.path[-1])
        try:
            without = helm.template(overrides=tree)
        except HelmFailed:
            return  # it cannot even be left out
        if without != cases.rendered(case):
            return
    pytest.fail(f"no file in ci/ sets {value.name} to anything that shows")


def test_the_readme_lists_the_values() -> None:
    readme = APP_CHART / "README.md"
    before, begin, rest = readme.read_text().partition(BEGIN)
    listed, end, after = rest.partition(END)
    assert begin
    assert end
    rows = ["", "", "| value | default | what it is |", "|---|---|---|"]
    rows += [f"| `{value.name}` | `{json.dumps(value.default)}` | {value.comment} |" for value in cases.values()]
    table = "\n".join([*rows, "", ""])
    if cases.UPDATE:
        readme.write_text(f"{before}{begin}{table}{end}{after}")
        listed = table
    assert listed == table, "`make golden` writes it anew"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replicaCount": "two"}, "at '/replicaCount': got string, want "),
        ({"databse": {}}, "additional properties 'databse' not allowed"),
        ({"image": {"tagg": "x"}}, "at '/image': additional properties 'tagg' not allowed"),
        ({"image": {"tag": "latest!"}}, "at '/image/tag': 'latest!' does not match pattern"),
        ({"image": {"repository": "registry.example.com/x:1"}}, "at '/image/repository': "),
        ({"image": {"digest": "0123"}}, "at '/image/digest': "),
        ({"image": {"pullPolicy": "always"}}, "value must be one of 'IfNotPresent', 'Always', 'Never'"),
        ({"imagePullSecrets": ["name"]}, "at '/imagePullSecrets/0': got string, want object"),
        ({"watchNamespaces": "team-a"}, "at '/watchNamespaces': got string, want array"),
        ({"watchNamespaces": ["*"]}, "at '/watchNamespaces/0': '*' does not match pattern"),
        ({"database": {"host": "postgresql://u:p@h/d"}}, "at '/database/host': "),
        ({"database": {"sslMode": "verify_full"}}, "at '/database/sslMode': value must be one of 'disable'"),
        ({"database": {"throwaway": {"password": "a@b"}}}, "at '/database/throwaway/password': "),
        ({"workerDefaults": {"leaseSeconds": 0}}, "at '/workerDefaults/leaseSeconds': minimum: got 0, want 5"),
        ({"metrics": {"port": 99999}}, "at '/metrics/port': maximum: got 99,999, want 65,535"),
        ({"commonLabels": {"a": 1}}, "at '/commonLabels/a': got number, want string"),
        ({"extraEnv": {"A": "b"}}, "at '/extraEnv': got object, want array"),
        ({"extraObjects": [{"kind": "Secret"}]}, "at '/extraObjects/0': missing properties 'apiVersion', 'metadata'"),
        (
            {"metrics": {"prometheusRule": {"alerts": {"noSuchAlert": {}}}}},
            "at '/metrics/prometheusRule/alerts': additional properties 'noSuchAlert' not allowed",
        ),
        (
            {"metrics": {"prometheusRule": {"alerts": {"runsFailing": {"thresholds": {"failureRatio": 25}}}}}},
            "maximum: got 25, want 1",
        ),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_its_path(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmFailed) as refused:
        helm.template(values=[cases.CI_VALUES["existing-secret"]], overrides=values)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "set exactly one of database.existingSecret"),
        ({"database": {"existingSecret": "a", "throwaway": {"enabled": True}}}, "set exactly one of"),
        ({"database": {"host": "db"}}, "database.host needs database.passwordSecret.name"),
        ({"database": {"host": "db", "passwordSecret": {"name": "p"}}}, "needs workerDefaults.databaseSecret.name"),
        (
            {
                "database": {"host": "db", "passwordSecret": {"name": "p"}},
                "workerDefaults": {"databaseSecret": {"name": "w"}},
            },
            "database.sslMode verify-full needs database.caSecret.name",
        ),
        (
            {**cases.SMALLEST, "serviceAccount": {"create": False}},
            "serviceAccount.name is needed when serviceAccount.create is false",
        ),
    ],
    ids=str,
)
def test_values_that_do_not_go_together_are_refused_with_what_to_do(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmFailed) as refused:
        helm.template(overrides=values)
    assert message in str(refused.value)


def test_thresholds_may_come_from_the_command_line() -> None:
    """`helm --set` makes a text of 0.5; a schema that wants a number would refuse it."""
    threshold = "metrics.prometheusRule.alerts.runsFailing.thresholds.failureRatio=0.5"
    arguments = ["--set", f"metrics.prometheusRule.enabled=true,{threshold}"]
    assert "0.5 # threshold: failureRatio" in helm.template(*arguments, overrides=cases.SMALLEST)


def test_it_may_be_a_part_of_another_chart() -> None:
    """Umbrella charts pass `global` and a condition such as `enabled` down; a strict schema must let them."""
    cases.render({**cases.SMALLEST, "enabled": True, "global": {"anything": {"at": "all"}}})
