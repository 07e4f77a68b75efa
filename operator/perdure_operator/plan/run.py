"""What to do with the row of a Workflow, from the object and what the row says. Pure; asked by `control.intake`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.model.rows import NewRun, RunView
from perdure.model.states import RunStatus
from perdure.resources.acceptance import Rejected

from perdure_operator.plan.accept import accept
from perdure_operator.plan.seen import read_workflow


@dataclass(frozen=True, slots=True)
class Forget:
    """The resource is gone: cancel the run and have its rows removed when it has ended."""


@dataclass(frozen=True, slots=True)
class End:
    """The resource is on its way out and somebody else holds it back: cancel the run, keep the row."""

    reason: str


@dataclass(frozen=True, slots=True)
class Store:
    """Have the row say this."""

    run: NewRun


@dataclass(frozen=True, slots=True)
class Refuse:
    """There will be no run: say so in the status."""

    rejected: Rejected


@dataclass(frozen=True, slots=True)
class KeepOld:
    """There is a run and this spec is no valid change of it: the run goes on as it is, an Event says so."""

    message: str


Action = Forget | End | Store | Refuse


def decide(uid: str, obj: Mapping[str, Any] | None) -> Action:
    """What to do. `obj` is the object that has the name now, None when there is none."""
    metadata = (obj or {}).get("metadata") or {}
    if obj is None or metadata.get("uid") != uid:
        return Forget()
    if metadata.get("deletionTimestamp"):
        return End("its Workflow is being deleted")
    accepted = accept(obj)
    return Refuse(accepted) if isinstance(accepted, Rejected) else Store(accepted)


def has_ended(obj: Mapping[str, Any]) -> bool:
    """Whether the stored status shows an end. Such a run is never made anew when its row is missing: after the loss
    of a database everything that had ended would run a second time."""
    return read_workflow(obj).finished


def refuse(rejected: Rejected, *, has_row: bool) -> Refuse | KeepOld:
    """A spec that cannot be run: with a row it was accepted before, and what runs goes on."""
    return KeepOld(rejected.message) if has_row else Refuse(rejected)


def changed_definition(run: NewRun, stored: RunView) -> str | None:
    """What of the definition differs from the one that the run was accepted with, as a sentence; None if nothing.

    The API server refuses such a change; this is for objects that came past its rules.
    """
    pairs = {
        "workflow": (run.workflow, stored.workflow),
        "steps": (run.definition, stored.definition),
        "workerPool": (run.pool, stored.pool),
        "queue": (run.queue, stored.queue),
    }
    names = [name for name, (new, old) in pairs.items() if new != old]
    if not names:
        return None
    return f"changed after the run was accepted and not taken in: spec.{', spec.'.join(names)}. Apply a new Workflow"


def report_at_once(status: RunStatus) -> bool:
    """Whether a change of the row needs a status from the operator although a worker holds the run.

    The worker reports at its next checkpoint, which in a long step is far away, and `kubectl wait` would hang.
    """
    return status == RunStatus.RUNNING
