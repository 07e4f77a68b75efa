"""Objects as the API server hands them out, for the tables of the plan."""

from __future__ import annotations

from typing import Any

from perdure.resources.workerpool import WorkerPoolResource
from perdure_operator.plan.manifests import WorkerDefaults

DEFAULTS = WorkerDefaults(
    database_secret="perdure-database", database_key="uri", service_account="perdure-worker", lease_seconds=30.0
)


def pool_object(
    name: str = "orders", template: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    obj: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": "pool-uid",
            "generation": 3,
            "resourceVersion": "10",
        },
        "spec": {
            "template": template or {"spec": {"containers": [{"name": "app", "image": "shop:1"}]}},
            "modules": ["shop.flows"],
            **spec,
        },
    }
    return obj if status is None else {**obj, "status": status}


def pool(**changes: Any) -> WorkerPoolResource:
    return WorkerPoolResource.parse(pool_object(**changes))


def workflow_object(
    spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any
) -> dict[str, Any]:
    obj: dict[str, Any] = {
        "metadata": {
            "name": "order-1",
            "namespace": "shop",
            "uid": "run-uid",
            "generation": 1,
            "resourceVersion": "5",
            **metadata,
        },
        "spec": {"workflow": "shop.flows.order"} if spec is None else spec,
    }
    return obj if status is None else {**obj, "status": status}
