"""How cost grows with the number of workers and with the size of what steps return; memory of a running run."""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncIterator

from benchmarks import backlog, drains, machine
from benchmarks.host import Bench, until
from benchmarks.part import Column, Part
from benchmarks.parts.drain import SUBJECT, draining
from benchmarks.results import Row

SLOTS = 16
PAYLOAD_SLOTS = 64

RUNNING = "SELECT count(DISTINCT workflow_id) FROM perdure.workflow_steps WHERE status = 10"
CANCEL = "UPDATE perdure.workflows SET cancel_mode = 'Immediate' WHERE status < 50"


async def measure(bench: Bench) -> AsyncIterator[Row]:
    size = bench.size
    for workers in size.workers:
        async with bench.database() as database:
            runs = size.scale_runs
            await backlog.store_many(database.connection, "run", runs, "bench.chain", steps=backlog.STEPS)
            await database.settle()
            async with draining(bench, database, runs, slots=SLOTS, workers=range(1, workers + 1)) as drain:
                found = await drains.watch(bench, drain, size.scale_seconds)
        yield Row(SUBJECT, f"{workers} {'worker' if workers == 1 else 'workers'}", found)
    for kib, runs in zip(size.payload_kib, size.payload_runs, strict=True):
        async with bench.database() as database:
            await backlog.store_many(
                database.connection, "run", runs, "bench.payload", steps=backlog.STEPS, text=_text(kib)
            )
            await database.settle()
            async with draining(bench, database, runs, slots=PAYLOAD_SLOTS) as drain:
                yield Row(SUBJECT, f"payloads of {kib} KiB", await drains.watch(bench, drain, size.scale_seconds))
    yield Row(SUBJECT, f"{size.running} runs at once", await _memory(bench))


async def _memory(bench: Bench) -> dict[str, float]:
    """What each run in progress takes of its worker's memory."""
    runs = bench.size.running
    async with bench.database() as database:
        await database.settle()
        async with bench.workers(database, slots=runs) as (worker,):
            before = _megabytes(worker.process.pid)
            await backlog.store_many(database.connection, "run", runs, "bench.paced", steps=1, seconds=3600.0)

            async def all_running() -> bool:
                return bool(await database.connection.fetchval(RUNNING) >= runs)

            await until(all_running, "the start of all runs", interval=0.05)
            after = _megabytes(worker.process.pid)
            await database.connection.execute(CANCEL)  # nobody waits for the hour
    return {"worker_mb": after, "run_kib": (after - before) * 1024 / runs}


def _text(kib: int) -> str:
    """Text that a compressor makes little of, the same in every run."""
    return base64.b64encode(random.Random(kib).randbytes(kib * 768)).decode()


def _megabytes(pid: int) -> float:
    return machine.usage({"worker": [pid]})[1]["worker"]


PART = Part(
    "scale",
    "More workers, larger payloads, many runs at once",
    f"The drain of 5-step runs by 1, 10 and 50 worker processes of {SLOTS} slots, all on this machine; by one worker "
    f"of {PAYLOAD_SLOTS} slots where the run's input and each step's input and result have the size named, in text "
    "that does not compress; and the memory that a worker takes for each run that is in the middle of a step.",
    (
        Column("steps_per_second", "steps/s"),
        Column("worker_cpu", "worker CPU-s per 1,000 steps"),
        Column("postgres_cpu", "Postgres CPU-s"),
        Column("cpu", "all CPU-s"),
        Column("worker_mb", "workers MB"),
        Column("run_kib", "KiB a running run"),
        Column("others_percent", "others' CPU %"),
    ),
    measure,
)
