"""Measures without Kubernetes: what one worker does on Postgres with fsync and synchronous commit on."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator

from benchmarks.host import Host, host
from benchmarks.report import Measure, series

CHAIN_STEPS = 50
GAP_STEPS = 400
KILLS = 5
LEASE_KILLS = 3
SHORT_LEASE = 3.0

STEP_TIMES = """
SELECT extract(epoch FROM started_at)::float8 FROM perdure.workflow_steps WHERE workflow_id = $1 ORDER BY step_index
"""
SPAN = "SELECT extract(epoch FROM max(finished_at) - min(started_at))::float8 FROM perdure.workflows WHERE id = ANY($1)"
LATER_CLAIM = "SELECT count(*) FROM perdure.workflow_steps WHERE workflow_id = $1 AND fence > $2"
FENCE = "SELECT fence FROM perdure.workflows WHERE id = $1"
SUCCEEDED = "SELECT count(*) FROM perdure.workflow_steps WHERE workflow_id = $1 AND status = 30"


async def measures() -> AsyncIterator[Measure]:
    """Each as soon as it is taken."""
    async with host() as place:
        yield await gap_between_steps(place)
        for slots, count in ((16, 100), (64, 400)):
            yield await steps_per_second(place, slots, count)
        yield await kill_and_restart(place)
        yield await kill_and_lease(place)


async def gap_between_steps(place: Host) -> Measure:
    """From the start of one empty step to the start of the next: one commit, nothing else."""
    await place.start_worker()
    (run,) = await place.submit("bench.chain", steps=GAP_STEPS)
    await place.until_finished([run])
    times = [row[0] for row in await place.connection.fetch(STEP_TIMES, run)]
    await place.stop_workers()
    gaps = [(later - earlier) * 1000 for earlier, later in itertools.pairwise(times)]
    return series("gap between steps, one run", gaps, "ms", "empty steps, start to start")


async def steps_per_second(place: Host, slots: int, count: int) -> Measure:
    """Many runs at once in one worker: how many steps it makes durable in a second."""
    await place.start_worker(slots=slots)
    await place.until_finished(await place.submit("bench.chain", slots, steps=5))
    ids = await place.submit("bench.chain", count, steps=CHAIN_STEPS)
    await place.until_finished(ids)
    seconds = await place.connection.fetchval(SPAN, ids)
    await place.stop_workers()
    how = f"{count} runs of {CHAIN_STEPS} empty steps in {seconds:.1f}s"
    return Measure(f"steps of one worker, {slots} slots", count * CHAIN_STEPS / seconds, "steps/s", how)


async def kill_and_restart(place: Host) -> Measure:
    """The container starts again in the same pod, as the kubelet does it: includes the start of Python."""
    found = []
    for _ in range(KILLS):
        worker = await place.start_worker(1)
        run, fence = await _running(place)
        started = time.monotonic()
        await worker.kill()
        await place.start_worker_at_once(1)
        found.append(await _goes_on(place, run, fence, started))
        await place.stop_workers()
    return series("SIGKILL to next step, container restarted", found, "s", "same pod, lease 30 s")


async def kill_and_lease(place: Host) -> Measure:
    """Nobody knows that the worker is dead: another one waits until its lease has run out."""
    found = []
    for _ in range(LEASE_KILLS):
        worker = await place.start_worker(1, lease=SHORT_LEASE)
        run, fence = await _running(place)
        await place.start_worker(2, lease=SHORT_LEASE)
        started = time.monotonic()
        await worker.kill()
        found.append(await _goes_on(place, run, fence, started))
        await place.stop_workers()
    return series(
        "SIGKILL to next step, lease run out", found, "s", f"another worker, no proof of death, lease {SHORT_LEASE:g} s"
    )


async def _running(place: Host) -> tuple[str, int]:
    """A run that has finished a few steps and is in the middle of another; the fence it is under."""
    (run,) = await place.submit("bench.paced", steps=1000, seconds=0.1)

    async def on_its_way() -> bool:
        return bool(await place.connection.fetchval(SUCCEEDED, run) >= 3)

    await place.until(on_its_way, "the first steps")
    return run, await place.connection.fetchval(FENCE, run)


async def _goes_on(place: Host, run: str, fence: int, since: float) -> float:
    async def again() -> bool:
        return bool(await place.connection.fetchval(LATER_CLAIM, run, fence))

    await place.until(again, "the next step")
    seconds = time.monotonic() - since
    # It has a hundred seconds of steps left: nobody needs them.
    await place.connection.execute("UPDATE perdure.workflows SET cancel_mode = 'Immediate' WHERE id = $1", run)
    await place.until_ended(run)
    return seconds
