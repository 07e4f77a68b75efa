"""A caller outside: starts a run and waits for its result, as an application would."""

from __future__ import annotations

import asyncio
import uuid
from typing import Self

from perdure.store import runs
from perdure.store.listen import notify_ready
from perdure.store.pool import connect

from benchmarks import backlog
from benchmarks.host import NAMESPACE, POOL, Connection

POLL_SECONDS = 0.001


class Starter:
    """Starts one run after another."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection

    async def __aenter__(self) -> Self:
        self._connection = await connect(self._url, application_name="perdure-bench")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    async def run(self, steps: int) -> str:
        """Start a run of that many steps; its id, when its result is here."""
        run_id = str(uuid.uuid4())
        await backlog.store(self._connection, run_id, "bench.chain", steps=steps)
        await notify_ready(self._connection, NAMESPACE, POOL)
        while True:
            status = await runs.get_status(self._connection, run_id)
            if status is not None and status.finished:
                return run_id
            await asyncio.sleep(POLL_SECONDS)
