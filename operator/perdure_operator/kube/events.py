"""Posts Kubernetes Events: aggregated, at a slow pace, never in the way of anything. Used by all reconcilers.

The name of an Event is made from what it says, so that repeating it, or a second operator saying it, adds to the
count of the one that is there instead of making another.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any

from perdure.resources.common import API_VERSION
from perdure.telemetry.logs import get_logger

from perdure_operator.kube.client import MERGE_PATCH, Client
from perdure_operator.kube.errors import ApiRefused, ApiUnavailable
from perdure_operator.kube.pace import Pace
from perdure_operator.plan.events import Notice

log = get_logger(__name__)

COMPONENT = "perdure-operator"
PER_SECOND = 5.0
"""Events a second: a person reads fewer, and each is a write to etcd."""

MOST_PENDING = 500
"""Notices that wait to be posted; under a flood the oldest are dropped, the status has the same facts."""

MOST_REMEMBERED = 2000
"""Events whose count is known, for raising it."""

MAX_MESSAGE = 1000
"""Characters of a message; the API server takes 1024."""

RETRY_SECONDS = 5.0
DROPPED_SECONDS = 60.0
"""Time between two log lines about dropped Events."""


class EventPoster:
    """`post` may be called from anywhere on the loop and returns at once; `run` does the rest until cancelled."""

    def __init__(self, client: Client, instance: str) -> None:
        self._client = client
        self._instance = instance
        self._pace = Pace(PER_SECOND)
        self._pending: OrderedDict[Notice, int] = OrderedDict()
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._wake = asyncio.Event()
        self._dropped = 0
        self._dropped_at = float("-inf")

    def post(self, notice: Notice) -> None:
        """Have it posted soon; the same notice again before that only counts."""
        self._pending[notice] = self._pending.get(notice, 0) + 1
        while len(self._pending) > MOST_PENDING:
            self._pending.popitem(last=False)
            self._dropped += 1
            if time.monotonic() - self._dropped_at > DROPPED_SECONDS:
                log.warning("too many events at once, some are not posted", dropped=self._dropped)
                self._dropped, self._dropped_at = 0, time.monotonic()
        self._wake.set()

    async def run(self) -> None:
        """Post what is pending, one by one, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                await asyncio.sleep(self._pace.wait(time.monotonic()))
                notice, count = self._pending.popitem(last=False)
                try:
                    await self._write(notice, count)
                except ApiUnavailable as error:
                    self._pending[notice] = self._pending.get(notice, 0) + count
                    self._pace.throttled(error.retry_after or RETRY_SECONDS, time.monotonic())
                except ApiRefused as error:
                    # A namespace that is going away takes no Events; nobody will look for them there.
                    log.info("event refused", reason=notice.reason, name=notice.name, error=str(error))

    async def _write(self, notice: Notice, count: int) -> None:
        name = event_name(notice)
        path = f"/api/v1/namespaces/{notice.namespace}/events"
        known = self._counts.get(name, 0)
        if not known:
            try:
                await self._client.request("POST", path, body=self._body(notice, name, count))
            except ApiRefused as error:
                if error.status != 409:
                    raise
                known = 1  # said before by a predecessor: go on counting from there
        if known:
            change = {"count": known + count, "lastTimestamp": _now(), "message": _message(notice)}
            try:
                await self._client.request("PATCH", f"{path}/{name}", body=change, content_type=MERGE_PATCH)
            except ApiRefused as error:
                if error.status != 404:
                    raise
                known = 0  # it has expired (an hour by default): a new one
                await self._client.request("POST", path, body=self._body(notice, name, count))
        self._counts[name] = known + count
        self._counts.move_to_end(name)
        while len(self._counts) > MOST_REMEMBERED:
            self._counts.popitem(last=False)

    def _body(self, notice: Notice, name: str, count: int) -> dict[str, Any]:
        now = _now()
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": notice.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": notice.kind,
                "namespace": notice.namespace,
                "name": notice.name,
                "uid": notice.uid,
            },
            "reason": notice.reason.value,
            "message": _message(notice),
            "type": "Warning" if notice.warning else "Normal",
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": count,
        }


def event_name(notice: Notice) -> str:
    """Name of the Event: that of the object, and a hash of what is said about it."""
    digest = hashlib.sha256(f"{notice.uid}/{notice.reason}/{notice.message}".encode()).hexdigest()[:16]
    return f"{notice.name[:200].rstrip('.-')}.{digest}"


def _message(notice: Notice) -> str:
    return notice.message if len(notice.message) <= MAX_MESSAGE else f"{notice.message[: MAX_MESSAGE - 1]}…"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
