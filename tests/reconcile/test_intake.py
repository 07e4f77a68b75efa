"""From an applied Workflow to its row and back to its status."""

from __future__ import annotations

import time
from typing import Any

import asyncpg

from tests.reconcile.harness import Place, condition, running

DECLARED = {"steps": [{"name": "first", "task": "greet"}, {"name": "second", "task": "greet", "with": {"who": "b"}}]}


def accepted(status: dict[str, Any]) -> bool:
    return condition(status, "Accepted").get("status") == "True"


async def test_an_applied_workflow_is_a_row_and_accepted_within_a_second(
    place: Place, conn: asyncpg.Connection[Any]
) -> None:
    async with running(place.settings(), place.url):
        await place.apply("warm-up", {"workflow": "flows.hello"})
        await place.until("warm-up", accepted, "accepted")
        started = time.monotonic()
        obj = await place.apply("hello", {"workflow": "flows.hello", "input": {"name": "a"}, "priority": 7})
        uid = obj["metadata"]["uid"]
        row = await place.until_row(conn, uid, lambda row: True, "there")
        in_row = time.monotonic() - started
        shown = await place.until("hello", accepted, "accepted")
        in_status = time.monotonic() - started
    assert (row["name"], row["workflow"], row["priority"], row["status"]) == ("hello", "flows.hello", 7, 10)
    assert list(row["requires"]) == ["workflow:flows.hello"]
    assert shown["status"]["phase"] == "Pending"
    assert shown["status"]["observedGeneration"] == 1
    assert in_row < 1.5, in_row
    assert in_status < 3, in_status
    assert shown["metadata"].get("finalizers") is None
    assert not [name for name in shown["metadata"].get("annotations") or {} if "kopf" in name]
