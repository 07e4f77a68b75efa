"""Carries the schedule out: one task a fault, so that a long one does not hold up the next."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import asyncpg
from perdure.store import workers as store
from perdure.store.pool import connect, connection_errors

from tests.faults.database import Database
from tests.faults.proxy import FAULTS
from tests.faults.schedule import Fault, schedule
from tests.faults.sql import text
from tests.faults.strike import Tasks, on_a_statement
from tests.faults.workers import DRAIN_SECONDS, FaultyWorker

RECLAIM_LIMIT = 50

LOOK_SECONDS = 0.02

WITH_A_SIGNAL = {"pause_after": signal.SIGSTOP, "kill_late": signal.SIGKILL}
"""Faults at a statement that hit the worker itself at that moment."""

DATABASE_ERRORS = (asyncpg.PostgresError, *connection_errors)


class Injector:
    """All faults of a seed against these workers and their database. Counts those that really struck."""

    def __init__(
        self, seed: int, workers: Sequence[FaultyWorker], database: Database, count: Counter[str], latest: float
    ) -> None:
        """`latest`: no statement is delivered later than so many seconds."""
        self._seed = seed
        self._latest = latest
        self._workers = workers
        self._database = database
        self._count = count
        self._tasks = Tasks()

    async def run(self) -> None:
        """Until cancelled."""
        for fault in schedule(self._seed, len(self._workers)):
            await asyncio.sleep(fault.after)
            self._tasks.begin(self._strike(fault), f"fault {fault.number} {fault.kind}")

    async def end(self) -> None:
        """Let the faults under way end, strike no more; everything is well afterwards, but for what is still late."""
        for worker in self._workers:
            worker.proxy.disarm_all()
        await self._tasks.over()

    async def _strike(self, fault: Fault) -> None:
        worker = self._workers[fault.worker]
        if fault.kind in FAULTS:
            struck = await self._on_a_statement(worker, fault)
        elif fault.kind in ON_PROCESSES:
            if worker.turn.locked():
                # Somebody has this worker in hand: the fault is void.
                return
            async with worker.turn:
                struck = worker.alive
                await ON_PROCESSES[fault.kind](self, worker, fault)
        else:
            struck = True
            await OTHERS[fault.kind](self, worker, fault)
        if struck:
            self._count[fault.kind] += 1

    async def _on_a_statement(self, worker: FaultyWorker, fault: Fault) -> bool:
        armed = fault.armed(self._latest)
        if fault.kind not in WITH_A_SIGNAL:
            return await on_a_statement(worker.proxy, armed)
        if worker.turn.locked():
            return False
        async with worker.turn:
            armed.then = lambda: worker.send(WITH_A_SIGNAL[fault.kind])
            if not await on_a_statement(worker.proxy, armed):
                return False
            if fault.kind == "kill_late":
                before = await self._database.last_write()
                await self._prove(worker)
                worker.start()
                await self._until_taken_over(worker, before, fault.seconds)
                armed.deliver.set()
            else:
                await asyncio.sleep(fault.seconds)
                worker.send(signal.SIGCONT)
        return True

    async def _until_taken_over(self, worker: FaultyWorker, before: int, seconds: float) -> None:
        """Until others have claimed runs that this worker held."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                # Rows have no event.
                while not await self._database.rows("taken_over", before, worker.pod_uid):  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_SECONDS)

    async def _prove(self, worker: FaultyWorker) -> None:
        await worker.kill()
        await self._ask(lambda connection: store.mark_dead(connection, [worker.pod_uid]))

    # -- processes

    async def _kill(self, worker: FaultyWorker, fault: Fault) -> None:
        await worker.kill()
        await asyncio.sleep(fault.seconds)
        worker.start()

    async def _kill_proved(self, worker: FaultyWorker, fault: Fault) -> None:
        await self._prove(worker)
        await asyncio.sleep(fault.seconds)
        worker.start()

    async def _stop(self, worker: FaultyWorker, fault: Fault) -> None:
        worker.send(signal.SIGSTOP)
        await asyncio.sleep(fault.seconds)
        worker.send(signal.SIGCONT)

    async def _drain(self, worker: FaultyWorker, fault: Fault) -> None:
        worker.send(signal.SIGTERM)
        if not await worker.gone(3 * DRAIN_SECONDS):
            await worker.kill()
        await asyncio.sleep(fault.seconds)
        worker.start()

    # -- the others

    async def _silence(self, worker: FaultyWorker, fault: Fault) -> None:
        worker.proxy.silence()
        await asyncio.sleep(fault.seconds)
        worker.proxy.heal()

    async def _refuse(self, worker: FaultyWorker, fault: Fault) -> None:
        worker.proxy.refuse()
        await asyncio.sleep(fault.seconds)
        worker.proxy.heal()

    async def _false_death(self, worker: FaultyWorker, _fault: Fault) -> None:
        await self._ask(lambda connection: store.mark_dead(connection, [worker.pod_uid]))

    async def _reclaimers(self, _worker: FaultyWorker, fault: Fault) -> None:
        await asyncio.gather(self._reclaim(fault.seconds), self._reclaim(fault.seconds))

    async def _reclaim(self, seconds: float) -> None:
        """Mark and move as fast as can be."""

        async def loop(connection: Any) -> None:
            while True:
                await store.mark_expired(connection, RECLAIM_LIMIT)
                owners = await store.dead_with_runs(connection, RECLAIM_LIMIT)
                await store.move(connection, owners, RECLAIM_LIMIT)
                await asyncio.sleep(0.01)

        try:
            async with asyncio.timeout(seconds):
                await self._ask(loop)
        except TimeoutError:
            pass

    async def _lock(self, _worker: FaultyWorker, fault: Fault) -> None:
        """Somebody looks at runs and holds their rows."""

        async def hold(connection: Any) -> None:
            async with connection.transaction():
                await connection.fetch(text("lock_some"), 1 + fault.skip)
                await asyncio.sleep(fault.seconds)

        await self._ask(hold)

    async def _restart(self, _worker: FaultyWorker, fault: Fault) -> None:
        await self._database.restart(clean=fault.kind == "restart_postgres", away=fault.seconds)

    async def _ask(self, operation: Callable[[Any], Awaitable[object]]) -> None:
        """On a session of its own; a database that is away just now is no matter."""
        try:
            connection = await connect(self._database.url, application_name="faults")
            try:
                await operation(connection)
            finally:
                connection.terminate()
        except DATABASE_ERRORS:
            pass


Strike = Callable[[Injector, FaultyWorker, Fault], Awaitable[None]]

ON_PROCESSES: dict[str, Strike] = {
    "kill": Injector._kill,
    "kill_proved": Injector._kill_proved,
    "stop_past_lease": Injector._stop,
    "stop_shortly": Injector._stop,
    "drain": Injector._drain,
}

OTHERS: dict[str, Strike] = {
    "silence": Injector._silence,
    "refuse": Injector._refuse,
    "false_death": Injector._false_death,
    "reclaimers": Injector._reclaimers,
    "lock": Injector._lock,
    "restart_postgres": Injector._restart,
    "crash_postgres": Injector._restart,
}
