"""DBOS, in Python and in Rust: a library over Postgres, as Perdure is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.drains import Drain
from benchmarks.host import Bench
from benchmarks.peers import install
from benchmarks.peers.peer import ENDLESS, Program, program

DIRECT, QUEUE = "started directly", "from a queue"

ENDED = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"


class Dbos(ABC):
    """`in_flight`: runs at once in the process that starts them; `concurrency`: of the queue's worker. `per_second`:
    more than it drains, so that the backlog lasts."""

    durable = "a step's result, after its body; no start"
    drains: Sequence[str] = (DIRECT, QUEUE)
    latencies: Sequence[str] = (DIRECT,)

    def __init__(self, name: str, in_flight: int, concurrency: int, per_second: int) -> None:
        self.name = name
        self._in_flight = in_flight
        self._concurrency = concurrency
        self._per_second = per_second
        self._command: Sequence[str | Path] = ()

    @abstractmethod
    def install(self) -> None:
        """Set `_command`, from the registries."""

    @asynccontextmanager
    async def drain(self, bench: Bench, way: str) -> AsyncIterator[Drain]:
        async with bench.database(migrated=False) as database:
            runs, mode, number = ENDLESS, "direct", self._in_flight
            if way == QUEUE:
                runs, mode, number = int(self._per_second * bench.size.peer_seconds), "worker", self._concurrency
                async with self._program(bench, database.url, "worker", number) as first:
                    await first.ready()  # makes the tables and the queue
                async with self._program(bench, database.url, "enqueue", runs) as client:
                    await client.ready()
            await database.settle()
            async with self._program(bench, database.url, mode, number) as worker:
                await worker.ready()

                async def done() -> int:
                    return int(await database.connection.fetchval(ENDED))

                yield Drain(runs, done, {"worker": [worker.pid]})

    async def latency(self, bench: Bench, way: str, runs: int) -> Sequence[float]:
        async with bench.database(migrated=False) as database:
            await database.settle()
            warm_up = runs // 10
            async with self._program(bench, database.url, "latency", runs + warm_up) as worker:
                await worker.ready()
                return (await worker.numbers(runs + warm_up))[warm_up:]

    @asynccontextmanager
    async def _program(self, bench: Bench, url: str, mode: str, number: int) -> AsyncIterator[Program]:
        async with program(bench, self.name, *self._command, url, mode, str(number)) as started:
            yield started


class DbosPython(Dbos):
    """More threads, or its async API, are slower: it is bound by one interpreter."""

    def __init__(self) -> None:
        super().__init__("DBOS Python 3.4.0", in_flight=4, concurrency=20, per_second=80)

    def install(self) -> None:
        folder = install.python_environment("dbos-python", ["dbos==3.4.0"])
        self._command = (folder / "python", install.PROGRAMS / "dbos_python.py")


class DbosRust(Dbos):
    """Ten connections: more are slower on two cores."""

    def __init__(self) -> None:
        super().__init__("DBOS Rust 0.5.0", in_flight=100, concurrency=0, per_second=450)

    def install(self) -> None:
        self._command = (install.rust_program("dbos-rust", install.PROGRAMS / "dbos_rust") / "dbos-bench",)
