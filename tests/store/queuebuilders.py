"""Queues with limits, and many runs in them, for the tests of claims."""

from collections.abc import Coroutine
from typing import Any

from perdure.model.outcome import Succeeded
from perdure.model.queues import QueueLimits
from perdure.model.rows import ClaimedRun
from perdure.store import queues

from tests.store.builders import Connection, add_run, write


async def limit(conn: Connection, name: str = "default", *, paused: bool = False, **limits: Any) -> None:
    assert await queues.apply(conn, "ns", name, QueueLimits(**limits), paused) is not None


async def add_runs(conn: Connection, number: int, **fields: Any) -> None:
    prefix = fields.pop("prefix", "r")
    for n in range(number):
        await add_run(conn, f"{prefix}{n:02}", **fields)


async def ids(claiming: Coroutine[Any, Any, list[ClaimedRun]]) -> list[str]:
    return [run.id for run in await claiming]


async def end(conn: Connection, *taken: ClaimedRun, worker_id: str = "w1") -> None:
    for run in taken:
        await write(conn, run, ending=Succeeded("1"), worker_id=worker_id)
