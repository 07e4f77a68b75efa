"""What the watch keeps of a Workflow: enough to tell whether it needs a look, and what has just happened to it.

Pure; used by `control.intake` for every event. A few hundred bytes an object, so that ten thousand fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.model.states import Phase


@dataclass(frozen=True, slots=True)
class WorkflowSeen:
    """The part of a Workflow's object that decisions of the watch need."""

    uid: str
    namespace: str
    name: str
    version: int
    """Resource version, to tell an older list from what the watch has told since."""

    generation: int
    observed_generation: int
    """Of the stored status; 0 without one."""

    accepted: bool | None
    deleting: bool
    pool: str
    phase: str
    reason: str
    message: str
    stalled: bool

    @property
    def finished(self) -> bool:
        """Whether the stored status shows the end of a run (one that was never accepted had none)."""
        return self.phase in FINISHED and self.accepted is not False


FINISHED = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})


def read_workflow(obj: Mapping[str, Any]) -> WorkflowSeen:
    """Reads the object as the API server hands it out. Total: a part of another shape counts as absent."""
    metadata, spec, status = (_map(obj.get(part)) for part in ("metadata", "spec", "status"))
    conditions = {item.get("type"): item.get("status") for item in status.get("conditions") or []}
    accepted = conditions.get("Accepted")
    error, waiting = _map(status.get("error")), _map(status.get("waitingFor"))
    return WorkflowSeen(
        uid=str(metadata.get("uid", "")),
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata.get("name", "")),
        version=resource_version(metadata),
        generation=int(metadata.get("generation") or 0),
        observed_generation=int(status.get("observedGeneration") or 0),
        accepted=None if accepted is None else accepted == "True",
        deleting=bool(metadata.get("deletionTimestamp")),
        pool=str(spec.get("workerPool", "")),
        phase=str(status.get("phase", "")),
        reason=str(status.get("reason", "")),
        message=str(error.get("message") or waiting.get("message") or status.get("message") or ""),
        stalled=conditions.get("Stalled") == "True",
    )


def resource_version(metadata: Mapping[str, Any]) -> int:
    """As a number, which they are (and which Kubernetes 1.35 promises); 0 when there is none."""
    text = str(metadata.get("resourceVersion") or "")
    return int(text) if text.isdigit() else 0


def needs_look(seen: WorkflowSeen, taken_in: int | None) -> bool:
    """Whether the row must be compared with the spec: `taken_in` is the generation that this process has done."""
    return seen.deleting or taken_in is None or taken_in < seen.generation


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
