"""Workers run on uvloop where it is installed, and its timers are not asyncio's: none for what is due at once."""

import asyncio
import time

import uvloop
from perdure.model.rows import ClaimedRun, StepWrite
from perdure.model.states import StepStatus
from perdure.worker.batch import Observer
from perdure.worker.journal import Journal
from perdure.worker.lease import LocalLease
from perdure.worker.link import Link
from perdure.worker.worker import new_metrics

TURNS = 20
SOON = 0.0003
"""Seconds, less than the millisecond that uvloop counts in."""


def claimed(run_id: str) -> ClaimedRun:
    return ClaimedRun(run_id, 1, "ns", None, "x", "[]", None, 0, 1, 0, 0, None, False, None)


def test_writes_that_are_due_at_once_may_follow_each_other() -> None:
    async def record() -> None:
        link = Link("postgresql://nobody@127.0.0.1:1/none", application_name="w", statement_timeout=1.0)
        journal = Journal("w", [link], LocalLease(1.0), new_metrics())  # it holds no lease, so nothing is sent
        journal.start()
        await asyncio.sleep(0)
        heard = Observer(lost=lambda: None, refused=lambda: None, flags=lambda _: None)
        runs = [journal.open(claimed(f"r{number}"), heard) for number in range(TURNS)]
        outbox = journal.outbox_of(runs[0].run_id)
        for run in runs:
            write = StepWrite(0, 1, "s", StepStatus.SUCCEEDED, "[]", "1")
            outbox.add_step(run, write, due=time.monotonic() + SOON, waiter=None)
        await journal.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(record())
