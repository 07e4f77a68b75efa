"""Writes Deployments: the manifest by server-side apply without replicas, the replicas by the scale subresource.

Two field managers, so that a person's labels, annotations and other fields stay, and so that applying a manifest
never touches the number of pods. Called by `control.pools`.
"""

from __future__ import annotations

from typing import Any

from perdure_operator.kube.client import APPLY_PATCH, METADATA_ONLY, Client
from perdure_operator.kube.errors import ApiRefused

MANIFEST_MANAGER = "perdure-operator"
SCALE_MANAGER = "perdure-operator-scale"


class NotOurs(Exception):
    """A Deployment of this name exists and belongs to somebody else."""


def path(namespace: str, name: str | None = None, subresource: str | None = None) -> str:
    """Path of Deployments on the API server."""
    parts = ["/apis/apps/v1/namespaces", namespace, "deployments", name, subresource]
    return "/".join(part for part in parts if part)


async def create(client: Client, manifest: dict[str, Any], replicas: int) -> None:
    """Apply a manifest that has no Deployment yet, with its first number of replicas.

    Raises NotOurs when there is one of that name that this pool does not own. Then the number is handed over to the
    scale manager, or the next apply, which says nothing about it, would set it back to 1.
    """
    metadata = manifest["metadata"]
    try:
        existing = await client.request("GET", path(metadata["namespace"], metadata["name"]))
    except ApiRefused as error:
        if not error.object_missing:
            raise
        await _apply(client, {**manifest, "spec": {**manifest["spec"], "replicas": replicas}})
        await scale(client, metadata["namespace"], metadata["name"], replicas)
        return
    owners = [owner.get("uid") for owner in existing["metadata"].get("ownerReferences") or []]
    if metadata["ownerReferences"][0]["uid"] not in owners:
        raise NotOurs(
            f"a Deployment {metadata['name']} exists and does not belong to this pool: delete or rename it, or give "
            "the pool another name"
        )
    await update(client, manifest, int(existing["spec"].get("replicas", 1)))


async def update(client: Client, manifest: dict[str, Any], replicas: int) -> None:
    """Apply a manifest to its Deployment; `replicas`, what it has now, stays and belongs to the scale manager."""
    metadata = manifest["metadata"]
    await scale(client, metadata["namespace"], metadata["name"], replicas)
    await _apply(client, manifest)


async def scale(client: Client, namespace: str, name: str, replicas: int) -> None:
    """Set the number of pods."""
    await client.request(
        "PATCH",
        path(namespace, name, "scale"),
        body={
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"replicas": replicas},
        },
        content_type=APPLY_PATCH,
        query={"fieldManager": SCALE_MANAGER, "force": "true"},
    )


async def delete(client: Client, namespace: str, name: str, uid: str) -> None:
    """Delete a Deployment and its pods, if it is still this one. Deleting one that is gone is no error."""
    try:
        await client.request(
            "DELETE",
            path(namespace, name),
            body={"propagationPolicy": "Background", "preconditions": {"uid": uid}},
        )
    except ApiRefused as error:
        if not error.object_missing and error.status != 409:
            raise


async def _apply(client: Client, manifest: dict[str, Any]) -> None:
    metadata = manifest["metadata"]
    await client.request(
        "PATCH",
        path(metadata["namespace"], metadata["name"]),
        body=manifest,
        content_type=APPLY_PATCH,
        accept=METADATA_ONLY,
        query={"fieldManager": MANIFEST_MANAGER, "force": "true"},
    )
