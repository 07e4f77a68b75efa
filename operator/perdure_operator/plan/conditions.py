"""Conditions of a WorkerPool as values, with the time of their last change kept. Used by `pool`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from perdure.resources.conditions import PoolCondition, Reason

MAX_MESSAGE = 1024
"""Bound of a message in the schema, in characters."""


def condition(
    kind: PoolCondition, status: bool | None, reason: Reason, message: str, generation: int
) -> dict[str, object]:
    """One condition without its time; `status` None is Unknown."""
    return {
        "type": kind.value,
        "status": {True: "True", False: "False", None: "Unknown"}[status],
        "reason": reason.value,
        "message": clip(message),
        "observedGeneration": generation,
    }


def with_times(
    conditions: Sequence[dict[str, object]], before: Mapping[str, Any], now: datetime
) -> list[dict[str, object]]:
    """The conditions with `lastTransitionTime`: that of the stored condition while its status is the same."""
    stored = {item.get("type"): item for item in before.get("conditions") or [] if isinstance(item, Mapping)}
    timed = []
    for item in conditions:
        old = stored.get(item["type"])
        same = old is not None and old.get("status") == item["status"]
        since = old.get("lastTransitionTime") if same and old is not None else None
        timed.append({**item, "lastTransitionTime": since or instant(now)})
    return timed


def instant(moment: datetime) -> str:
    """RFC 3339 in UTC, whole seconds, as the API server writes them."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clip(message: str) -> str:
    """The message, cut to what the schema takes."""
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"
