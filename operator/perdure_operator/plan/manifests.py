"""The Deployment of one version of a WorkerPool, as the operator applies it, and the name of that version.

Pure; called by `pool`. What keeps runs safe is ours and cannot be overridden by a template: the PERDURE_* variables
that name pool, version and database, the probes and their port, the labels that the Deployment selects by. For
everything else a value in the template wins and ours is the default.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from perdure.resources.common import API_VERSION
from perdure.resources.workerpool import KIND, WorkerPoolResource, WorkerPoolSpec

Object: TypeAlias = dict[str, Any]

POOL_LABEL = "perdure.dev/pool"
VERSION_LABEL = "perdure.dev/version"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "perdure"
MANIFEST_ANNOTATION = "perdure.dev/manifest"
"""Hash of the manifest as applied last: equal means that nothing of ours has changed since."""

VERSION_LENGTH = 8
"""Characters of a version: 32 bits keep the handful of versions of one pool apart; with pool name and dash at most
61 of the 63 that a label may have."""

METRICS_PORT = 9090
PROBE_PORT = 8080
GRACE_SECONDS = 60
"""Time from SIGTERM to SIGKILL when the template has none: enough for steps of the usual length to finish."""

DRAIN_MARGIN = 10
"""Seconds of the grace period that are left for releasing what has not finished."""

COMMAND = ["python", "-m", "perdure.worker"]

STARTUP_SECONDS = 300
"""Longest start of a worker: importing a large application under a tight CPU limit takes minutes."""


@dataclass(frozen=True, slots=True)
class WorkerDefaults:
    """What the installation sets for all worker pods."""

    database_secret: str
    database_key: str
    service_account: str
    lease_seconds: float
    database_pooler: str = ""
    """Of that Secret's URI: a pool with a database of its own says it in its URI, or its template."""


def version_of(spec: WorkerPoolSpec) -> str:
    """Name of the code that the pool runs: a hash of the pod template, the modules and the bootstrap hook.

    Slots, queues and what this operator adds are no part of it: they change how a version is run, not what a run
    replays, so they roll out in place and runs keep their version.
    """
    hook = {} if spec.bootstrap is None else {"bootstrap": spec.bootstrap}
    return _digest({"template": spec.template, "modules": spec.modules, **hook})[:VERSION_LENGTH]


def deployment_name(pool: str, version: str) -> str:
    """Name of the Deployment of a version, at most 61 characters."""
    return f"{pool}-{version}"


def selector(pool: str) -> str:
    """Label selector of all pods of a pool."""
    return f"{POOL_LABEL}={pool}"


def deployment(pool: WorkerPoolResource, defaults: WorkerDefaults) -> Object:
    """The Deployment of the pool's present version, for server-side apply, without `spec.replicas`."""
    version = version_of(pool.spec)
    labels = {POOL_LABEL: pool.metadata.name, VERSION_LABEL: version, MANAGED_BY_LABEL: MANAGED_BY}
    manifest: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": deployment_name(pool.metadata.name, version),
            "namespace": pool.metadata.namespace,
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": pool.metadata.name,
                    "uid": pool.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "selector": {"matchLabels": {POOL_LABEL: pool.metadata.name, VERSION_LABEL: version}},
            "revisionHistoryLimit": 1,
            "template": _template(pool, labels, version, defaults),
        },
    }
    manifest["metadata"]["annotations"] = {MANIFEST_ANNOTATION: _digest(manifest)[:16]}
    return manifest


def _template(pool: WorkerPoolResource, labels: Mapping[str, str], version: str, defaults: WorkerDefaults) -> Object:
    template: Object = copy.deepcopy(pool.spec.template)
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    spec = template["spec"]
    _default(spec, {"serviceAccountName": defaults.service_account, "terminationGracePeriodSeconds": GRACE_SECONDS})
    # Variables of Services (NAME_PORT, NAME_SERVICE_HOST) would be read as settings when a Service is called perdure.
    _default(spec, {"enableServiceLinks": False})
    _default_security(spec, {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}})
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        _default_security(container, {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}})
    worker = spec["containers"][0]
    _default(worker, {"name": "worker", "command": COMMAND, "terminationMessagePolicy": "FallbackToLogsOnError"})
    worker["env"] = _environment(worker.get("env") or [], _ours(pool, version, defaults), _advice(spec))
    worker["ports"] = _ports(worker.get("ports") or [])
    worker.update(_probes())
    return template


