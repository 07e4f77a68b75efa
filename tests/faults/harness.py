"""One session of faults: database, workers, load, faults; then peace, and the reckoning."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from perdure.model.states import RunStatus

from tests.faults.check import Evidence, Kind, Problem, covered, judge, read
from tests.faults.clients import ClientFaults, Clients
from tests.faults.database import Database, database
from tests.faults.inject import Injector
from tests.faults.load import Load
from tests.faults.replays import differing
from tests.faults.workers import FaultyWorker
from tests.support.postgres import PostgresServer
from tests.support.workerproc import connect_again

WORKERS = 4
AT_ONCE = 60
"""Runs under way: more than all slots together, so that the queue is never empty."""

PEACE_SECONDS = 60.0
"""Longest time after the last fault in which no step and no run comes to its end, before what is left counts as stuck:
many leases, on a machine that has other work."""

POLL_SECONDS = 0.1

LATE_SECONDS = 10.0
"""Statements may commit at least so late, also in a short session: several leases."""

PROGRESS_SECONDS = 10.0
"""Between two lines about how far the session is."""

TROUBLE_SHOWN = 5
LOG_LINES = 40


@dataclass
class Outcome:
    """What came of a session. `story` explains its problems."""

    seed: int
    seconds: float
    runs: int = 0
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    statements: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    bodies: int = 0
    covered: Counter[str] = field(default_factory=Counter)
    """How often there was what it is easy to miss: without it the zeros say little."""
    problems: list[Problem] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    def count(self, kind: Kind) -> int:
        """Problems of a kind."""
        return sum(problem.kind is kind for problem in self.problems)


async def session(
    server: PostgresServer,
    seed: int,
    seconds: float,
    *,
    workers: int = WORKERS,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Faults for so many seconds, drawn from the seed; raises nothing because of what it finds. `say` hears how far
    it is."""
    outcome = Outcome(seed, seconds)
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(database(server))
        pool = [
            await stack.enter_async_context(FaultyWorker(number, seed, base.url, server.port, outcome.faults))
            for number in range(workers)
        ]
        keepers = [asyncio.create_task(worker.keep_alive()) for worker in pool]
        clients = await stack.enter_async_context(Clients(seed, base.url, server.port, outcome.faults, outcome.covered))
        load = Load(seed, base, clients, AT_ONCE)
        progress = asyncio.create_task(_tell(load, outcome, seconds, say))
        try:
            latest = max(LATE_SECONDS, seconds / 4)
            injector = Injector(seed, pool, base, outcome.faults, latest)
            await _trouble(load, (injector, ClientFaults(clients, seed, outcome.faults, latest)), seconds)
            await _peace(load, pool, clients, server, base)
        finally:
            for task in (progress, *keepers):
                task.cancel()
            await asyncio.wait([progress, *keepers])
        found = await read(base)
        outcome.problems = judge(load.runs.values(), found) + await differing(base, found.runs, say)
        _fill(outcome, found, pool)
        outcome.statements += clients.proxy.struck
        outcome.story = await _story(outcome.problems, found, base, pool)
    return outcome


async def _tell(load: Load, outcome: Outcome, seconds: float, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        passed = time.monotonic() - began
        stage = f"{passed:.0f} of {seconds:.0f} s" if passed < seconds else "no more faults, waiting for the last ends"
        say(f"{stage}: {len(load.runs)} runs started, {outcome.faults.total()} faults")


async def _trouble(load: Load, injectors: Sequence[Injector | ClientFaults], seconds: float) -> None:
    loading = asyncio.create_task(load.run())
    faults = [asyncio.create_task(injector.run()) for injector in injectors]
    try:
        done, _ = await asyncio.wait([loading, *faults], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in faults:
            task.cancel()
        load.enough()
        await asyncio.wait([*faults, loading])
    loading.result()
    for injector in injectors:
        await injector.end()


async def _peace(
    load: Load, pool: Sequence[FaultyWorker], clients: Clients, server: PostgresServer, base: Database
) -> None:
    """Nothing is broken any more: wait for the ends, and for what is still to be delivered late."""
    server.start()
    await (await connect_again(base.url)).close()
    for worker in pool:
        worker.proxy.heal()
        worker.send(signal.SIGCONT)
    deadline, before = time.monotonic() + PEACE_SECONDS, (-1_000_000, 0)
    while under_way := await load.unfinished():
        done = (-under_way, await base.finished_steps())
        if done > before:
            deadline, before = time.monotonic() + PEACE_SECONDS, done
        elif time.monotonic() > deadline:
            break
        await asyncio.sleep(POLL_SECONDS)
    await load.seen(PEACE_SECONDS)
    late = [task for proxy in (clients.proxy, *(worker.proxy for worker in pool)) for task in proxy.late]
    if late:
        await asyncio.wait(late)


def _fill(outcome: Outcome, found: Evidence, pool: Sequence[FaultyWorker]) -> None:
    outcome.runs = len(found.runs)
    outcome.steps = found.final_steps
    outcome.bodies = sum(sum(times.values()) for times in found.bodies.values())
    outcome.statuses = Counter(RunStatus(row["status"]).name for row in found.runs.values())
    outcome.covered += covered(found)
    for worker in pool:
        outcome.statements += worker.proxy.struck


async def _story(
    problems: Sequence[Problem], found: Evidence, base: Database, pool: Sequence[FaultyWorker]
) -> list[str]:
    """For the first runs with a problem: their rows, everything that happened to them, what the workers said."""
    lines: list[str] = []
    for run in list(dict.fromkeys(problem.run for problem in problems))[:TROUBLE_SHOWN]:
        lines += [f"== run {run}", *(f"{each.kind}: {each.sentence}" for each in problems if each.run == run)]
        lines.append(f"row: {dict(found.runs.get(run, {}))}")
        lines += [f"step: {dict(row)}" for row in found.steps.get(run, {}).values()]
        lines += [f"{row['at']:%H:%M:%S.%f} {row['line']}" for row in await base.rows("story", run)]
        for worker in pool:
            lines += [f"worker {worker.number}: {line}" for line in worker.about(run, LOG_LINES)]
    if problems:
        for worker in pool:
            lines += [f"== the end of the log of worker {worker.number}", *worker.tail(LOG_LINES)]
    return lines
