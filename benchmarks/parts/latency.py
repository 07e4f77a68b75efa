"""One run at a time on an idle system: how long a caller waits for its result."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence

from benchmarks import backlog, numbers
from benchmarks.host import Bench, Database
from benchmarks.part import Column, Part, Rounds
from benchmarks.parts.drain import SUBJECT
from benchmarks.results import Row
from benchmarks.starter import Starter

RUN, GAP = "start to result", "start of a step to start of the next"

PAUSE_SECONDS = 0.02
"""Between two runs, so that none begins in the wake of another."""

WARM_UP = 10
"""First runs, that are not counted: connections are opened, statements prepared."""

STATISTICS_SECONDS = 1.5
"""Postgres' sessions tell their counts about once a second."""

FLUSHES = "SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'"
STEP_TIMES = """
SELECT extract(epoch FROM started_at)::float8 FROM perdure.workflow_steps WHERE workflow_id = $1 ORDER BY step_index
"""


async def measure(bench: Bench) -> AsyncIterator[Row]:
    async with bench.database() as database:
        await database.settle()
        async with bench.workers(database):
            before = await _flushes(database)
            waited = await start_to_result(database, bench.size.latency_runs)
            flushes = (await _flushes(database) - before) / (bench.size.latency_runs + WARM_UP)
            yield Row(SUBJECT, RUN, {**numbers.spread(waited, "ms"), "flushes": flushes})
            yield Row(SUBJECT, GAP, numbers.spread(await _gaps(database, bench.size.gap_steps), "ms"))


async def start_to_result(database: Database, count: int) -> Sequence[float]:
    """Milliseconds from the call that starts a run to its result in the caller's hands, for each of `count` runs."""
    found = []
    async with Starter(database.url) as starter:
        for number in range(-WARM_UP, count):
            started = time.perf_counter()
            await starter.run(backlog.STEPS)
            if number >= 0:
                found.append((time.perf_counter() - started) * 1000)
            await asyncio.sleep(PAUSE_SECONDS)
    return found


async def _gaps(database: Database, steps: int) -> Sequence[float]:
    """Milliseconds between the starts of steps of one run, by Postgres' clock."""
    async with Starter(database.url) as starter:
        run_id = await starter.run(steps)
    times = [row[0] for row in await database.connection.fetch(STEP_TIMES, run_id)]
    return [(later - earlier) * 1000 for earlier, later in itertools.pairwise(times)]


async def _flushes(database: Database) -> int:
    """How often Postgres has waited for the disk, so far."""
    await asyncio.sleep(STATISTICS_SECONDS)
    return int(await database.connection.fetchval(FLUSHES))


PART = Part(
    "latency",
    "One 5-step run on an idle system",
    "A client starts a run and waits for its result; one worker process, one run at a time. The client, the worker and "
    "Postgres are three processes over TCP.",
    (
        Column("p50_ms", "p50 ms"),
        Column("p99_ms", "p99 ms"),
        Column("max_ms", "max ms"),
        Column("samples", "samples"),
        Column("flushes", "WAL flushes a run"),
    ),
    measure,
    Rounds.COMPARED,
)
