"""Runs that sleep take rows, not workers: memory and queries while they do, and fresh runs while many wake."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from perdure import Client
from perdure.dev.processes import WorkerProcess

from benchmarks import backlog, figures, machine
from benchmarks.flows import chain
from benchmarks.host import Bench, Database, until
from benchmarks.part import Column, Part
from benchmarks.parts.drain import SUBJECT
from benchmarks.results import Row

IDLE, ASLEEP = "nothing sleeps", "asleep"
BEFORE, WAKING = "fresh runs, nothing else", "fresh runs, many waking"

SLOTS = 64
HOUR = 3600.0
RUN = "sleeper"
QUIET_SECONDS = 11.0
"""Postgres' sessions tell their counts ten seconds after they have become idle."""
LOOK_SECONDS = 1.0
"""Counting a hundred thousand rows takes a while: not more often."""

PARKED = "SELECT status = 40 FROM perdure.workflows WHERE id = $1"
COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
WAKE_STEPS = """
UPDATE perdure.workflow_steps SET wake_at = now()
 WHERE wake_at > now() AND workflow_id IN
       (SELECT id FROM perdure.workflows WHERE status = 40 ORDER BY id LIMIT $1)
"""
WAKE_RUNS = """
UPDATE perdure.workflows SET wake_at = now()
 WHERE id IN (SELECT id FROM perdure.workflows WHERE status = 40 ORDER BY id LIMIT $1)
"""
AWAKE = "SELECT count(*) FROM perdure.workflows WHERE workflow = 'bench.sleeper' AND status >= 50"


async def measure(bench: Bench) -> AsyncIterator[Row]:
    size = bench.size
    async with bench.database() as database, bench.workers(database, slots=SLOTS) as (worker,):
        await backlog.store(database.connection, RUN, "bench.sleeper", seconds=HOUR)

        async def parked() -> bool:
            return bool(await database.connection.fetchval(PARKED, RUN))

        await until(parked, "the sleep of the first run")
        async with database.client() as client:
            await _fresh(client, size.latency_runs, lambda: False)  # what a first run loads is there before it counts
            yield Row(SUBJECT, IDLE, await _at_rest(bench, database, worker))
            await backlog.copy(database.connection, RUN, size.sleepers - 1)
            await database.settle()
            yield Row(SUBJECT, f"{size.sleepers:,} {ASLEEP}", await _at_rest(bench, database, worker))
            alone = await _fresh(client, size.latency_runs, lambda: False)
            yield Row(SUBJECT, BEFORE, figures.spread(alone, "ms"))
            yield Row(SUBJECT, WAKING, await _waking(bench, database, client))


async def _at_rest(bench: Bench, database: Database, worker: WorkerProcess) -> dict[str, float]:
    """Memory of the worker, and what it asks of the database, over a while in which nothing happens."""
    await asyncio.sleep(QUIET_SECONDS)
    pids = {"worker": [worker.process.pid]}
    began, commits = time.monotonic(), await database.connection.fetchval(COMMITS)
    before, _ = machine.usage(pids)
    await asyncio.sleep(bench.size.sleep_seconds)
    after, memory = machine.usage(pids)
    seconds = time.monotonic() - began
    commits = await database.connection.fetchval(COMMITS) - commits
    return {
        "worker_mb": memory["worker"],
        "commits_per_second": commits / seconds,
        "worker_percent": (after["worker"] - before["worker"]) / seconds * 100,
    }


async def _waking(bench: Bench, database: Database, client: Client) -> dict[str, float]:
    """Fresh runs, one after the other, from the moment many sleepers are due until all of these have ended."""
    woken = bench.size.woken
    async with database.connection.transaction():
        await database.connection.execute(WAKE_STEPS, woken)
        await database.connection.execute(WAKE_RUNS, woken)
    began = time.monotonic()
    all_awake = asyncio.Event()

    async def wait() -> None:
        async def awake() -> bool:
            return bool(await database.connection.fetchval(AWAKE) >= woken)

        await until(awake, "the end of all that was woken", interval=LOOK_SECONDS)
        all_awake.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(wait())
        found = await _fresh(client, None, all_awake.is_set)
        seconds = time.monotonic() - began
    return {**figures.spread(found, "ms"), "woken_per_second": woken / seconds}


async def _fresh(client: Client, count: int | None, over: Callable[[], bool]) -> list[float]:
    """Milliseconds from start to result of fresh runs, one after the other."""
    found: list[float] = []
    while not over() and (count is None or len(found) < count):
        started = time.perf_counter()
        await client.run(chain, backlog.STEPS)
        found.append((time.perf_counter() - started) * 1000)
        await asyncio.sleep(0.01)
    return found


PART = Part(
    "sleepers",
    "Sleeping runs",
    "Runs that sleep for an hour, beside one idle worker: its memory, its processor time, and the transactions that "
    "the database commits a second, without and with them. Then fresh 5-step runs, one after the other, while nothing "
    "else happens and while ten thousand sleepers (the quick run: half) become due in one moment.",
    (
        Column("worker_mb", "worker MB"),
        Column("worker_percent", "worker CPU %"),
        Column("commits_per_second", "commits/s"),
        Column("p50_ms", "fresh p50 ms"),
        Column("p99_ms", "fresh p99 ms"),
        Column("max_ms", "fresh max ms"),
        Column("woken_per_second", "woken runs/s"),
    ),
    measure,
)
