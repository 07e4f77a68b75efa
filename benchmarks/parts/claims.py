"""Claims stay fast: over millions of rows, and while a long transaction keeps dead rows from being cleaned."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from localcluster.console import Failure, say
from perdure.model.rows import WorkerRow, workflow_requirement
from perdure.store import claims, workers

from benchmarks import backlog, drains, figures
from benchmarks.host import NAMESPACE, POOL, Bench, Connection, Database
from benchmarks.part import Column, Part
from benchmarks.parts.drain import SUBJECT, draining
from benchmarks.results import Row

SMALL, LARGE = "few rows", "many rows"
FREE, HELD = "nothing held", "horizon held"

LIMITS = (4, 100)
"""Runs a claim: a worker's default slots, and the most that a worker takes at once."""

SLOTS = 64
LEASE = 3600.0
WORKER = "bench-claims"
MANIFEST = (workflow_requirement("bench.chain"),)

HOLD = "SELECT pg_current_xact_id()"
"""In a transaction that sees the database as of now, and stays open."""


async def measure(bench: Bench) -> AsyncIterator[Row]:
    size = bench.size
    async with AsyncExitStack() as stack:
        taken = size.claims * sum(LIMITS) + 10 * max(LIMITS)
        small = await stack.enter_async_context(_filled(bench, taken, 0))
        large = await stack.enter_async_context(_filled(bench, max(taken, size.claim_ready), size.claim_finished))
        await bench.wait_until_idle()
        for limit in LIMITS:
            times: dict[str, list[float]] = {SMALL: [], LARGE: []}
            for number in range(-5, size.claims):
                for name, database in ((SMALL, small), (LARGE, large)):  # in turn, so that both have the same weather
                    seconds = await _claim(database.connection, limit)
                    if number >= 0:
                        times[name].append(seconds * 1000)
            yield Row(SUBJECT, case(limit, SMALL), figures.spread(times[SMALL], "ms"))
            yield Row(SUBJECT, case(limit, LARGE), figures.spread(times[LARGE], "ms"))
    for held in (False, True):
        yield Row(SUBJECT, HELD if held else FREE, await _drain(bench, held=held))


@asynccontextmanager
async def _filled(bench: Bench, ready: int, finished: int) -> AsyncIterator[Database]:
    """A database with so many rows, and a worker that may claim."""
    say(f"claims: storing {ready:,} ready and {finished:,} finished runs")
    async with bench.database() as database:
        await backlog.fill(database.connection, ready, finished)
        await database.connection.execute("VACUUM ANALYZE")
        await database.connection.execute("CHECKPOINT")
        # As in the sessions of the store.
        await database.connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off")
        row = WorkerRow(WORKER, NAMESPACE, POOL, WORKER, "", "1", ("default",), MANIFEST, max(LIMITS))
        await workers.register(database.connection, row, LEASE)
        yield database


async def _claim(connection: Connection, limit: int) -> float:
    """Seconds of a committed claim."""
    started = time.perf_counter()
    found = await claims.claim(
        connection,
        worker_id=WORKER,
        namespace=NAMESPACE,
        pool=POOL,
        queue="default",
        manifest=MANIFEST,
        version="1",
        limit=limit,
    )
    seconds = time.perf_counter() - started
    if len(found) != limit:
        raise Failure(f"a claim of {limit} runs got {len(found)}")
    return seconds


async def _drain(bench: Bench, *, held: bool) -> dict[str, float]:
    """The rate over a while, beside a transaction that holds the horizon, or without."""
    runs = bench.size.horizon_runs
    async with bench.database() as database:
        await backlog.store_many(database.connection, "run", runs, "bench.chain", steps=backlog.STEPS)
        await database.settle()
        holder = await database.connect()
        transaction = holder.transaction(isolation="repeatable_read")
        try:
            if held:
                await transaction.start()
                await holder.execute(HOLD)
            async with draining(bench, database, runs, slots=SLOTS) as drain:
                return await drains.watch(bench, drain, bench.size.horizon_seconds)
        finally:
            await holder.close()


def case(limit: int, rows: str) -> str:
    return f"{limit} runs a claim, {rows}"


PART = Part(
    "claims",
    "Claims over many rows, and under a held horizon",
    "Committed claims by the store's own statement, in turn on a database that holds only the runs to be claimed and "
    "on one with a million ready and ten million finished runs (the quick run: a tenth of both). Then one worker "
    f"process with {SLOTS} slots drains runs, alone and beside a transaction that keeps every dead row in place.",
    (
        Column("p50_ms", "claim p50 ms"),
        Column("p99_ms", "claim p99 ms"),
        Column("steps_per_second", "steps/s"),
        Column("worker_cpu", "worker CPU-s per 1,000 steps"),
        Column("postgres_cpu", "Postgres CPU-s"),
        Column("seconds", "seconds"),
        Column("others_percent", "others' CPU %"),
    ),
    measure,
)
