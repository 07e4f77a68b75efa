"""Absurd: stored procedures in Postgres, and a small library over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from localcluster.console import Failure

from benchmarks.drains import Drain
from benchmarks.host import Bench, Database
from benchmarks.peers import install
from benchmarks.peers.peer import program

CLIENTS = 8
"""Each has a connection and a run: one client's own concurrency does not help it."""

PER_SECOND = 250
ENDED = "SELECT count(*) FROM absurd.t_default WHERE state = 'completed'"

QUEUE, DEFAULT_POLL, SHORT_POLL = f"{CLIENTS} clients", "1 client, polls as it comes", "1 client, polls every 5 ms"


class Absurd:
    """The schema is made by its own command."""

    name = "Absurd 0.5.1"
    durable = "a step's result, after its body; no start"
    drains: Sequence[str] = (QUEUE,)
    latencies: Sequence[str] = (DEFAULT_POLL, SHORT_POLL)

    def __init__(self) -> None:
        self._folder = Path()

    def install(self) -> None:
        self._folder = install.python_environment("absurd", ["absurd-sdk==0.5.1", "absurdctl==0.5.1"])

    @asynccontextmanager
    async def drain(self, bench: Bench, way: str) -> AsyncIterator[Drain]:
        runs = int(PER_SECOND * bench.size.peer_seconds)
        async with self._database(bench) as database:
            async with program(bench, self.name, *self._command(database, "enqueue", runs)) as client:
                await client.ready()
            await database.settle()
            async with program(bench, self.name, *self._command(database, "worker", CLIENTS)) as worker:
                await worker.ready()

                async def done() -> int:
                    return int(await database.connection.fetchval(ENDED))

                yield Drain(runs, done, {"worker": [worker.pid]})

    async def latency(self, bench: Bench, way: str, runs: int) -> Sequence[float]:
        env = {"POLL_SECONDS": "0.005"} if way == SHORT_POLL else {}
        warm_up = max(1, runs // 10)
        async with self._database(bench) as database:
            await database.settle()
            async with program(bench, self.name, *self._command(database, "worker", 1), env=env) as worker:
                await worker.ready()
                arguments = self._command(database, "latency", runs + warm_up)
                async with program(bench, f"{self.name} client", *arguments) as client:
                    await client.ready()
                    return (await client.numbers(runs + warm_up))[warm_up:]

    def _command(self, database: Database, mode: str, number: int) -> tuple[str | Path, ...]:
        return (self._folder / "python", install.PROGRAMS / "absurd.py", database.url, mode, str(number))

    @asynccontextmanager
    async def _database(self, bench: Bench) -> AsyncIterator[Database]:
        async with bench.database(migrated=False) as database:
            for arguments in (("init",), ("create-queue", "default")):
                await self._control(bench, database.url, *arguments)
            yield database

    async def _control(self, bench: Bench, url: str, *arguments: str) -> None:
        env = {"ABSURD_DATABASE_URL": url}
        async with program(bench, self.name, self._folder / "absurdctl", *arguments, env=env) as command:
            await asyncio.wait_for(command.process.communicate(), 60.0)
            if command.process.returncode != 0:
                raise Failure(f"absurdctl {arguments[0]} failed: {command.last_words()}")
