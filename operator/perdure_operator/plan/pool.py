"""What to do for a WorkerPool: from everything observed about it to one value that the shell applies.

Pure; asked by `control.pools` at every look. One Deployment per version: the present one is kept as the spec says,
earlier ones live for the runs that belong to them, take no new ones, and go with the last; but not before the present
version has a ready pod (or wants none), so that a broken template takes nothing down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from perdure.resources.common import parse_duration
from perdure.resources.workerpool import WorkerPoolResource, WorkerPoolSpec

from perdure_operator.plan import manifests, scale
from perdure_operator.plan.connections import Connections
from perdure_operator.plan.deployments import Deployment
from perdure_operator.plan.pods import Pod, worst
from perdure_operator.plan.pool_status import Outlook, status_of
from perdure_operator.plan.scale import Backlog, Decision, Limits, Memory

BUSY_RECHECK = 2.0
"""Seconds until the next look while runs are awake or pods are on their way: what a person sees as at once."""

IDLE_RECHECK = 15.0
"""Seconds until the next look at a quiet pool; new runs announce themselves, this is the fallback."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that the decision may look at.

    `backlog` by version, under None the runs that belong to no version yet; None as a whole when the database did
    not answer, for `unknown_for` seconds by now. `refused` is what the API server said to the last apply.
    """

    pool: WorkerPoolResource
    deployments: Sequence[Deployment]
    pods: Sequence[Pod]
    backlog: Mapping[str | None, Backlog] | None
    now: float
    clock: datetime
    memory: Memory = field(default_factory=Memory)
    unknown_for: float = 0.0
    refused: str | None = None
    connections: Connections | None = None
    """None: not known, or of no concern to this pool."""


@dataclass(frozen=True, slots=True)
class ScaleTo:
    """Set the replicas of a Deployment."""

    name: str
    replicas: int
    before: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to apply, in this order: `apply` (with `initial` replicas when it is new), `retire`, `scale`, `delete`,
    `status`. `retire` names the present version when workers of others are to take no new runs any more."""

    apply: manifests.Object | None
    initial: int
    retire: str | None
    scale: tuple[ScaleTo, ...]
    delete: tuple[Deployment, ...]
    status: manifests.Object
    memory: Memory
    recheck: float


def plan(seen: Observed, defaults: manifests.WorkerDefaults) -> Plan:
    """The plan for a pool with a valid spec."""
    spec = seen.pool.spec
    version = manifests.version_of(spec)
    by_version = {deployment.version: deployment for deployment in seen.deployments}
    present = by_version.get(version)
    limits = limits_of(spec)
    decision = _decide(seen, version, present, limits)
    manifest = manifests.deployment(seen.pool, defaults)
    wanted = manifest["metadata"]["annotations"][manifests.MANIFEST_ANNOTATION]
    earlier = [deployment for deployment in seen.deployments if deployment.version != version]
    served = decision.replicas == 0 or (present is not None and present.ready > 0)
    drained = [old for old in earlier if served and _is_drained(seen, old)]
    scaling = _scaling(present, decision) + _drain_scaling(seen, earlier, limits, served=served)
    status = status_of(
        Outlook(
            pool=seen.pool,
            version=version,
            deployments=tuple(sorted(seen.deployments, key=lambda each: each.version != version)),
            desired=decision.replicas,
            desired_earlier=sum(_replicas_after(old, scaling) for old in earlier),
            backlog=seen.backlog,
            unknown_for=seen.unknown_for,
            why=decision.why,
            refused=seen.refused,
            trouble=(present.trouble if present else None) or worst(p for p in seen.pods if p.version == version),
            clock=seen.clock,
            connections=seen.connections,
        )
    )
    quiet = not scaling and not drained and _asleep(seen) and (present is None or present.ready >= decision.replicas)
    return Plan(
        apply=manifest if present is None or present.manifest != wanted else None,
        initial=decision.replicas,
        retire=version if served and earlier else None,
        scale=scaling,
        delete=tuple(drained),
        status=status,
        memory=decision.memory,
        recheck=IDLE_RECHECK if quiet and decision.replicas in (0, limits.min) else BUSY_RECHECK,
    )


def limits_of(spec: WorkerPoolSpec) -> Limits:
    """The numbers of the spec that scaling needs."""
    return Limits(
        min=spec.scaling.min,
        max=spec.scaling.max,
        target=spec.target_per_worker,
        slots=spec.slots,
        idle_after=parse_duration(spec.scaling.idle_after).total_seconds(),
        stabilisation=parse_duration(spec.scaling.stabilisation).total_seconds(),
    )


def _decide(seen: Observed, version: str, present: Deployment | None, limits: Limits) -> Decision:
    spec = seen.pool.spec
    if spec.suspend:
        return Decision(0, Memory(), "spec.suspend is true")
    backlog = None
    if seen.backlog is not None:
        backlog = seen.backlog.get(version, Backlog()) + seen.backlog.get(None, Backlog())
    replicas = None if present is None else present.replicas
    return scale.current(replicas, backlog, limits, seen.memory, seen.now, fixed=spec.replicas)


def _scaling(present: Deployment | None, decision: Decision) -> tuple[ScaleTo, ...]:
    if present is None or present.replicas == decision.replicas:
        return ()
    return (ScaleTo(present.name, decision.replicas, present.replicas, decision.why),)


def _drain_scaling(
    seen: Observed, earlier: Sequence[Deployment], limits: Limits, *, served: bool
) -> tuple[ScaleTo, ...]:
    """Earlier versions: as many pods as their own runs need; not fewer than now until the present one can serve."""
    changes = []
    for old in earlier:
        backlog = None if seen.backlog is None else seen.backlog.get(old.version, Backlog())
        replicas = 0 if seen.pool.spec.suspend else scale.draining(old.replicas, backlog, limits)
        if not served and not seen.pool.spec.suspend:
            replicas = max(replicas, old.replicas)
        if replicas != old.replicas:
            changes.append(ScaleTo(old.name, replicas, old.replicas, "enough for the runs that belong to this version"))
    return tuple(changes)


def _is_drained(seen: Observed, old: Deployment) -> bool:
    """No run belongs to it any more. Not known counts as no."""
    return seen.backlog is not None and seen.backlog.get(old.version, Backlog()).open == 0


def _asleep(seen: Observed) -> bool:
    return seen.backlog is not None and not any(backlog.awake for backlog in seen.backlog.values())


def _replicas_after(old: Deployment, scaling: Sequence[ScaleTo]) -> int:
    return next((change.replicas for change in scaling if change.name == old.name), old.replicas)
