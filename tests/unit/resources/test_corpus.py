"""What the API server takes and what the models take is the same: shown on one corpus, here for the models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from perdure.resources.acceptance import (
    Accepted,
    Rejected,
    validate_worker_pool,
    validate_workflow,
    validate_workflow_signal,
)

from tests.reconcile.corpus import Case, cases

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(path for path in (ROOT / "examples").rglob("*.yaml") if path.name != "kustomization.yaml")


def validate(obj: Mapping[str, Any]) -> Accepted[Any] | Rejected:
    match obj["kind"]:
        case "Workflow":
            return validate_workflow(obj)
        case "WorkflowSignal":
            return validate_workflow_signal(obj)
        case _:
            return validate_worker_pool(obj)


def test_the_corpus_is_worth_its_name() -> None:
    assert len(cases("refused.yaml")) >= 50
    assert len({case.it for case in cases("refused.yaml")}) == len(cases("refused.yaml"))


@pytest.mark.parametrize("case", cases("refused.yaml"), ids=str)
def test_refused_as_it(case: Case) -> None:
    assert isinstance(validate(case.obj), Accepted if case.only_schema else Rejected)


@pytest.mark.parametrize("case", cases("accepted.yaml"), ids=str)
def test_taken_although_it(case: Case) -> None:
    assert isinstance(validate(case.obj), Accepted)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_are_valid(path: Path) -> None:
    for obj in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        assert isinstance(validate(obj), Accepted)
