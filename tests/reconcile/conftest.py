"""The control plane with our definitions, and a place for each test."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from tests.reconcile.harness import ACCOUNT, ROOT, Place, chart_rules
from tests.support.controlplane import RunningControlPlane, control_plane
from tests.support.crds import established

__all__ = ["control_plane"]


@pytest.fixture(scope="session")
def definitions(control_plane: RunningControlPlane) -> RunningControlPlane:
    """The control plane with the CRDs of the repository installed and served."""
    for file in sorted((ROOT / "crds").glob("*.yaml")):
        control_plane.request(
            "PATCH",
            f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{yaml.safe_load(file.read_text())['metadata']['name']}"
            "?fieldManager=tests&force=true",
            yaml.safe_load(file.read_text()),
            content_type="application/apply-patch+yaml",
        )
    established(control_plane)
    return control_plane


@pytest.fixture
async def place(definitions: RunningControlPlane, pg_url: str, tmp_path: Path) -> AsyncIterator[Place]:
    """A namespace and a database of the test's own, with an operator's account that has the chart's rights."""
    namespace = await asyncio.to_thread(definitions.new_namespace)
    token = await asyncio.to_thread(definitions.service_account_token, namespace, ACCOUNT)
    token_file = tmp_path / f"token-{uuid.uuid4().hex}"
    token_file.write_text(token)
    found = Place(definitions, namespace, pg_url, token_file)
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    await found.call("POST", f"{roles}/roles", {"metadata": {"name": ACCOUNT}, "rules": chart_rules()})
    await found.call(
        "POST",
        f"{roles}/rolebindings",
        {
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
        },
    )
    await found.call(
        "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "perdure-worker"}}
    )
    yield found
