"""Writes `.status` of a resource: whole, only of the object it is meant for, at a pace that the server can bear.

A JSON patch that tests the UID first: a merge patch on the status subresource ignores a wrong UID, and keeps fields
of an older status. The three answers that are no failure are told apart and returned.
"""

from __future__ import annotations

import asyncio
import time
from enum import Enum
from typing import Any

from perdure.resources.kinds import Kind
from perdure.telemetry import names
from perdure.telemetry.prometheus import Metrics

from perdure_operator.kube.client import JSON_PATCH, METADATA_ONLY, Client
from perdure_operator.kube.errors import ApiRefused, ApiUnavailable
from perdure_operator.kube.pace import Pace

REVISION_FIELD = "status.revision"


class Written(Enum):
    """Outcome of a status write."""

    OK = "ok"
    GONE = "gone"
    """There is no such object any more, or another one has its name."""

    NEWER = "conflict"
    """A status of a higher revision is there."""


class StatusWriter:
    """Shared by everybody who writes a status, so that the pace holds for all of them together."""

    def __init__(self, client: Client, metrics: Metrics, pace: Pace | None = None) -> None:
        self._client = client
        self._metrics = metrics
        self._pace = pace or Pace()

    @property
    def rate(self) -> float:
        """Writes a second that are allowed at the moment."""
        return self._pace.rate

    async def write(self, kind: Kind, namespace: str, name: str, uid: str, status: dict[str, Any]) -> Written:
        """Replace the status. Raises ApiUnavailable (try again later) or ApiRefused (the schema refuses it)."""
        await asyncio.sleep(self._pace.wait(time.monotonic()))
        started = time.monotonic()
        try:
            await self._client.request(
                "PATCH",
                kind.path(namespace, name, "status"),
                body=[
                    {"op": "test", "path": "/metadata/uid", "value": uid},
                    {"op": "add", "path": "/status", "value": status},
                ],
                content_type=JSON_PATCH,
                accept=METADATA_ONLY,
                attempts=1,
            )
        except ApiUnavailable as error:
            self._pace.throttled(error.retry_after, time.monotonic())
            self._metrics.count(names.STATUS_WRITES, "error")
            raise
        except ApiRefused as error:
            outcome = outcome_of(error)
            self._metrics.count(names.STATUS_WRITES, "refused" if outcome is None else outcome.value)
            if outcome is None:
                raise
            return outcome
        self._pace.answered(time.monotonic() - started, time.monotonic())
        self._metrics.count(names.STATUS_WRITES, Written.OK.value)
        return Written.OK


def outcome_of(error: ApiRefused) -> Written | None:
    """What a refusal means; None when it is a refusal of the content."""
    if error.object_missing:
        return Written.GONE
    if error.status == 422 and REVISION_FIELD in error.causes:
        return Written.NEWER
    if error.status == 422 and not error.causes:
        return Written.GONE  # the test of the UID failed: the answer of the API server has no details then
    return None
