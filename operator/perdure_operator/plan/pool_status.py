"""The status of a WorkerPool from what was observed and decided. Pure; used by `pool`, written by `control.pools`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.resources.conditions import PoolCondition, Reason
from perdure.resources.workerpool import WorkerPoolResource
from perdure.resources.workerpool_status import MAX_VERSIONS

from perdure_operator.plan.conditions import clip, condition, with_times
from perdure_operator.plan.connections import Connections, connections_suffice
from perdure_operator.plan.deployments import Deployment
from perdure_operator.plan.manifests import Object, selector
from perdure_operator.plan.pods import Trouble
from perdure_operator.plan.scale import Backlog

PATIENCE = 10.0
"""Seconds that the database may be away before the status says so: a failover of a few seconds is nobody's news."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the status is made of: observed values and the decision. `deployments` has the present version first."""

    pool: WorkerPoolResource
    version: str
    deployments: tuple[Deployment, ...]
    desired: int
    desired_earlier: int
    backlog: Mapping[str | None, Backlog] | None
    unknown_for: float
    why: str
    refused: str | None
    trouble: Trouble | None
    clock: datetime
    connections: Connections | None = None

    @property
    def ready(self) -> int:
        """Ready pods of the present version."""
        return sum(each.ready for each in self.deployments if each.version == self.version)


def status_of(outlook: Outlook) -> Object:
    """The whole status; the same observations give the same status."""
    generation = outlook.pool.metadata.generation
    status: Object = {
        "observedGeneration": generation,
        "replicas": sum(each.pods for each in outlook.deployments),
        "readyReplicas": sum(each.ready for each in outlook.deployments),
        "desired": outlook.desired + outlook.desired_earlier,
        "selector": selector(outlook.pool.metadata.name),
        "currentVersion": outlook.version,
        "versions": [_version(each, outlook.backlog) for each in outlook.deployments[:MAX_VERSIONS]],
        "message": clip(outlook.why),
        "conditions": with_times(_conditions(outlook), outlook.pool.status, outlook.clock),
    }
    if outlook.backlog is not None:
        status["backlog"] = sum(each.ready for each in outlook.backlog.values())
    return status


def status_of_invalid(obj: Mapping[str, Any], message: str, clock: datetime) -> Object:
    """Status of a pool whose spec is not valid: what is stored stays, the conditions say what to change."""
    stored = obj.get("status")
    before: Mapping[str, Any] = stored if isinstance(stored, Mapping) else {}
    generation = int((obj.get("metadata") or {}).get("generation") or 0)
    conditions = [
        condition(PoolCondition.READY, False, Reason.INVALID_SPEC, message, generation),
        condition(PoolCondition.STALLED, True, Reason.INVALID_SPEC, message, generation),
    ]
    return {
        **before,
        "observedGeneration": generation,
        "message": clip(f"nothing is changed until the spec is valid: {message}"),
        "conditions": with_times(conditions, before, clock),
    }


def _version(deployment: Deployment, backlog: Mapping[str | None, Backlog] | None) -> Object:
    held = (backlog or {}).get(deployment.version, Backlog()).running
    return {"name": deployment.version, "replicas": deployment.pods, "ready": deployment.ready, "runs": held}


def _conditions(outlook: Outlook) -> list[Object]:
    found = [_ready(outlook), _stalled(outlook)]
    if outlook.connections is not None:
        pods = outlook.desired + outlook.desired_earlier
        found.append(connections_suffice(outlook.connections, pods, outlook.pool.metadata.generation))
    return found


def _ready(outlook: Outlook) -> Object:
    generation = outlook.pool.metadata.generation

    def ready(status: bool | None, reason: Reason, message: str) -> Object:
        return condition(PoolCondition.READY, status, reason, message, generation)

    if outlook.pool.spec.suspend:
        return ready(False, Reason.POOL_SUSPENDED, "spec.suspend is true: no worker pods; set it to false to resume")
    if outlook.backlog is None and outlook.unknown_for >= PATIENCE:
        return ready(None, Reason.DATABASE_UNREACHABLE, "Postgres does not answer; replicas stay as they are")
    if outlook.refused is not None:
        return ready(False, Reason.TEMPLATE_REFUSED, outlook.refused)
    if outlook.desired == 0:
        return ready(True, Reason.SCALED_TO_ZERO, "no runs, no pods; the first run starts one")
    if outlook.ready >= outlook.desired:
        return ready(True, Reason.WORKERS_READY, "all wanted worker pods are ready")
    if outlook.trouble is not None:
        return ready(False, Reason.PODS_FAILING, _sentence(outlook.trouble))
    return ready(False, Reason.WAITING_FOR_WORKERS, "worker pods are starting")


def _stalled(outlook: Outlook) -> Object:
    generation = outlook.pool.metadata.generation

    def stalled(status: bool, reason: Reason, message: str) -> Object:
        return condition(PoolCondition.STALLED, status, reason, message, generation)

    if outlook.refused is not None:
        return stalled(True, Reason.TEMPLATE_REFUSED, outlook.refused)
    if outlook.trouble is not None and outlook.desired > 0 and outlook.ready == 0:
        return stalled(True, Reason.PODS_FAILING, _sentence(outlook.trouble))
    return stalled(False, Reason.PROGRESSING, "nothing stands in the way")


def _sentence(trouble: Trouble) -> str:
    return f"{trouble.reason}: {trouble.message}"
