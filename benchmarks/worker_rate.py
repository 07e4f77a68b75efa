"""Steps per second of one worker: no-op runs of five steps, every start and finish durable.

    python benchmarks/worker_rate.py postgresql://… [--runs 4000] [--steps 5] [--slots 200] [--profile FILE]

For profiles: the worker is in this process. `make bench` has the numbers, of a worker that has a process of its own.
It takes a database of its own on that server, and drops it.
"""

import argparse
import asyncio
import cProfile
import json
import time
import uuid
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

import asyncpg
import perdure
from perdure.api import default_registry
from perdure.model.rows import NewRun, workflow_requirement
from perdure.store import runs as runs_store
from perdure.store.migrate import migrate
from perdure.store.pool import connect
from perdure.telemetry import logs, names
from perdure.worker.settings import WorkerSettings
from perdure.worker.worker import Worker


@dataclass(frozen=True)
class Rate:
    """What one worker did. Seconds count from the first claim to the last end."""

    runs: int
    steps_per_run: int
    slots: int
    seconds: float
    steps_per_second: float
    runs_per_second: float
    cpu_microseconds_per_step: float
    """Processor time of the worker alone, which a busy machine disturbs less than the clock."""
    rows_per_statement: float
    statements: int


@perdure.step(name="bench.nothing")
async def nothing(number: int) -> int:
    return number


@perdure.workflow(name="bench.no_op")
async def no_op(steps: int) -> int:
    for number in range(steps):
        await nothing(number)
    return steps


async def measure(url: str, *, runs: int = 4000, steps: int = 5, slots: int = 200, connections: int = 2) -> Rate:
    """Enqueue the runs, then let one worker drain them."""
    namespace = f"bench-{uuid.uuid4().hex[:8]}"
    connection = await connect(url, application_name="bench")
    try:
        for number in range(runs):
            await runs_store.upsert(connection, new_run(namespace, number, steps))
        await connection.execute("VACUUM ANALYZE perdure.workflows")
        settings = WorkerSettings(namespace=namespace, slots=slots, journal_connections=connections)
        worker = Worker(settings, default_registry, database_url=url)
        await worker.start()
        await worker.wait_until_working()
        started, cpu = time.perf_counter(), time.process_time()
        while worker.metrics.value(names.RUNS_FINISHED, namespace, "bench.no_op", "succeeded") < runs:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        await worker.stop()
        written = worker.metrics.registry.get_sample_value("perdure_journal_flush_rows_sum") or 0.0
        statements = worker.metrics.value(names.JOURNAL_FLUSH_ROWS)
    finally:
        await connection.close()
    return Rate(
        runs=runs,
        steps_per_run=steps,
        slots=slots,
        seconds=round(seconds, 3),
        steps_per_second=round(runs * steps / seconds, 1),
        runs_per_second=round(runs / seconds, 1),
        cpu_microseconds_per_step=round(cpu / (runs * steps) * 1e6, 1),
        rows_per_statement=round(written / max(1.0, statements), 1),
        statements=int(statements),
    )


def new_run(namespace: str, number: int, steps: int) -> NewRun:
    return NewRun(
        id=f"{namespace}-{number:07}",
        namespace=namespace,
        name=None,
        workflow="bench.no_op",
        requires=(workflow_requirement("bench.no_op"),),
        input=json.dumps([steps]),
    )


async def _main(arguments: argparse.Namespace) -> None:
    server = await asyncpg.connect(arguments.url)
    name = f"bench_{uuid.uuid4().hex[:8]}"
    await server.execute(f"CREATE DATABASE {name}")
    url = urlsplit(arguments.url)._replace(path=f"/{name}").geturl()
    profile = cProfile.Profile(time.thread_time)
    try:
        await migrate(url)
        if arguments.profile:
            profile.enable()
        rate = await measure(
            url,
            runs=arguments.runs,
            steps=arguments.steps,
            slots=arguments.slots,
            connections=arguments.connections,
        )
        if arguments.profile:
            profile.disable()
            profile.dump_stats(arguments.profile)
    finally:
        await server.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await server.close()
    print(json.dumps(asdict(rate)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--slots", type=int, default=200)
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--profile")
    logs.configure("WARNING")
    asyncio.run(_main(parser.parse_args()))