def _ours(pool: WorkerPoolResource, version: str, defaults: WorkerDefaults) -> list[Object]:
    database = pool.spec.database
    secret = {
        "name": database.secret_name if database else defaults.database_secret,
        "key": database.key if database else defaults.database_key,
    }
    return [
        {"name": "PERDURE_DATABASE_URL", "valueFrom": {"secretKeyRef": secret}},
        *_pooler(pool, defaults),
        {"name": "PERDURE_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "PERDURE_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "PERDURE_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "PERDURE_POOL", "value": pool.metadata.name},
        {"name": "PERDURE_VERSION", "value": version},
        {"name": "PERDURE_MODULES", "value": ",".join(pool.spec.modules)},
        *([] if pool.spec.bootstrap is None else [{"name": "PERDURE_BOOTSTRAP", "value": pool.spec.bootstrap}]),
        {"name": "PERDURE_QUEUES", "value": ",".join(pool.spec.queues)},
        {"name": "PERDURE_SLOTS", "value": str(pool.spec.slots)},
        {"name": "PERDURE_LEASE_SECONDS", "value": f"{defaults.lease_seconds:g}"},
        {"name": "PERDURE_METRICS_PORT", "value": str(METRICS_PORT)},
        {"name": "PERDURE_PROBE_PORT", "value": str(PROBE_PORT)},
    ]


def _pooler(pool: WorkerPoolResource, defaults: WorkerDefaults) -> list[Object]:
    if pool.spec.database or not defaults.database_pooler:
        return []
    return [{"name": "PERDURE_DATABASE_POOLER", "value": defaults.database_pooler}]


def _advice(spec: Object) -> list[Object]:
    """Settings that follow from the rest of the template and that the template may override."""
    grace = int(spec["terminationGracePeriodSeconds"])
    return [{"name": "PERDURE_DRAIN_SECONDS", "value": str(max(grace - DRAIN_MARGIN, grace // 2))}]


def _environment(users: list[Object], ours: list[Object], advice: list[Object]) -> list[Object]:
    """Ours first, so that the user's may refer to them; a user's variable of the same name is dropped."""
    taken = {entry["name"] for entry in ours}
    kept = [entry for entry in users if entry.get("name") not in taken]
    named = {entry.get("name") for entry in kept}
    return [*ours, *(entry for entry in advice if entry["name"] not in named), *kept]


def _ports(users: list[Object]) -> list[Object]:
    """Ours first; a user's port of the same name or number is dropped, as two of one number cannot be applied."""
    ours = [{"name": "metrics", "containerPort": METRICS_PORT}, {"name": "probes", "containerPort": PROBE_PORT}]
    ours = [{**port, "protocol": "TCP"} for port in ours]
    names, numbers = {port["name"] for port in ours}, {port["containerPort"] for port in ours}
    kept = [port for port in users if port.get("name") not in names and port.get("containerPort") not in numbers]
    return [*ours, *kept]


def _probes() -> Object:
    def get(path: str) -> Object:
        return {"httpGet": {"path": path, "port": "probes"}}

    return {
        "startupProbe": {**get("/startupz"), "periodSeconds": 1, "failureThreshold": STARTUP_SECONDS},
        "livenessProbe": {**get("/livez"), "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3},
        "readinessProbe": {**get("/readyz"), "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 2},
    }


def _default_security(target: Object, values: Object) -> None:
    context = target["securityContext"] = dict(target.get("securityContext") or {})
    _default(context, values)


def _default(target: Object, values: Object) -> None:
    """Set what is absent; a present value stays as it is."""
    for key, value in values.items():
        if target.get(key) is None:
            target[key] = copy.deepcopy(value)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
