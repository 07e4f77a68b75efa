"""The rights of a worker: patch the status of Workflows in its namespace, and nothing else.

What that right allows beyond its purpose is shown too, so that it cannot grow unseen.
"""

import http.client
import json
import ssl
import urllib.parse
from dataclasses import dataclass
from typing import Any

import pytest
from perdure.resources.kinds import WORKER_POOL, WORKFLOW, WORKFLOW_SIGNAL
from perdure.resources.projection import project

from tests.support.controlplane import RunningControlPlane
from tests.support.crds import JSON_PATCH, MERGE_PATCH, Object, Objects, pool_spec
from tests.unit.resources.views import run, source

RULES = [{"apiGroups": ["perdure.dev"], "resources": ["workflows/status"], "verbs": ["patch"]}]
ACCOUNT = "perdure-worker"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass
class Worker:
    """Calls with the token of a worker's service account."""

    plane: RunningControlPlane
    namespace: str
    token: str

    def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **headers: str
    ) -> tuple[int, Object]:
        url = urllib.parse.urlsplit(self.plane.url)
        tls = ssl.create_default_context(cafile=str(self.plane.ca_file))
        connection = http.client.HTTPSConnection(url.hostname or "", url.port, context=tls, timeout=30)
        try:
            authorization = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {**authorization, **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@pytest.fixture
def workflows(definitions: RunningControlPlane) -> Objects:
    return Objects(definitions, definitions.new_namespace())


@pytest.fixture
def worker(definitions: RunningControlPlane, workflows: Objects) -> Worker:
    namespace = workflows.namespace
    role = f"{RBAC}/namespaces/{namespace}"
    definitions.request("POST", f"{role}/roles", {"metadata": {"name": ACCOUNT}, "rules": RULES})
    binding = {
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
    }
    definitions.request("POST", f"{role}/rolebindings", binding)
    return Worker(definitions, namespace, definitions.service_account_token(namespace, ACCOUNT))


def status_patch(made: Object) -> list[Object]:
    return [
        {"op": "test", "path": "/metadata/uid", "value": made["metadata"]["uid"]},
        {"op": "add", "path": "/status", "value": project(source(run()))},
    ]


def test_a_worker_writes_the_status_of_a_run(workflows: Objects, worker: Worker) -> None:
    made = workflows.create({"workflow": "a"}, "w")
    code, answer = worker.call(
        "PATCH", WORKFLOW.path(workflows.namespace, "w", "status"), status_patch(made), JSON_PATCH
    )
    assert (code, answer["status"]["phase"]) == (200, "Running")


def test_a_worker_asks_for_a_short_answer(workflows: Objects, worker: Worker) -> None:
    """Without this header every status write sends the whole object back, input included."""
    made = workflows.create({"workflow": "a", "input": {"x": "y" * 5000}}, "w")
    code, answer = worker.call(
        "PATCH",
        WORKFLOW.path(workflows.namespace, "w", "status"),
        status_patch(made),
        JSON_PATCH,
        Accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    )
    assert (code, answer["kind"]) == (200, "PartialObjectMetadata")
    assert "spec" not in answer


def test_a_worker_may_do_nothing_else(definitions: RunningControlPlane, workflows: Objects, worker: Worker) -> None:
    here, other = workflows.namespace, definitions.new_namespace()
    made = workflows.create({"workflow": "a"}, "w")
    Objects(definitions, here, WORKER_POOL).create(pool_spec(), "p")
    Objects(definitions, other).create({"workflow": "a"}, "w")
    suspend = {"spec": {"suspend": True}}
    calls: list[tuple[str, str, Any, str]] = [
        ("GET", WORKFLOW.path(here, "w"), None, ""),
        ("GET", WORKFLOW.path(here), None, ""),
        ("GET", WORKFLOW.path(here, "w", "status"), None, ""),
        ("PUT", WORKFLOW.path(here, "w", "status"), made, "application/json"),
        ("PATCH", WORKFLOW.path(here, "w"), suspend, MERGE_PATCH),
        ("DELETE", WORKFLOW.path(here, "w"), None, ""),
        ("POST", WORKFLOW.path(here), made, "application/json"),
        ("PATCH", WORKFLOW.path(other, "w", "status"), status_patch(made), JSON_PATCH),
        ("PATCH", WORKER_POOL.path(here, "p", "status"), {}, MERGE_PATCH),
        ("PATCH", WORKER_POOL.path(here, "p", "scale"), {"spec": {"replicas": 9}}, MERGE_PATCH),
        ("POST", WORKFLOW_SIGNAL.path(here), {"metadata": {"name": "s"}}, "application/json"),
        ("PATCH", WORKFLOW_SIGNAL.path(here, "s", "status"), {}, MERGE_PATCH),
        ("GET", WORKFLOW_SIGNAL.path(here), None, ""),
        ("GET", f"/api/v1/namespaces/{here}/secrets", None, ""),
        ("GET", f"/api/v1/namespaces/{here}/pods", None, ""),
        ("POST", f"/api/v1/namespaces/{here}/events", {"metadata": {"name": "e"}}, "application/json"),
        ("GET", "/api/v1/namespaces", None, ""),
        ("GET", f"/apis/apps/v1/namespaces/{here}/deployments", None, ""),
    ]
    allowed = [(method, path) for method, path, body, kind in calls if worker.call(method, path, body, kind)[0] != 403]
    assert allowed == []


def test_a_status_write_cannot_change_anything_but_the_status(workflows: Objects, worker: Worker) -> None:
    made = workflows.create({"workflow": "a"}, "w")
    patch = [
        *status_patch(made),
        {"op": "add", "path": "/spec/suspend", "value": True},
        {"op": "replace", "path": "/spec/workflow", "value": "b"},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/x"]},
    ]
    code, _ = worker.call("PATCH", WORKFLOW.path(workflows.namespace, "w", "status"), patch, JSON_PATCH)
    assert code == 200
    after = workflows.get("w")
    assert after["spec"] == made["spec"]
    assert not {"labels", "finalizers"} & set(after["metadata"])


def test_known_limit_the_right_to_write_a_status_can_read_the_run(workflows: Objects, worker: Worker) -> None:
    workflows.create({"workflow": "a", "input": {"secret": "no place for one"}}, "w")
    code, answer = worker.call("PATCH", WORKFLOW.path(workflows.namespace, "w", "status"), {}, MERGE_PATCH)
    assert (code, answer["spec"]["input"]) == (200, {"secret": "no place for one"})
