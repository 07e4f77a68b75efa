"""What people read after `helm install`: what to do next, and what is risky about their values."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart import cases
from tests.support import helm


def test_they_say_how_to_go_on(tmp_path: Path) -> None:
    text = helm.notes(tmp_path, overrides={**cases.SMALLEST, "watchNamespaces": ["a", "b"]})
    assert "kubectl -n perdure-system rollout status deployment/demo-perdure-operator" in text
    assert "serves Workflows in: a, b" in text
    assert "kubectl -n a get workflows --watch" in text
    assert "WARNING" not in text


def test_the_resource_in_them_is_a_workflow(tmp_path: Path) -> None:
    from perdure.resources.common import API_VERSION

    text = helm.notes(tmp_path, overrides=cases.SMALLEST)
    example = yaml.safe_load(text.partition("<<END\n")[2].partition("\n  END")[0])
    assert example["apiVersion"] == API_VERSION
    assert example["kind"] == "Workflow"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (cases.THROWAWAY, "WARNING  database.throwaway.enabled: this Postgres is for a first look only"),
        ({**cases.SMALLEST, "rbac": {"create": False}}, "WARNING  rbac.create is off"),
        ({**cases.SMALLEST, "podDisruptionBudget": {"enabled": True}}, "WARNING  podDisruptionBudget with one replica"),
        (
            {
                "database": {"host": "db", "sslMode": "prefer", "passwordSecret": {"name": "p"}},
                "workerDefaults": {"databaseSecret": {"name": "w"}},
            },
            "WARNING  database.sslMode prefer",
        ),
        (cases.SMALLEST, "Worker pods read the Secret app-db (key uri: a connection URI)."),
        (
            {**cases.SMALLEST, "watchNamespaces": ["a"]},
            "The operator reads app-db in perdure-system.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_they_warn(values: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    assert sentence in helm.notes(tmp_path, overrides=values)
