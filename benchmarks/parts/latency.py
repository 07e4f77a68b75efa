"""One run at a time on an idle system: how long a caller waits for its result."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Sequence
from functools import partial

from localcluster.console import Failure
from perdure import Client

from benchmarks import backlog, figures
from benchmarks.flows import chain
from benchmarks.host import ROOT, Bench, Database
from benchmarks.part import Column, Part, Rounds
from benchmarks.parts.drain import SUBJECT
from benchmarks.results import Row
from benchmarks.timing import PAUSE_SECONDS, WARM_UP, one_by_one

HERE = "client.run, in the process of the worker"
RUN = "client.run"
START = "client.start, then handle.result"
GAP = "start of a step to start of the next"

SLOTS = 16

STATISTICS_SECONDS = 1.5
"""Postgres' sessions tell their counts with a statement, but not within a second of the last time."""

FLUSHES = "SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'"
STEP_TIMES = """
SELECT extract(epoch FROM started_at)::float8 FROM perdure.workflow_steps WHERE workflow_id = $1 ORDER BY step_index
"""


async def measure(bench: Bench) -> AsyncIterator[Row]:
    yield Row(SUBJECT, HERE, figures.spread(await _beside(bench), "ms"))
    async with bench.database() as database:
        await database.settle()
        async with bench.workers(database, slots=SLOTS), database.client() as client:
            before = await _flushes(database, client)
            found = figures.spread(await one_by_one(partial(_run, client), bench.size.latency_runs), "ms")
            flushes = await _flushes(database, client) - before
            yield Row(SUBJECT, RUN, {**found, "flushes": flushes / (bench.size.latency_runs + WARM_UP + 1)})
            waited = await one_by_one(partial(_start, client), bench.size.latency_runs)
            yield Row(SUBJECT, START, figures.spread(waited, "ms"))
            yield Row(SUBJECT, GAP, figures.spread(await _gaps(database, client, bench.size.gap_steps), "ms"))


async def _beside(bench: Bench) -> Sequence[float]:
    """Milliseconds of runs whose caller and worker are one process."""
    async with bench.database() as database:
        await database.settle()
        arguments = (database.url, str(bench.size.latency_runs), str(SLOTS))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.beside", *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await process.communicate()
        if process.returncode:
            raise Failure(f"benchmarks.beside ended with {process.returncode}")
        return [float(line) for line in printed.split()]


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
    "A client starts a run and waits for its result; one worker process, one run at a time, a pause of "
    f"{PAUSE_SECONDS * 1000:.0f} ms between two. The client, the worker and Postgres are three processes over TCP; "
    "where the client is in the process of the worker they are two, and a run has one commit less: it is stored as one "
    "that is taken. The peers' runs that are started directly are of this kind.",
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
