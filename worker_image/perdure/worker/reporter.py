"""Writes the status of resource-backed runs: a projection of committed rows, coalesced, never in a run's way.

Called by `runner` after each commit; `schedule` says when which run is written, the row is read at that moment with
everything else that is due, projected by the same pure function the operator uses, and sent. What a worker has
written of finished, waiting and released runs is recorded in bulk; whatever is not, the operator writes. Keeps
invariant 3 for the resource: revisions never go back, a namesake is never touched.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from perdure.model.rows import ClaimedRun, StatusSource
from perdure.resources.projection import project
from perdure.store import status as store
from perdure.store.pool import is_transient
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.worker.answers import Answer, StatusApi, Verdict
from perdure.worker.link import Link, error_class
from perdure.worker.schedule import MAX_INTERVAL, Schedule
from perdure.worker.service import Service, backoff

log = get_logger(__name__)

CONCURRENCY = 4
"""Status writes at once: a status write costs the API server up to 30 ms of CPU, and workers are many."""

READ_LIMIT = 32
"""Runs whose status is read in one statement."""

SLOW_SECONDS = 1.0
"""A write that takes longer says that the API server has too much to do."""

RECORD_SECONDS = 0.5
"""How long recorded revisions are gathered before they are written."""

RECORD_LIMIT = 200
"""Recorded revisions per statement."""

FLUSH_CHECK = 0.02
"""Seconds between looks at whether everything is sent, at a stop."""


class Reporter(Service):
    """The reports of all runs of this worker."""

    name = "reporter"

    def __init__(self, api: StatusApi, link: Link, metrics: Metrics) -> None:
        super().__init__()
        self._api = api
        self._link = link
        self._metrics = metrics
        self._schedule = Schedule()
        self._news = asyncio.Event()
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._writes: set[asyncio.Task[None]] = set()
        self._reading = False
        self._reported: dict[str, int] = {}
        self._record_at: float | None = None
        metrics.read_from(names.REPORTS_PENDING, lambda: float(len(self._schedule)))

    def changed(self, run: ClaimedRun, final: bool) -> None:
        """Something of the run was committed; `final` when this worker writes no more of it. Returns at once."""
        if run.name is not None:
            self._schedule.changed(run.id, run.namespace, run.name, final=final)
            self._news.set()

    async def run(self) -> None:
        """Report for ever."""
        while True:
            await self._until_due()
            now = time.monotonic()
            due = self._schedule.due(now, READ_LIMIT)
            if due:
                self._reading = True
                try:
                    await self._read_and_send(due)
                finally:
                    self._reading = False
            if self._record_at is not None and now >= self._record_at:
                await self._record()

    async def flush(self, seconds: float) -> None:
        """Send what is pending, as far as `seconds` allow. Used at a clean stop."""
        try:
            async with asyncio.timeout(seconds):
                while (due := self._schedule.next_due()) is not None or self._reading or self._writes:
                    if self._writes:
                        await asyncio.wait(list(self._writes))
                    else:
                        await asyncio.sleep(max(FLUSH_CHECK, (due or 0.0) - time.monotonic()))
                await self._record()
        except TimeoutError:
            log.info("statuses were left to the operator", runs=len(self._schedule))

    async def stop(self) -> None:
        """End; what is pending is left to the operator."""
        await super().stop()
        for write in list(self._writes):
            write.cancel()
        if self._writes:
            await asyncio.wait(self._writes)

    async def _until_due(self) -> None:
        self._news.clear()
        instants = [instant for instant in (self._schedule.next_due(), self._record_at) if instant is not None]
        wait = min(instants) - time.monotonic() if instants else None
        if wait is not None and wait <= 0:
            return
        try:
            async with asyncio.timeout(wait):
                await self._news.wait()
        except TimeoutError:
            return

    async def _read_and_send(self, due: Sequence[str]) -> None:
        try:
            sources = await self._link.call(store.read, due)
        except Exception as error:
            self._metrics.count(names.STORE_ERRORS, "report", error_class(error))
            if not is_transient(error):
                log.error("statuses cannot be read", error=error)
            now = time.monotonic()
            for run_id in due:
                self._failed(run_id, now)
            return
        found = {source.run.id: source for source in sources}
        for run_id in due:
            source = found.get(run_id)
            if source is None:
                self._schedule.drop(run_id)
                continue
            await self._slots.acquire()
            task = asyncio.create_task(self._send(source))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)
            task.add_done_callback(lambda _: self._slots.release())

    async def _send(self, source: StatusSource) -> None:
        run = source.run
        tracked = self._schedule.get(run.id)
        if tracked is None:
            return
        started = time.monotonic()
        answer = await self._api.write_status(
            namespace=tracked.namespace, name=tracked.name, uid=run.id, status=project(source)
        )
        now = time.monotonic()
        if answer.overloaded or now - started > SLOW_SECONDS:
            self._schedule.slow_down(now, answer.retry_after)
        self._metrics.count(names.STATUS_WRITES, answer.verdict)
        await self._apply(source, answer, now)
        self._news.set()

    async def _apply(self, source: StatusSource, answer: Answer, now: float) -> None:
        run = source.run
        match answer.verdict:
            case Verdict.OK:
                self._schedule.sent(run.id, now)
                if run.worker_pod is None:
                    self._reported[run.id] = run.revision
                    self._record_at = self._record_at or now + RECORD_SECONDS
            case Verdict.GONE:
                log.info("a status was not written: the resource is gone", run_id=run.id, answer=answer.message)
                self._schedule.drop(run.id)
            case Verdict.STALE:
                await self._stale(source, answer)
            case Verdict.REFUSED:
                log.error("the API server refuses a status", run_id=run.id, answer=answer.message)
                self._schedule.drop(run.id)
            case Verdict.RETRY:
                self._failed(run.id, now, answer.retry_after)

    async def _stale(self, source: StatusSource, answer: Answer) -> None:
        """A higher revision is there. Either the run has moved on, or somebody else wrote it: never argue."""
        run = source.run
        self._schedule.drop(run.id)
        try:
            newest = await self._link.call(store.read, [run.id])
        except Exception as error:
            log.info("a refused status could not be looked into", run_id=run.id, error=error)
            return
        if newest and newest[0].run.revision <= run.revision:
            log.warning(
                "a status is ahead of the database: somebody wrote it, or the database was restored",
                run_id=run.id,
                revision=run.revision,
                answer=answer.message,
            )

    def _failed(self, run_id: str, now: float, retry_after: float | None = None) -> None:
        tracked = self._schedule.get(run_id)
        failures = tracked.failures + 1 if tracked is not None else 1
        pause = max(retry_after or 0.0, backoff(failures, first=0.5, longest=MAX_INTERVAL))
        self._schedule.failed(run_id, now, pause)

    async def _record(self) -> None:
        self._record_at = None
        while self._reported:
            batch = dict(list(self._reported.items())[:RECORD_LIMIT])
            try:
                await self._link.call(store.mark_reported, list(batch.items()))
            except Exception as error:
                log.info("reported revisions were not recorded yet", runs=len(self._reported), error=error)
                self._record_at = time.monotonic() + backoff(3)
                return
            for run_id, revision in batch.items():
                if self._reported.get(run_id) == revision:
                    del self._reported[run_id]
