"""What Postgres gives on this machine: the same rows without an engine, and single commits."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator

from benchmarks import bare_writer, drains, figures
from benchmarks.drains import Drain
from benchmarks.host import ROOT, Bench, Connection
from benchmarks.part import Column, Part, Rounds
from benchmarks.parts.drain import COLUMNS
from benchmarks.results import Row
from benchmarks.timing import PAUSE_SECONDS, one_by_one

WRITER, COMMITS = "bare writer", "bare commits"
SLOTS = 1000

RUN_COMMITS = 7
"""Commits of a 5-step run, one after the other: stored as taken, first start, four times a finish with the next start,
and the last finish with the run's end. A run that goes through the queue has one more, its claim."""

RUN = f"{RUN_COMMITS} in a row, after a pause"
"""As runs on an idle system are measured."""

TABLE = "CREATE TABLE bare_commits (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, payload text)"
INSERT = "INSERT INTO bare_commits (payload) VALUES ($1)"


async def measure(bench: Bench) -> AsyncIterator[Row]:
    yield Row(WRITER, f"{SLOTS} slots", await _writer(bench))
    async with bench.database(migrated=False) as database:
        await database.connection.execute(TABLE)
        await database.settle()
        single = await _commits(database.connection, bench.size.commits)
        yield Row(COMMITS, "one after the other", figures.spread(single, "ms"))
        rows = [single[at : at + RUN_COMMITS] for at in range(0, len(single) - RUN_COMMITS + 1, RUN_COMMITS)]
        yield Row(COMMITS, f"{RUN_COMMITS} in a row", figures.spread([sum(row) for row in rows], "ms"))
        paused = await one_by_one(lambda: _commits(database.connection, RUN_COMMITS), bench.size.latency_runs)
        yield Row(COMMITS, RUN, figures.spread(paused, "ms"))


async def _writer(bench: Bench) -> dict[str, float]:
    runs = bench.size.bare_runs
    async with bench.database(migrated=False) as database:
        await database.connection.execute(bare_writer.SCHEMA)
        await database.connection.execute(bare_writer.FILL, runs)
        await database.settle()
        arguments = ("-m", "benchmarks.bare_writer", database.url, str(SLOTS))
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT)

        async def done() -> int:
            return int(await database.connection.fetchval(bare_writer.ENDED))

        try:
            return await drains.watch(bench, Drain(runs, done, {"worker": [process.pid]}), bench.size.drain_seconds)
        finally:
            process.kill()
            await process.wait()


async def _commits(connection: Connection, count: int) -> list[float]:
    """Milliseconds of each of so many commits."""
    found = []
    for _ in range(count):
        started = time.perf_counter()
        await connection.execute(INSERT, "one row")
        found.append((time.perf_counter() - started) * 1000)
    return found


PART = Part(
    "bare",
    "The same Postgres without an engine",
    "The bare writer (benchmarks/bare_writer.py) makes the same rows durable: a start before each step's body and a "
    "finish after it, fenced under a lock of the run's row, claimed and ended in batches, at most "
    f"{bare_writer.FLUSH_ROWS} rows a statement, on {bare_writer.CONNECTIONS} connections. It has no replay, retries, "
    "leases or waits. Bare commits insert a single row each, one after the other on one connection; those after a "
    f"pause of {PAUSE_SECONDS * 1000:.0f} ms show what waking up costs on this machine.",
    (*COLUMNS, Column("p50_ms", "p50 ms"), Column("p99_ms", "p99 ms")),
    measure,
    Rounds.COMPARED,
)
