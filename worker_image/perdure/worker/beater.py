"""The heartbeat: extends this worker's lease from a thread, loop and connection of its own.

A beat is sent only after the worker's loop has answered a ping: a worker whose loop is stuck must lose its runs, not
keep them for ever. Each beat brings back the runs this worker owns, which `session` compares with those it runs.
Keeps rule R13's clock (`LocalLease`, from the send of the last success).

Two silences are told apart. A loop that does not answer for two leases ends the process: a successor has the runs by
then, and nothing else can stop a body that blocks. A database that does not answer says nothing about the runs (it
may be away for everybody), so bodies that were admitted go on and no other begins; after `SILENCE_LEASES` they are
stopped all the same, which bounds how long a worker that alone is cut off runs beside its successor.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perdure.model.rows import OwnedRun
from perdure.store import workers as store
from perdure.store.pool import is_transient
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.worker.lease import LocalLease, lease_clock
from perdure.worker.link import Link, error_class, statement_limit
from perdure.worker.service import backoff

log = get_logger(__name__)

BEATS_PER_LEASE = 3
"""Beats in the time of a lease: two may be lost without harm."""

LONGEST_INTERVAL = 10.0
"""Seconds between beats with a long lease: a beat also brings what was asked of the runs."""

EARLY_SECONDS = 0.05
"""Seconds between being asked to beat early and doing so: what a burst of cancels asks for is one beat."""

BLOCKED_LEASES = 2
"""Leases for which the loop may fail to answer before the process ends."""

SILENCE_LEASES = 10
"""Leases for which the database may be silent before bodies are stopped: five minutes by default, longer than a
failover takes."""

EXIT_CODE = 75
"""Exit code when the process ends itself (EX_TEMPFAIL: starting again is right)."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Who hears what the beater learns. All but `bodies` and `exit_process` are called on the worker's loop."""

    pong: Callable[[], int]
    """Answers the ping with a stamp that comes back with the beat's rows."""
    rows: Callable[[int, Sequence[OwnedRun]], None]
    """The rows this worker owned when the beat with that stamp was answered."""
    dead: Callable[[str], None]
    """This registration is lost; the sentence says how that was found out."""
    bodies: Callable[[], int]
    """Bodies that still execute. Called from the beater's thread."""
    exit_process: Callable[[int], None]
    """Ends the process at once. Called from the beater's thread."""


class Beater:
    """The heartbeat of one registration."""

    def __init__(self, url: str, worker_id: str, lease: LocalLease, heard: Heard, metrics: Metrics) -> None:
        self._url = url
        self._worker_id = worker_id
        self._lease = lease
        self._heard = heard
        self._metrics = metrics
        self._interval = min(lease.seconds / BEATS_PER_LEASE, LONGEST_INTERVAL)
        self._worker_loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._thread_main, name="perdure-beater", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = threading.Event()
        self._stop: asyncio.Event | None = None
        self._early = asyncio.Event()

    def start(self) -> None:
        """Begin to beat; the registration counted as the first beat."""
        self._thread.start()

    def hurry(self) -> None:
        """Something was asked of a run here: beat soon, and hear of it. From the worker's loop."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._early.set)

    async def stop(self) -> None:
        """End. Returns when the thread has ended; the lease is left to run out or be given up by others."""
        self._stopping.set()
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    # -- in the thread

    def _thread_main(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._main())
        except Exception as error:
            # Without a heart this registration cannot live: let another begin.
            log.exception("the heartbeat failed", worker=self._worker_id)
            self._tell(self._heard.dead, f"its heartbeat failed: {type(error).__name__}: {error}")

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._stopping.is_set():
            return
        link = Link(self._url, application_name=self._worker_id, statement_timeout=statement_limit(self._lease.seconds))
        beats = asyncio.create_task(self._beat_on(link))
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait([beats, stop], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if beats.done():
            beats.result()
        else:
            beats.cancel()
            await asyncio.wait([beats])
        await link.close()

    async def _beat_on(self, link: Link) -> None:
        unanswered = failures = 0
        # A registration that took several attempts may be older than a beat.
        await self._pause(max(0.0, self._interval - self._lease.age()))
        while True:
            if failures:
                await asyncio.sleep(min(self._interval, backoff(failures)))
            stamp = await self._ping()
            if stamp is None:
                unanswered += 1
                self._metrics.count(names.BEATS_SKIPPED)
                log.warning("no beat: the event loop did not answer", seconds=self._interval, worker=self._worker_id)
                # Counted, not timed: a process that was paused as a whole must get the chance to answer.
                if unanswered * self._interval >= BLOCKED_LEASES * self._lease.seconds:
                    log.critical("the event loop is blocked and the lease long lost: ending the process")
                    self._heard.exit_process(EXIT_CODE)
                    return None
                continue
            unanswered = 0
            sent_at = lease_clock()
            try:
                rows = await link.call(store.beat, self._worker_id, self._lease.seconds)
            except Exception as error:
                failures += 1
                self._report(error, failures)
                if failures > 1 and self._lease.age() > SILENCE_LEASES * self._lease.seconds:
                    return await self._give_up()
                continue
            failures = 0
            if rows is None:
                self._tell(self._heard.dead, "another process has marked it dead: its lease had run out")
                return None
            self._lease.extend(sent_at)
            self._tell(self._heard.rows, stamp, rows)
            await self._pause(self._interval)

    async def _pause(self, seconds: float) -> None:
        """Until the next beat is due, or soon when it was asked for."""
        try:
            async with asyncio.timeout(seconds):
                await self._early.wait()
        except TimeoutError:
            return
        await asyncio.sleep(EARLY_SECONDS)
        self._early.clear()

    def _report(self, error: Exception, failures: int) -> None:
        self._metrics.count(names.STORE_ERRORS, "beat", error_class(error))
        if failures & (failures - 1) == 0:
            report = log.warning if is_transient(error) else log.error
            report("a beat failed", error=error, failures=failures, lease_age=round(self._lease.age(), 1))

    async def _give_up(self) -> None:
        """Have every body stopped; end the process if one does not stop."""
        self._tell(self._heard.dead, f"no beat succeeded for {self._lease.age():.1f} s")
        await asyncio.sleep(self._interval)
        bodies = self._heard.bodies()
        if bodies:
            log.critical("the lease is long lost and bodies do not stop: ending the process", bodies=bodies)
            self._heard.exit_process(EXIT_CODE)

    async def _ping(self) -> int | None:
        """The worker's stamp, None when its loop does not answer within a beat."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def arrive(stamp: int) -> None:
            if not answer.done():
                answer.set_result(stamp)

        def on_worker_loop() -> None:
            stamp = self._heard.pong()
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrive, stamp)

        try:
            self._worker_loop.call_soon_threadsafe(on_worker_loop)
            return await asyncio.wait_for(answer, self._interval)
        except TimeoutError:
            return None

    def _tell(self, listener: Callable[..., None], *arguments: object) -> None:
        if not self._worker_loop.is_closed():
            self._worker_loop.call_soon_threadsafe(listener, *arguments)
