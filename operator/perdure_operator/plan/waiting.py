"""What a run that is ready and not claimed waits for: one stable word and one sentence that says what to do.

Pure; asked by the sweep for waiting reasons, a few seconds after a run became ready. Keeps invariant 4: no silent
wait. Sentences hold no changing numbers, so that the same situation is the same text and is written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perdure.model.queues import ReachedLimits
from perdure.model.rows import WaitingFor
from perdure.resources.conditions import WaitKind

from perdure_operator.plan import limits
from perdure_operator.plan.names import did_you_mean, listed
from perdure_operator.plan.pods import Trouble

WORKFLOW, STEP = "workflow:", "step:"


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """A run that is ready and that nobody has taken."""

    namespace: str
    pool: str
    queue: str
    requires: tuple[str, ...]
    version: str | None
    suspended: bool
    partition_key: str = ""


@dataclass(frozen=True, slots=True)
class Worker:
    """A live worker of the pool: what it knows and how much it can hold."""

    version: str
    manifest: frozenset[str]
    queues: frozenset[str]
    slots: int
    accepts: bool
    """It claims runs; a draining one does not."""

    retired: bool = False
    """It claims only runs that are bound to its version."""

    id: str = ""

    def may_take(self, run: Unclaimed) -> bool:
        """Whether a free slot of it is one for this run, as far as queue and version go."""
        if not self.accepts or run.queue not in self.queues:
            return False
        return not self.retired if run.version is None else run.version == self.version


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What is known of the pool that a run names."""

    name: str
    queues: tuple[str, ...]
    suspended: bool
    version: str
    """The present one."""

    versions: frozenset[str] = frozenset()
    """Those that have a Deployment, besides the present one."""

    trouble: Trouble | None = None
    max_replicas: int = 0
    workers: tuple[Worker, ...] = ()
    running: Mapping[str, int] = field(default_factory=dict)
    """Runs that its workers hold, by version."""


def waiting_for(
    run: Unclaimed, pool: PoolFacts | None, pools: Sequence[str], queue: ReachedLimits | None = None
) -> WaitingFor:
    """Why the run has not started. `pool` is None when the namespace has none of that name; `pools` are its pools.
    `queue` has the limits of its queue, None when it has none."""
    if run.suspended:
        return _wait(WaitKind.SUSPENDED, "", "spec.suspend is true; set it to false to let the run go on")
    if pool is None:
        return _no_pool(run, pools)
    if run.queue not in pool.queues:
        return _wait(
            WaitKind.NO_WORKER_POOL,
            run.queue,
            f"WorkerPool {pool.name} does not serve queue {run.queue}; it serves {listed(pool.queues)}: "
            "add the queue to its spec.queues",
        )
    if pool.suspended:
        return _wait(WaitKind.POOL_SUSPENDED, pool.name, f"set spec.suspend of WorkerPool {pool.name} to false")
    if queue is not None and queue.paused:
        return limits.paused(queue)
    version = run.version or pool.version
    eligible = [worker for worker in pool.workers if worker.may_take(run)]
    if not eligible:
        return _no_worker(run, pool, version)
    able = [worker for worker in eligible if set(run.requires) <= worker.manifest]
    if not able:
        return _unknown(run, pool, eligible)
    if queue is not None:
        ids = (worker.id for worker in able)
        limit = limits.reached(queue, run.partition_key, run.version is not None, ids)
        if limit is not None:
            return limit
    if sum(worker.slots for worker in able) <= _held(pool, able):
        return _wait(
            WaitKind.NO_FREE_SLOT,
            pool.name,
            f"all slots of WorkerPool {pool.name} are taken; it has at most {pool.max_replicas} pods "
            "(spec.scaling.max)",
        )
    return _wait(
        WaitKind.FREE_WORKER,
        pool.name,
        f"ready: the next worker of WorkerPool {pool.name} with a free slot takes it",
    )


IN_TURN = frozenset({WaitKind.FREE_WORKER, WaitKind.NO_FREE_SLOT})
"""Two words for waiting one's turn, between which a busy pool changes every moment."""


def differs(
    stored: WaitingFor | None, found: WaitingFor, queue: ReachedLimits | None = None, partition_key: str = ""
) -> bool:
    """Whether the found reason is worth writing: it is another one, and not only the other word for a busy pool, or the
    word for a limit's being reached between two looks."""
    if stored is None:
        return True
    if found.kind in IN_TURN and queue is not None and limits.may_say(queue, partition_key, stored):
        return False
    if stored.kind != found.kind:
        return not {stored.kind, found.kind} <= IN_TURN
    return stored != found


def _no_pool(run: Unclaimed, pools: Sequence[str]) -> WaitingFor:
    guess = did_you_mean(run.pool, pools)
    return _wait(
        WaitKind.NO_WORKER_POOL,
        run.pool,
        f"namespace {run.namespace} has no WorkerPool {run.pool}{guess}; there is: {listed(pools)}. "
        "Apply a WorkerPool of that name",
    )


def _no_worker(run: Unclaimed, pool: PoolFacts, version: str) -> WaitingFor:
    if pool.trouble is not None:
        return _wait(
            WaitKind.POOL_NOT_READY,
            pool.name,
            f"no worker of WorkerPool {pool.name} is ready: {pool.trouble.reason}: {pool.trouble.message}",
        )
    which = f" of version {version}" if run.version else ""
    if version not in pool.versions | {pool.version}:
        return _wait(
            WaitKind.NO_WORKER_VERSION,
            version,
            f"it began in version {version} of WorkerPool {pool.name}, which is not there any more. Apply the template "
            "that it began with, let its workflow go on with later versions (version_policy), or cancel it and apply a "
            "new Workflow",
        )
    if pool.max_replicas == 0:
        return _wait(
            WaitKind.POOL_NOT_READY, pool.name, f"WorkerPool {pool.name} is set to 0 pods; raise its spec.replicas"
        )
    return _wait(
        WaitKind.POOL_STARTING, pool.name, f"a worker{which} of WorkerPool {pool.name} is starting; nothing to do"
    )


def _unknown(run: Unclaimed, pool: PoolFacts, eligible: Sequence[Worker]) -> WaitingFor:
    """No single worker knows all that the run needs: name the first thing that the best of them lacks."""
    best = max(eligible, key=lambda worker: (len(set(run.requires) & worker.manifest), sorted(worker.manifest)))
    missing = next(name for name in run.requires if name not in best.manifest)
    if missing.startswith(STEP):
        kind, what, prefix = WaitKind.UNKNOWN_STEP, "step", STEP
    else:
        kind, what, prefix = WaitKind.UNKNOWN_WORKFLOW, "workflow", WORKFLOW
    known = [name.removeprefix(prefix) for worker in eligible for name in worker.manifest if name.startswith(prefix)]
    name = missing.removeprefix(prefix)
    return _wait(
        kind,
        name,
        f"no worker of WorkerPool {pool.name} has a {what} {name}{did_you_mean(name, known)}; there is: "
        f"{listed(known)}. Correct the name, or add its module to spec.modules of the pool",
    )


def _held(pool: PoolFacts, able: Sequence[Worker]) -> int:
    return sum(pool.running.get(version, 0) for version in {worker.version for worker in able})


def _wait(kind: WaitKind, name: str, message: str) -> WaitingFor:
    return WaitingFor(kind=kind.value, name=name, message=message)
