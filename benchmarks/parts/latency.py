"""One run at a time on an idle system: how long a caller waits for its result."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

from perdure import Client

from benchmarks import backlog, figures
from benchmarks.flows import chain
from benchmarks.host import Bench, Database
from benchmarks.part import Column, Part, Rounds
from benchmarks.parts.drain import SUBJECT
from benchmarks.results import Row

RUN = "client.run"
START = "client.start, then handle.result"
GAP = "start of a step to start of the next"

PAUSE_SECONDS = 0.02
"""Between two runs, so that none begins in the wake of another."""

WARM_UP = 10
"""First runs, that are not counted: connections are opened, statements prepared."""

STATISTICS_SECONDS = 1.5
"""Postgres' sessions tell their counts with a statement, but not within a second of the last time."""

FLUSHES = "SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'"
STEP_TIMES = """
SELECT extract(epoch FROM started_at)::float8 FROM perdure.workflow_steps WHERE workflow_id = $1 ORDER BY step_index
"""


async def measure(bench: Bench) -> AsyncIterator[Row]:
    async with bench.database() as database:
        await database.settle()
        async with bench.workers(database), database.client() as client:
            before = await _flushes(database, client)
            found = figures.spread(await one_by_one(partial(_run, client), bench.size.latency_runs), "ms")
            flushes = await _flushes(database, client) - before
            yield Row(SUBJECT, RUN, {**found, "flushes": flushes / (bench.size.latency_runs + WARM_UP + 1)})
            waited = await one_by_one(partial(_start, client), bench.size.latency_runs)
            yield Row(SUBJECT, START, figures.spread(waited, "ms"))
            yield Row(SUBJECT, GAP, figures.spread(await _gaps(database, client, bench.size.gap_steps), "ms"))


async def one_by_one(wait: Callable[[], Awaitable[object]], count: int) -> Sequence[float]:
    """Milliseconds that each of `count` waits takes, one after the other."""
    found = []
    for number in range(-WARM_UP, count):
        started = time.perf_counter()
        await wait()
        if number >= 0:
            found.append((time.perf_counter() - started) * 1000)
        await asyncio.sleep(PAUSE_SECONDS)
    return found


async def _run(client: Client) -> None:
    await client.run(chain, backlog.STEPS)


async def _start(client: Client) -> None:
    await (await client.start(chain, backlog.STEPS)).result()


async def _gaps(database: Database, client: Client, steps: int) -> Sequence[float]:
    """Milliseconds between the starts of steps of one run, by Postgres' clock."""
    handle = await client.start(chain, steps)
    await handle.result()
    times = [row[0] for row in await database.connection.fetch(STEP_TIMES, handle.id)]
    return [(later - earlier) * 1000 for earlier, later in itertools.pairwise(times)]


async def _flushes(database: Database, client: Client) -> int:
    """How often Postgres has waited for the disk, so far; with a run, in which all sessions tell what they did."""
    await asyncio.sleep(STATISTICS_SECONDS)
    await _run(client)
    await asyncio.sleep(PAUSE_SECONDS)
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
