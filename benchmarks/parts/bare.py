"""What Postgres gives on this machine: the same rows without an engine, and single commits."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator

from benchmarks import bare_writer, drains, figures
from benchmarks.drains import Drain
from benchmarks.host import ROOT, Bench
from benchmarks.part import Column, Part, Rounds
from benchmarks.parts.drain import COLUMNS
from benchmarks.results import Row

WRITER, COMMITS = "bare writer", "bare commits"
SLOTS = 1000

RUN_COMMITS = 8
"""Commits of a 5-step run, one after the other: stored, claimed, first start, four times a finish with the next
start, and the last finish with the run's end."""

TABLE = "CREATE TABLE bare_commits (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, payload text)"
INSERT = "INSERT INTO bare_commits (payload) VALUES ($1)"
WARM_UP = 20


async def measure(bench: Bench) -> AsyncIterator[Row]:
    yield Row(WRITER, f"{SLOTS} slots", await _writer(bench))
    single, run = await _commits(bench)
    yield Row(COMMITS, "one", figures.spread(single, "ms"))
    yield Row(COMMITS, f"{RUN_COMMITS} in a row", figures.spread(run, "ms"))


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


async def _commits(bench: Bench) -> tuple[list[float], list[float]]:
    """Milliseconds of single commits, and of as many in a row as a run has."""
    single = []
    async with bench.database(migrated=False) as database:
        await database.connection.execute(TABLE)
        await database.settle()
        for number in range(-WARM_UP, bench.size.commits):
            started = time.perf_counter()
            await database.connection.execute(INSERT, "one row")
            if number >= 0:
                single.append((time.perf_counter() - started) * 1000)
    rows = [single[at : at + RUN_COMMITS] for at in range(0, len(single) - RUN_COMMITS + 1, RUN_COMMITS)]
    return single, [sum(row) for row in rows]


PART = Part(
    "bare",
    "The same Postgres without an engine",
    "The bare writer (benchmarks/bare_writer.py) makes the same rows durable: a start before each step's body and a "
    "finish after it, fenced under a lock of the run's row, claimed and ended in batches, at most "
    f"{bare_writer.FLUSH_ROWS} rows a statement, on {bare_writer.CONNECTIONS} connections. It has no replay, retries, "
    "leases or waits. Bare commits insert a single row each, one after the other on one connection.",
    (*COLUMNS, Column("p50_ms", "p50 ms"), Column("p99_ms", "p99 ms")),
    measure,
    Rounds.COMPARED,
)
