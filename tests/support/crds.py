"""Custom resources on a real API server: make and patch objects, write statuses as a worker does."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from localcluster.console import wait_until
from perdure.resources.common import API_VERSION
from perdure.resources.kinds import KINDS, WORKFLOW, Kind

from tests.support.controlplane import ApiError, RunningControlPlane

ROOT = Path(__file__).resolve().parents[2]
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
SERVED_SECONDS = 60.0
# What a server says of a kind that it does not know yet, or whose storage is still being read.
NOT_YET = (404, 429, 503)
TEMPLATE = {"spec": {"containers": [{"name": "worker", "image": "example.com/worker:1"}]}}

Object = dict[str, Any]


def established(plane: RunningControlPlane, kinds: Collection[Kind] = KINDS) -> None:
    """Wait until the server shows these kinds to kubectl and lists their resources.

    `kubectl wait` fails where a definition has no conditions yet. And a definition that is deleted before its storage
    was read can stay for minutes: the server's finalizer gives up on a conflict and counts on an event that it ignores.
    """
    wait_until("the kinds are served", lambda: _served(plane, kinds), seconds=SERVED_SECONDS)


def _served(plane: RunningControlPlane, kinds: Collection[Kind]) -> bool:
    try:
        found = plane.request("GET", f"/apis/{API_VERSION}")["resources"]
        for kind in kinds:
            plane.request("GET", f"/apis/{API_VERSION}/{kind.plural}")
    except ApiError as error:
        if error.status not in NOT_YET:
            raise
        return False
    return {kind.plural for kind in kinds} <= {each["name"] for each in found}


class Objects:
    """Workflows and WorkerPools of one namespace, as administrator or with another token."""

    def __init__(self, plane: RunningControlPlane, namespace: str, kind: Kind = WORKFLOW) -> None:
        self.plane, self.namespace, self.kind = plane, namespace, kind

    def create(self, spec: Object, name: str | None = None, *, query: str = "fieldValidation=Strict") -> Object:
        """Make one; without a name it gets one."""
        metadata: Object = {"generateName": "it-"} if name is None else {"name": name}
        body = {"apiVersion": API_VERSION, "kind": self.kind.kind, "metadata": metadata, "spec": spec}
        found: Object = self.plane.request("POST", f"{self.kind.path(self.namespace)}?{query}", body)
        return found

    def get(self, name: str) -> Object:
        found: Object = self.plane.request("GET", self.kind.path(self.namespace, name))
        return found

    def delete(self, name: str) -> None:
        self.plane.request("DELETE", self.kind.path(self.namespace, name))

    def merge(self, name: str, patch: Object) -> Object:
        """A merge patch of the object, as `kubectl patch --type=merge`."""
        path = f"{self.kind.path(self.namespace, name)}?fieldValidation=Strict"
        found: Object = self.plane.request("PATCH", path, patch, content_type=MERGE_PATCH)
        return found

    def replace(self, obj: Object) -> Object:
        """A PUT of the whole object."""
        path = self.kind.path(self.namespace, obj["metadata"]["name"])
        found: Object = self.plane.request("PUT", path, obj)
        return found

    def write_status(self, obj: Object, status: Any, uid: str | None = None) -> Object:
        """As a worker and the operator do: test the UID, replace the whole status."""
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": uid or obj["metadata"]["uid"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        path = self.kind.path(self.namespace, obj["metadata"]["name"], "status")
        found: Object = self.plane.request("PATCH", path, patch, content_type=JSON_PATCH)
        return found


def pool_spec(**changes: Any) -> Object:
    """A valid spec of a WorkerPool."""
    return {"modules": ["orders.flows"], "template": TEMPLATE, **changes}


def causes(error: ApiError) -> list[str]:
    """Each problem in a refusal: its field and the message."""
    status = json.loads(error.body)
    found = (status.get("details") or {}).get("causes") or []
    return [f"{cause.get('field')}: {cause.get('message')}" for cause in found] or [str(status.get("message"))]
