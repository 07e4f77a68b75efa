"""Broken resources are refused at apply, each with the sentence that a person needs; unusual ones are taken."""

import json
from subprocess import CalledProcessError

import pytest
from perdure.resources.kinds import KINDS

from tests.reconcile.corpus import Case, cases
from tests.support.controlplane import ApiError, RunningControlPlane

PLURALS = {kind.kind: kind for kind in KINDS}


def dry_run(definitions: RunningControlPlane, case: Case) -> None:
    path = PLURALS[case.obj["kind"]].path("default")
    definitions.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", case.obj)


@pytest.mark.parametrize("case", cases("refused.yaml"), ids=str)
def test_refused_as_it(definitions: RunningControlPlane, case: Case) -> None:
    with pytest.raises(ApiError) as caught:
        dry_run(definitions, case)
    assert caught.value.status in (400, 422)
    message = json.loads(caught.value.body)["message"]
    assert case.says in message
    assert case.path in message


@pytest.mark.parametrize("case", cases("accepted.yaml"), ids=str)
def test_taken_although_it(definitions: RunningControlPlane, case: Case) -> None:
    dry_run(definitions, case)


SHIP_NEEDS = 'needs names a step that is not in this list: see the needs of ["ship"]'
DURATION = "a duration looks like 90s, 15m, 1h30m or 2d: whole numbers of d, h, m, s, ms, largest first"


def test_a_server_side_dry_run_reads_well(definitions: RunningControlPlane) -> None:
    """What a person sees who tries a file before applying it, word for word."""
    broken = """
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: broken}
spec:
  timeout: 90 minutes
  steps:
    - {name: pack, task: orders.pack}
    - {name: ship, task: orders.ship, needs: [pakc]}
"""
    with pytest.raises(CalledProcessError) as caught:
        definitions.kubectl("apply", "--dry-run=server", "-f", "-", stdin=broken)
    first, *others = caught.value.stderr.strip().splitlines()
    assert first == 'The Workflow "broken" is invalid: '
    assert sorted(others) == [
        f'* spec.steps: Invalid value: "array": {SHIP_NEEDS}',
        f'* spec.timeout: Invalid value: "string": {DURATION}',
    ]


def test_a_field_that_is_not_there_cannot_seem_to_work(definitions: RunningControlPlane) -> None:
    """Clients that are not strict get a warning, and the field is dropped: `kubectl get` shows that it is not there."""
    manifest = {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "w"},
        "spec": {"workflow": "a", "retyr": 3},
    }
    path = PLURALS["Workflow"].path("default")
    assert "retyr" not in definitions.request("POST", f"{path}?dryRun=All&fieldValidation=Warn", manifest)["spec"]
