"""Draining a backlog with one worker process: the rate of an engine, and what each step costs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from benchmarks import backlog, drains
from benchmarks.drains import Drain
from benchmarks.host import Bench, Database
from benchmarks.part import Column, Part, Rounds
from benchmarks.results import Row

SUBJECT = "perdure"

ENDED = "SELECT count(*) FROM perdure.workflows WHERE status >= 50"
FAILED = "SELECT count(*) FROM perdure.workflows WHERE status > 50"

COLUMNS = (
    Column("steps_per_second", "steps/s"),
    Column("runs_per_second", "runs/s"),
    Column("worker_cpu", "worker CPU-s per 1,000 steps"),
    Column("postgres_cpu", "Postgres CPU-s"),
    Column("server_cpu", "server CPU-s"),
    Column("cpu", "all CPU-s"),
    Column("worker_mb", "worker MB"),
    Column("server_mb", "server MB"),
    Column("others_percent", "others' CPU %"),
)


async def measure(bench: Bench) -> AsyncIterator[Row]:
    for slots, runs in bench.size.drain_runs.items():
        async with bench.database() as database:
            await backlog.store_many(database.connection, "run", runs, "bench.chain", steps=backlog.STEPS)
            await database.settle()
            async with draining(bench, database, runs, slots=slots) as drain:
                found = await drains.watch(bench, drain, bench.size.drain_seconds)
            yield Row(SUBJECT, case(slots), found)


@asynccontextmanager
async def draining(
    bench: Bench, database: Database, runs: int, *, slots: int, workers: Sequence[int] = (1,)
) -> AsyncIterator[Drain]:
    """Workers at a backlog of `runs`."""

    async def done() -> int:
        return int(await database.connection.fetchval(ENDED))

    async with bench.workers(database, workers, slots=slots) as started:
        yield Drain(runs, done, {"worker": [worker.process.pid for worker in started]})
    if failed := await database.connection.fetchval(FAILED):
        bench.note(f"{failed} runs of a drain did not succeed")


def case(slots: int) -> str:
    return f"{slots} slots"


PART = Part(
    "drain",
    "Draining 5-step runs, one worker process",
    "A backlog of runs of five steps that do nothing, then one `python -m perdure.worker`. A step's start is durable "
    "before its body runs, its finish before the next step's body. Replay, leases, metrics and logs are all on. Rates "
    "and costs are those of the steady part, without the start of the process; processor time is from /proc. "
    "Others' CPU is what had no part in it: the kernel, the host, whatever else was at work.",
    COLUMNS,
    measure,
    Rounds.COMPARED,
)
