"""The part of a pool's Deployment that decisions need, read from the object. Pure; used by `pool`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure_operator.plan.manifests import MANIFEST_ANNOTATION, VERSION_LABEL
from perdure_operator.plan.pods import Trouble


@dataclass(frozen=True, slots=True)
class Deployment:
    """One version's Deployment. `replicas` is what is asked of it, `pods` and `ready` what there is."""

    name: str
    uid: str
    owner_uid: str
    version: str
    manifest: str
    replicas: int
    pods: int
    ready: int
    trouble: Trouble | None


def read_deployment(obj: Mapping[str, Any]) -> Deployment:
    """The facts of a Deployment as the API server hands it out. Total: missing parts count as not yet reported."""
    metadata, spec, status = (_map(obj.get(part)) for part in ("metadata", "spec", "status"))
    owner: Mapping[str, Any] = next((ref for ref in metadata.get("ownerReferences") or [] if ref.get("controller")), {})
    replicas = spec.get("replicas")
    return Deployment(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        owner_uid=str(owner.get("uid", "")),
        version=str(_map(metadata.get("labels")).get(VERSION_LABEL, "")),
        manifest=str(_map(metadata.get("annotations")).get(MANIFEST_ANNOTATION, "")),
        replicas=1 if replicas is None else int(replicas),
        pods=int(status.get("replicas") or 0),
        ready=int(status.get("readyReplicas") or 0),
        trouble=_trouble(status),
    )


def _trouble(status: Mapping[str, Any]) -> Trouble | None:
    """Why its controller cannot make pods: a quota, the pod security of the namespace, a missing account."""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return Trouble(str(condition.get("reason") or "ReplicaFailure"), str(condition.get("message") or ""))
    return None


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
