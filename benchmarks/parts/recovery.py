"""A worker is killed in the middle of a run: how long until another goes on with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from localcluster.console import say
from perdure.dev.processes import WorkerProcess
from perdure.store import workers
from perdure.store.listen import notify_ready

from benchmarks import backlog, figures
from benchmarks.host import NAMESPACE, POOL, Bench, Database, until
from benchmarks.part import Column, Part
from benchmarks.parts.drain import SUBJECT
from benchmarks.results import Row

LEASE, PROOF, RESTART = "by lease alone", "with proof of death", "container restarted"

LONG_LEASE = 30.0
STEP_SECONDS = 0.05
RUN = "recovered"
POLL_SECONDS = 0.01

PROGRESS = "SELECT count(*) FROM perdure.workflow_steps WHERE workflow_id = $1 AND status = 30"
OWNER = """
SELECT w.fence, k.pod_uid FROM perdure.workflows w JOIN perdure.workers k ON k.id = w.worker_id WHERE w.id = $1
"""
LATER_START = "SELECT count(*) FROM perdure.workflow_steps WHERE workflow_id = $1 AND fence > $2"


async def measure(bench: Bench) -> AsyncIterator[Row]:
    size = bench.size
    lease = await _two_workers(bench, size.lease_kills, size.lease, proof=False)
    yield Row(SUBJECT, LEASE, {**figures.spread(lease, "s"), "lease": size.lease})
    proof = await _two_workers(bench, size.proof_kills, LONG_LEASE, proof=True)
    yield Row(SUBJECT, PROOF, {**figures.spread(proof, "s"), "lease": LONG_LEASE})
    restart = await _restarted(bench, size.restarts)
    yield Row(SUBJECT, RESTART, {**figures.spread(restart, "s"), "lease": LONG_LEASE})


async def _two_workers(bench: Bench, kills: int, lease: float, *, proof: bool) -> list[float]:
    """Seconds from each kill to the next step. Two workers; the one that has the run is killed and started again."""
    found = []
    async with _run(bench) as database:
        pods: dict[str, tuple[int, WorkerProcess]] = {}
        try:
            for number in (1, 2):
                worker = await bench.start_worker(database, number, slots=4, lease=lease)
                pods[worker.pod_uid] = (number, worker)
            await bench.until_registered(database, [worker for _, worker in pods.values()])
            for kill in range(kills):
                fence, uid = await _on_its_way(database)
                number, victim = pods[uid]
                killed = time.monotonic()
                await victim.kill()
                if proof:  # what the operator does when it sees the container's end
                    await workers.mark_dead(database.connection, [uid])
                    await notify_ready(database.connection, NAMESPACE, POOL)
                await _goes_on(database, fence)
                found.append(time.monotonic() - killed)
                pods[uid] = (number, await bench.start_worker(database, number, slots=4, lease=lease))
                await bench.until_registered(database, [pods[uid][1]])
                say(f"recovery: kill {kill + 1} of {kills}: {found[-1]:.2f}s")
        finally:
            await asyncio.gather(*(worker.stop(10.0) for _, worker in pods.values()))
    return found


async def _restarted(bench: Bench, kills: int) -> list[float]:
    """Seconds from each kill to the next step, where the kubelet starts the container again at once."""
    found = []
    async with _run(bench) as database:
        worker = await bench.start_worker(database, 1, slots=4, lease=LONG_LEASE)
        try:
            for _ in range(kills):
                fence, _ = await _on_its_way(database)
                killed = time.monotonic()
                await worker.kill()
                worker = await bench.start_worker(database, 1, slots=4, lease=LONG_LEASE)
                await _goes_on(database, fence)
                found.append(time.monotonic() - killed)
        finally:
            await worker.stop(10.0)
    return found


@asynccontextmanager
async def _run(bench: Bench) -> AsyncIterator[Database]:
    """A database with one run that has steps for an hour, and may be recovered as often as it takes."""
    async with bench.database() as database:
        await backlog.store(database.connection, RUN, "bench.paced", steps=100_000, seconds=STEP_SECONDS)
        await database.settle()
        yield database


async def _on_its_way(database: Database) -> tuple[int, str]:
    """When the run has made progress under its owner: the fence it is under, and the owner's pod."""
    before = await database.connection.fetchval(PROGRESS, RUN)

    async def progressed() -> bool:
        return bool(await database.connection.fetchval(PROGRESS, RUN) > before)

    await until(progressed, "progress of the run", interval=POLL_SECONDS)
    row = await database.connection.fetchrow(OWNER, RUN)
    assert row is not None
    return row["fence"], row["pod_uid"]


async def _goes_on(database: Database, fence: int) -> None:
    async def again() -> bool:
        return bool(await database.connection.fetchval(LATER_START, RUN, fence))

    await until(again, "the next step", interval=POLL_SECONDS)


PART = Part(
    "recovery",
    "SIGKILL to the next step",
    "One of two workers has a run of short steps and is killed. By lease alone: nobody knows that it is dead, the "
    "other one waits for the end of its lease. With proof: its death is recorded at once, as the operator does it for "
    "a container that it sees ended. Restarted: the same pod starts a new process, as the kubelet does, with the time "
    "that Python takes to start.",
    (
        Column("p50_s", "p50 s"),
        Column("p99_s", "p99 s"),
        Column("max_s", "max s"),
        Column("lease", "lease s"),
        Column("samples", "kills"),
    ),
    measure,
)
