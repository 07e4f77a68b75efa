"""What a worker pod's object says: whether it is ready, what is wrong with it, whether its worker is proved dead.

Pure; used by `pool` (why a pool is not ready), `waiting` (why a run does not start) and the sweep for dead workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perdure_operator.plan.manifests import POOL_LABEL, VERSION_LABEL

MAX_TEXT = 300
"""Characters of a container's last words that are shown: the end of a traceback."""

HARMLESS_WAITS = frozenset({"ContainerCreating", "PodInitializing", ""})
"""Reasons of a waiting container that end by themselves."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a pod does not become ready: Kubernetes' own word for it, and a sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Pod:
    """The part of a worker pod that decisions need."""

    name: str
    uid: str
    pool: str
    version: str
    ready: bool
    leaving: bool
    """Marked for deletion: it counts for nothing any more."""

    worker_ended: bool
    """No process of this pod can be at work: proof of death, whatever its lease says."""

    trouble: Trouble | None


def read_pod(obj: Mapping[str, Any]) -> Pod:
    """The facts of a pod as the API server hands it out. Total: missing parts count as not yet reported."""
    metadata, status = _map(obj.get("metadata")), _map(obj.get("status"))
    labels = _map(metadata.get("labels"))
    return Pod(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        pool=str(labels.get(POOL_LABEL, "")),
        version=str(labels.get(VERSION_LABEL, "")),
        ready=_condition(status, "Ready").get("status") == "True",
        leaving=bool(metadata.get("deletionTimestamp")),
        worker_ended=_worker_ended(obj),
        trouble=_trouble(status),
    )


def worst(pods: Iterable[Pod]) -> Trouble | None:
    """The trouble to show for many pods: the most frequent one, by name when there are equals."""
    found: dict[str, list[Trouble]] = {}
    for pod in pods:
        if pod.trouble is not None and not pod.leaving:
            found.setdefault(pod.trouble.reason, []).append(pod.trouble)
    if not found:
        return None
    reason = min(found, key=lambda name: (-len(found[name]), name))
    return min(found[reason], key=lambda trouble: trouble.message)


def _worker_ended(obj: Mapping[str, Any]) -> bool:
    """Whether the kubelet has reported the end of the worker's container and it does not run again.

    That a pod's object is gone proves nothing by itself: after a forced deletion the process may still run.
    """
    spec, status = _map(obj.get("spec")), _map(obj.get("status"))
    containers = spec.get("containers") or []
    if not containers:
        return False
    name = containers[0].get("name")
    for container in status.get("containerStatuses") or []:
        if container.get("name") == name:
            state, last = _map(container.get("state")), _map(container.get("lastState"))
            return "terminated" in state or ("running" not in state and "terminated" in last)
    return False


def _trouble(status: Mapping[str, Any]) -> Trouble | None:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return Trouble("Unschedulable", _short(scheduled.get("message")))
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        trouble = _container_trouble(container)
        if trouble is not None:
            return trouble
    if status.get("phase") == "Failed":
        return Trouble(str(status.get("reason") or "Failed"), _short(status.get("message")) or "the pod has failed")
    return None


def _container_trouble(container: Mapping[str, Any]) -> Trouble | None:
    state, last = _map(container.get("state")), _map(container.get("lastState"))
    waiting, ended = _map(state.get("waiting")), _map(state.get("terminated"))
    reason = str(waiting.get("reason") or "")
    name = container.get("name", "")
    if reason == "CrashLoopBackOff":
        return Trouble(reason, f"container {name} ends again and again: {_last_words(_map(last.get('terminated')))}")
    if waiting and reason not in HARMLESS_WAITS:
        return Trouble(reason, f"container {name}: {_short(waiting.get('message')) or reason}")
    if ended and ended.get("exitCode"):
        return Trouble(str(ended.get("reason") or "Error"), f"container {name} has ended: {_last_words(ended)}")
    return None


def _last_words(ended: Mapping[str, Any]) -> str:
    code = ended.get("exitCode", "unknown")
    text = _short(ended.get("message"), end=True)
    return f"exit code {code}" + (f", {text}" if text else f", {ended.get('reason', 'no reason given')}")


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    for condition in status.get("conditions") or []:
        if condition.get("type") == kind:
            return _map(condition)
    return {}


def _short(text: Any, *, end: bool = False) -> str:
    """One line of bounded length; of last words the end is what matters."""
    line = " ".join(str(text or "").split())
    if len(line) <= MAX_TEXT:
        return line
    return f"…{line[-MAX_TEXT + 1 :]}" if end else f"{line[: MAX_TEXT - 1]}…"


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
