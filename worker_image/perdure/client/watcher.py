"""Waits for the ends of runs, all of one client's together: one question to the database a tick, however many waits.

Used by handles. A notification of an end brings the question about that run forward; polling is the truth behind it
and goes on when there is no listener. Promises: a waiter's own time limit never depends on the database, and a wait
goes on over an outage of a database that has answered before.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from copy import copy
from math import inf

from perdure.client.database import Database
from perdure.client.schedule import Schedule
from perdure.engine.context import outside_of_bodies
from perdure.errors import ClientClosed, NonExistentWorkflow, PerdureError, StoreUnavailable
from perdure.store import clients as store
from perdure.store.clients import RunSight
from perdure.store.listen import EndedListener

logger = logging.getLogger(__name__)
"""The program's own log: this is a library in it."""

OUTCOME_BYTES = 64 * 1024
"""Outcomes up to this size come with the news that a run has ended; 500 of them are 32 MiB. Larger ones are read
one by one by whoever wants them."""

RETRY_FIRST, RETRY_LONGEST = 0.1, 5.0
"""First and longest pause while the database does not answer."""

_APPLICATION = "perdure-client-listener"


class Watcher:
    """See the module. Everything but `close` returns at once; the work is done in the background."""

    def __init__(self, url: str, *, listen: bool) -> None:
        self._database = Database(url, size=1)
        self._schedule = Schedule(news=listen)
        self._listener = EndedListener(
            url, self._heard, self._gap, application_name=_APPLICATION, on_lost=self._lost_listener
        )
        self._listens = listen
        self._waiters: dict[str, set[asyncio.Future[RunSight]]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._wake = asyncio.Event()
        self._sleeps_until = -inf
        """When the next question is asked, as far as the background knows while it waits for that."""
        self._answered = False
        self._deaf = 0
        self._closed = False
        self.gate: Callable[[str], None] = outside_of_bodies
        """Asked before each wait whether it may begin here; raises what it is refused with."""
        self.farewell: Callable[[str], PerdureError] = _closed_over
        """What the wait for a run ends with when the client is closed."""
        self.trouble = ""
        """What is wrong with the database just now, for messages; empty if nothing is known to be."""

    def watch(self, run_id: str, poll: float, *, asleep: bool = False) -> asyncio.Future[RunSight]:
        """A future that gets how the run ended; asked at least every `poll` seconds. `forget` it when done.

        It raises `NonExistentWorkflow`, `ClientClosed`, or what the database refuses. An `asleep` run is about to be
        created, `awake` says when it is there.
        """
        self.gate("a client waited for a run")
        future: asyncio.Future[RunSight] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_exception(ClientClosed("the client was closed"))
            return future
        self._waiters.setdefault(run_id, set()).add(future)
        self._schedule.add(run_id, poll, asleep=asleep)
        self._start()
        self._hurry()
        return future

    def awake(self, run_id: str, *, armed: bool, here: bool) -> None:
        """The run is there; `armed`: it was created so that its end will be told; `here`: this process runs it."""
        self._schedule.awake(run_id, time.monotonic(), armed=armed, here=here)
        self._hurry()

    def ended(self, run_id: str) -> None:
        """The run has ended, as this process knows."""
        self._heard([run_id])

    def settled(self, sight: RunSight) -> None:
        """The run has ended, and this is how, as this process knows."""
        if sight.id in self._waiters:
            self._told(sight.id, sight, time.monotonic(), 1.0)

    @property
    def waiting(self) -> list[str]:
        """The runs whose ends somebody waits for."""
        return list(self._waiters)

    def forget(self, run_id: str, future: asyncio.Future[RunSight]) -> None:
        """This future is not awaited any more."""
        waiters = self._waiters.get(run_id, set())
        waiters.discard(future)
        if not waiters:
            self._waiters.pop(run_id, None)
            self._schedule.remove(run_id)
        if future.done() and not future.cancelled():
            # Its exception may come when nobody looks any more.
            future.exception()
        else:
            future.cancel()

    async def close(self) -> None:
        """Every wait ends with `ClientClosed`."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for run_id in list(self._waiters):
            self.fail(run_id, self.farewell(run_id))
        await self._database.close()

    # -- the background

    def _start(self) -> None:
        if self._tasks:
            return
        self._tasks.append(asyncio.create_task(self._run(), name="perdure client: watcher"))
        if self._listens:
            self._tasks.append(asyncio.create_task(self._listener.run(), name="perdure client: listener"))

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._until_due()
            # Whoever begins to wait in the same turn of the loop shares the question.
            await asyncio.sleep(0)
            asked, arm = self._schedule.take(time.monotonic())
            if not asked:
                continue
            try:
                seen = await self._database.call(store.watch, asked, arm, most_bytes=OUTCOME_BYTES)
            except StoreUnavailable as error:
                failures += 1
                self._no_answer(asked, error, failures)
            except PerdureError as error:
                self._refused(asked, error)
            except Exception as error:
                logger.exception("the runs that are waited for could not be asked about")
                self._refused(asked, StoreUnavailable(f"the runs could not be asked for: {error!r}"))
            else:
                failures = 0
                self._answered = True
                self.trouble = ""
                # One instant for all, so that they are due together again.
                now = time.monotonic()
                spread = random.uniform(0.8, 1.0)  # noqa: S311 - spreads clients, keeps no secret
                for run_id in asked:
                    self._told(run_id, seen.get(run_id), now, spread)

    async def _until_due(self) -> None:
        while True:
            self._wake.clear()
            self._sleeps_until = due = self._schedule.due_at()
            seconds = due - time.monotonic()
            if seconds <= 0:
                return
            try:
                async with asyncio.timeout(None if seconds == inf else seconds):
                    await self._wake.wait()
            except TimeoutError:
                return

    def _hurry(self) -> None:
        """Wake the background if it would sleep too long: most runs that begin here end before they are due."""
        if self._schedule.due_at() < self._sleeps_until:
            self._wake.set()

    def _told(self, run_id: str, sight: RunSight | None, now: float, spread: float) -> None:
        if sight is None:
            self.fail(run_id, NonExistentWorkflow(f"there is no run {run_id}"))
        elif not sight.status.finished:
            self._schedule.answered(run_id, now, armed=sight.armed, spread=spread)
        else:
            self._schedule.remove(run_id)
            for waiter in self._waiters.pop(run_id, ()):
                if not waiter.done():
                    waiter.set_result(sight)

    def _no_answer(self, asked: Sequence[str], error: StoreUnavailable, failures: int) -> None:
        self.trouble = error.message
        if not self._answered:
            # A database that has never answered is rather a wrong address than an outage.
            self._refused(asked, error)
            return
        pause = min(RETRY_LONGEST, RETRY_FIRST * 2.0 ** min(failures - 1, 10))
        self._schedule.again(asked, time.monotonic() + pause)
        if failures & (failures - 1) == 0:
            logger.warning("the database does not answer; waits of %d runs go on: %s", len(asked), error)

    def _refused(self, asked: Sequence[str], error: PerdureError) -> None:
        for run_id in asked:
            self.fail(run_id, error)

    def fail(self, run_id: str, error: Exception) -> None:
        """End every wait for this run with the error."""
        self._schedule.remove(run_id)
        for waiter in self._waiters.pop(run_id, ()):
            if not waiter.done():
                # Each its own: raising adds a traceback to it.
                waiter.set_exception(copy(error))

    # -- the listener

    def _heard(self, run_ids: list[str]) -> None:
        if self._schedule.heard(run_ids):
            self._hurry()

    def _gap(self) -> None:
        self._deaf = 0
        self._schedule.gap()
        self._hurry()

    def _lost_listener(self, error: BaseException) -> None:
        self._deaf += 1
        if self._deaf & (self._deaf - 1) == 0:
            # At the first failure, and then at each power of two: an outage fills no log.
            logger.info("the client hears of no ends and polls until it has connected again: %s", error)


def _closed_over(run_id: str) -> PerdureError:
    return ClientClosed(f"the client was closed while run {run_id} was waited for")
