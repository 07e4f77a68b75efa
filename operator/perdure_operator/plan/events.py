"""Which Kubernetes Events to post: few, on changes only, each with a sentence that a person can act on.

Pure. The reasons are API, like those of conditions: added, never renamed. `docs/reference/events.md` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from perdure.resources.conditions import Reason
from perdure.resources.kinds import WORKER_POOL, WORKFLOW

from perdure_operator.plan.seen import WorkflowSeen


class EventReason(StrEnum):
    """Reasons of the Events that the operator posts."""

    WORKFLOW_REJECTED = "WorkflowRejected"
    WORKFLOW_FAILED = "WorkflowFailed"
    WORKFLOW_PARKED = "WorkflowParked"
    WORKFLOW_STALLED = "WorkflowStalled"
    RUN_RECOVERED = "RunRecovered"
    WORKER_DIED = "WorkerDied"
    POOL_SCALED = "PoolScaled"
    POOL_STALLED = "PoolStalled"
    VERSION_ADDED = "VersionAdded"
    VERSION_REMOVED = "VersionRemoved"


MEANINGS: dict[EventReason, str] = {
    EventReason.WORKFLOW_REJECTED: "The spec cannot be run; the message says what to change.",
    EventReason.WORKFLOW_FAILED: "The run failed; the message is that of its error.",
    EventReason.WORKFLOW_PARKED: "The run was recovered too often without progress and was given up.",
    EventReason.WORKFLOW_STALLED: "The run does not start and will not by itself; the message says what to do.",
    EventReason.RUN_RECOVERED: "The run was taken from a dead worker and goes on from its last finished step.",
    EventReason.WORKER_DIED: "A worker pod ended without a word; its runs go on elsewhere.",
    EventReason.POOL_SCALED: "The number of pods of a version was changed; the message says why.",
    EventReason.POOL_STALLED: "Worker pods cannot be brought up; the message says why.",
    EventReason.VERSION_ADDED: "A new version of the pod template got its Deployment.",
    EventReason.VERSION_REMOVED: "A version without runs was removed with its Deployment.",
}

WARNINGS = frozenset(EventReason) - {
    EventReason.RUN_RECOVERED,
    EventReason.POOL_SCALED,
    EventReason.VERSION_ADDED,
    EventReason.VERSION_REMOVED,
}


@dataclass(frozen=True, slots=True)
class Notice:
    """One Event to post: about which object, and what."""

    kind: str
    namespace: str
    name: str
    uid: str
    reason: EventReason
    message: str

    @property
    def warning(self) -> bool:
        """Whether its type is Warning."""
        return self.reason in WARNINGS


def workflow_notice(before: WorkflowSeen | None, after: WorkflowSeen) -> Notice | None:
    """What the change of a Workflow's status is worth saying; nothing on first sight (it was said before)."""
    if before is None or before.uid != after.uid:
        return None
    if after.accepted is False:
        return _about(after, EventReason.WORKFLOW_REJECTED) if before.accepted is not False else None
    if after.phase == "Failed" and before.phase != "Failed":
        parked = after.reason == Reason.MAX_RECOVERY_ATTEMPTS_EXCEEDED
        return _about(after, EventReason.WORKFLOW_PARKED if parked else EventReason.WORKFLOW_FAILED)
    if after.stalled and not after.finished and (not before.stalled or before.reason != after.reason):
        return _about(after, EventReason.WORKFLOW_STALLED)
    return None


def pool_notice(pool: Mapping[str, Any], reason: EventReason, message: str) -> Notice:
    """An Event about a WorkerPool, given as its object."""
    metadata = pool["metadata"]
    return Notice(WORKER_POOL.kind, metadata["namespace"], metadata["name"], metadata["uid"], reason, message)


def run_notice(namespace: str, name: str, uid: str, reason: EventReason, message: str) -> Notice:
    """An Event about a Workflow of which only the row is at hand."""
    return Notice(WORKFLOW.kind, namespace, name, uid, reason, message)


def _about(seen: WorkflowSeen, reason: EventReason) -> Notice:
    return Notice(WORKFLOW.kind, seen.namespace, seen.name, seen.uid, reason, seen.message or seen.reason)
