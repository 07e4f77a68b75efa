"""The generated files are what the models say, and what the models say fits."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from perdure.resources import crdgen
from perdure.resources.conditions import (
    CONDITION_MEANINGS,
    REASON_MEANINGS,
    WAIT_MEANINGS,
    PoolCondition,
    Reason,
    SignalCondition,
    WaitKind,
    WorkflowCondition,
)
from perdure.resources.kinds import KINDS, WORKER_POOL, WORKFLOW, Kind
from perdure.resources.waits import PHRASES

ROOT = Path(__file__).parents[3]
MAX_JSON = 200_000
EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)


def test_the_files_in_the_repository_are_what_the_models_say() -> None:
    assert crdgen.drifted(ROOT) == [], "run python -m perdure.resources.crdgen --write"


def test_drift_is_found_in_changed_missing_and_surplus_files(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    assert crdgen.main(["--write", "--root", str(tmp_path)]) == 0
    changed = tmp_path / "crds" / "perdure.dev_workflows.yaml"
    changed.write_text(changed.read_text().replace("maxItems: 100", "maxItems: 101"))
    (tmp_path / "docs" / "reference" / "resources.md").unlink()
    (tmp_path / "charts" / "perdure-crds" / "templates" / "old.yaml").touch()
    assert crdgen.drifted(tmp_path) == [
        "charts/perdure-crds/templates/old.yaml",
        "crds/perdure.dev_workflows.yaml",
        "docs/reference/resources.md",
    ]
    assert crdgen.main(["--check", "--root", str(tmp_path)]) == 1


def test_outside_the_repository_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        crdgen.main(["--check", "--root", str(tmp_path)])
    assert "not the root of the repository" in capsys.readouterr().err


@EVERY_KIND
def test_a_definition_is_small_enough_for_a_client_side_apply(kind: Kind) -> None:
    assert len(json.dumps(crdgen.crd(kind))) < MAX_JSON


@EVERY_KIND
def test_the_chart_holds_the_same_definition(kind: Kind) -> None:
    """As Helm renders it, done by hand: the only actions are escapes and the one for the metadata."""
    text = crdgen.template(kind)
    include = '  {{- include "perdure-crds.metadata" . | nindent 2 }}\n'
    assert include in text
    text = text.replace(include, "").replace('{{ "{{" }}', "\1").replace('{{ "}}" }}', "\2")
    assert "{{" not in text
    assert "}}" not in text
    assert yaml.safe_load(text.replace("\1", "{{").replace("\2", "}}")) == crdgen.crd(kind)


@EVERY_KIND
def test_every_field_is_explained_in_words_worth_reading(kind: Kind) -> None:
    for path, field in described(kind):
        text = field["description"]
        assert len(text) > 8, path
        assert text[0].isupper() or path.rsplit(".", 1)[-1] in text or text.startswith(("true:", "metadata")), path
        assert text.endswith((".", ">", "=", "{}.")), f"{path}: {text}"


@EVERY_KIND
def test_every_default_is_told(kind: Kind) -> None:
    for path, field in described(kind):
        if "default" in field and "properties" not in field:
            said = json.dumps(field["default"]).replace('"', "")
            assert f"Default {said}." in field["description"], path


@EVERY_KIND
def test_a_status_has_no_defaults(kind: Kind) -> None:
    """What is not known is absent; a default would be an observation that nobody has made."""
    assert [path for path, field in described(kind) if path.startswith("status") and "default" in field] == []


def described(kind: Kind) -> Iterator[tuple[str, dict[str, Any]]]:
    properties = crdgen.schema(kind)["properties"]
    for part in ("spec", "status"):
        yield from fields(properties[part], part)


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        if f"{path}.{name}" != "spec.template":
            yield from fields(field, f"{path}.{name}")
            yield from fields(field.get("items", {}), f"{path}.{name}[]")


def test_every_word_that_programs_match_on_has_a_meaning() -> None:
    assert set(REASON_MEANINGS) == set(Reason)
    assert set(WAIT_MEANINGS) == set(PHRASES) == set(WaitKind)
    assert set(CONDITION_MEANINGS) == {*WorkflowCondition, *PoolCondition, *SignalCondition}


def test_the_reference_has_every_field_reason_and_wait() -> None:
    page = crdgen.files()["docs/reference/resources.md"]
    for kind in KINDS:
        for path, _ in described(kind):
            assert f"| `{path}` |" in page
    for word in (*Reason, *WaitKind, *WorkflowCondition, *SignalCondition):
        assert f"| `{word}` |" in page


def test_paths_on_the_api_server() -> None:
    assert WORKFLOW.path() == "/apis/perdure.dev/v1alpha1/workflows"
    assert WORKFLOW.path("shop", "a", "status") == "/apis/perdure.dev/v1alpha1/namespaces/shop/workflows/a/status"
    assert WORKER_POOL.crd_name == "workerpools.perdure.dev"
