"""Temporal: a server of its own. Here its development server, whose store is in memory: nothing is durable."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.drains import Drain
from benchmarks.host import Bench
from benchmarks.peers import install
from benchmarks.peers.peer import Program, free_port, program

MODULE = "github.com/temporalio/cli@v1.9.1"
WITHOUT = ("github.com/temporalio/cli/cliext",)

ACTIVITIES, LOCAL = "activities", "local activities"
KINDS = {ACTIVITIES: "activities", LOCAL: "local"}
PER_SECOND = 50


class Temporal:
    """Worker slots are left as they come: more changed the rate by less than a tenth."""

    name = "Temporal dev server 1.32.0, Python SDK 1.35.0"
    durable = "nothing: its store is in memory"
    drains: Sequence[str] = (ACTIVITIES, LOCAL)
    latencies: Sequence[str] = (ACTIVITIES, LOCAL)

    def __init__(self) -> None:
        self._python = Path()
        self._server = Path()

    def install(self) -> None:
        self._python = install.python_environment("temporal", ["temporalio==1.35.0"]) / "python"
        source = install.PROGRAMS / "temporal_server"
        self._server = install.go_program("temporal-dev-server", MODULE, source, without=WITHOUT)

    @asynccontextmanager
    async def drain(self, bench: Bench, way: str) -> AsyncIterator[Drain]:
        runs = int(PER_SECOND * bench.size.peer_seconds)
        queue = uuid.uuid4().hex
        async with self._serving(bench) as (server, address):
            async with self._program(bench, address, "enqueue", queue, KINDS[way], str(runs)) as client:
                await client.ready()
            await bench.wait_until_idle()
            async with (
                self._program(bench, address, "count", queue) as count,
                self._program(bench, address, "worker", queue) as worker,
            ):
                await count.ready()
                await worker.ready()

                async def done() -> int:
                    return int(await count.ask())

                yield Drain(runs, done, {"worker": [worker.pid], "server": [server.pid]})

    async def latency(self, bench: Bench, way: str, runs: int) -> Sequence[float]:
        queue = uuid.uuid4().hex
        warm_up = max(1, runs // 10)
        async with (
            self._serving(bench) as (_, address),
            self._program(bench, address, "worker", queue) as worker,
        ):
            await worker.ready()
            await bench.wait_until_idle()
            arguments = ("latency", queue, KINDS[way], str(runs + warm_up))
            async with self._program(bench, address, *arguments) as client:
                await client.ready()
                return (await client.numbers(runs + warm_up))[warm_up:]

    @asynccontextmanager
    async def _serving(self, bench: Bench) -> AsyncIterator[tuple[Program, str]]:
        """The server, when its address answers a client."""
        port = free_port()
        async with program(bench, "temporal server", self._server, str(port)) as server:
            await bench.until_listening(port, "the Temporal server")
            yield server, f"127.0.0.1:{port}"

    @asynccontextmanager
    async def _program(self, bench: Bench, address: str, *arguments: str) -> AsyncIterator[Program]:
        script = install.PROGRAMS / "temporal.py"
        async with program(bench, f"temporal {arguments[0]}", self._python, script, address, *arguments) as started:
            yield started
