"""What to do with a WorkflowSignal, and what its status says. Pure; asked by `control.signals`.

A signal is delivered once: its key is its UID, or the one it names, and a run takes no second message with a key that
it has had. Until then it is looked at again; afterwards, and when it can never be delivered, it is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from perdure.model.states import RunStatus
from perdure.resources.acceptance import Accepted, Rejected, validate_workflow_signal
from perdure.resources.common import Metadata
from perdure.resources.conditions import Reason, SignalCondition
from perdure.resources.workflowsignal import WorkflowSignalResource

from perdure_operator.plan.conditions import clip, instant, with_times
from perdure_operator.plan.seen import read_workflow

WAIT_FOR_WORKFLOW = timedelta(minutes=1)
"""How much later than the signal its Workflow may be applied: what is applied together comes in any order. A message
must not wait for whoever takes the name in a month."""

RECHECK = 1.0
"""Seconds until the next look at a signal whose run is on its way into the database."""

FINAL = frozenset({Reason.DELIVERED, Reason.WORKFLOW_ENDED, Reason.INVALID_SPEC, Reason.INPUT_TOO_LARGE})
"""Reasons after which nothing more happens to a signal."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Put this into the inbox of a run."""

    run_id: str
    topic: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Say:
    """What to write into the status; looked at again when `again`."""

    reason: Reason
    message: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What the database said: how the run stands, None without one, and whether it has the message."""

    status: RunStatus | None
    has_it: bool


def settled(obj: Mapping[str, Any]) -> bool:
    """Whether nothing more happens to this signal, as its stored status says."""
    status = obj.get("status") or {}
    found = (item for item in status.get("conditions") or [] if item.get("type") == SignalCondition.DELIVERED)
    return any(item.get("reason") in FINAL for item in found)


def read_signal(obj: Mapping[str, Any]) -> WorkflowSignalResource | Say:
    """The signal, or why there can be no message."""
    match validate_workflow_signal(obj):
        case Rejected(reason=reason, message=message):
            return Say(reason, message)
        case Accepted(resource=signal):
            return signal


def decide(signal: WorkflowSignalResource, workflow: Mapping[str, Any] | None) -> Deliver | Say:
    """What to do, given the Workflow that has the name now, None when there is none."""
    name = signal.spec.workflow_name
    if workflow is None:
        return Say(
            Reason.WORKFLOW_NOT_FOUND,
            f"there is no Workflow {name} in this namespace; one that is applied within a minute of the signal gets it",
            again=True,
        )
    metadata, sent_at = Metadata.parse(workflow), signal.metadata.created_at
    applied_at = metadata.created_at
    if sent_at is not None and applied_at is not None and applied_at > sent_at + WAIT_FOR_WORKFLOW:
        return Say(
            Reason.WORKFLOW_NOT_FOUND,
            f"Workflow {name} was applied more than a minute after this signal, which was not meant for it; if it is, "
            "create it anew",
        )
    if read_workflow(workflow).accepted is False:
        return Say(Reason.WORKFLOW_ENDED, f"Workflow {name} was refused, its status says why; there is no run of it")
    spec = signal.spec
    key = f"signal:{signal.metadata.uid}" if spec.key is None else f"key:{spec.key}"
    return Deliver(metadata.uid, spec.topic or "", key, json.dumps(spec.value, separators=(",", ":")))


def outcome(name: str, answer: Answer) -> Say:
    """What to say after a delivery was tried."""
    if answer.has_it:
        return Say(Reason.DELIVERED, f"run {name} has the message")
    if answer.status is None:
        return Say(Reason.WORKFLOW_NOT_STARTED, f"the run of Workflow {name} is not stored yet", again=True)
    return Say(Reason.WORKFLOW_ENDED, f"the run of Workflow {name} had ended; nobody would take the message")


def status_of(obj: Mapping[str, Any], said: Say, run_id: str | None, now: datetime) -> dict[str, Any]:
    """The whole status."""
    generation = int(obj["metadata"].get("generation") or 0)
    delivered = said.reason is Reason.DELIVERED
    condition: dict[str, object] = {
        "type": SignalCondition.DELIVERED.value,
        "status": str(delivered),
        "reason": said.reason.value,
        "message": clip(said.message),
        "observedGeneration": generation,
    }
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": with_times([condition], obj.get("status") or {}, now),
    }
    if delivered and run_id is not None:
        status |= {"workflowId": run_id, "deliveredAt": instant(now)}
    return status
