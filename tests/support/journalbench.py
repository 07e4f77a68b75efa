"""A journal on a real database without an engine: the tests play it.

Each test owns a claimed run or several of a worker that is registered in the database.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from perdure.model.rows import ClaimedRun, OwnedFlags, StepWrite, WorkerRow
from perdure.model.states import RunStatus, StepStatus
from perdure.store import claims, workers
from perdure.telemetry import names
from perdure.worker.batch import Observer
from perdure.worker.journal import Journal, RunJournal
from perdure.worker.lease import LocalLease, lease_clock
from perdure.worker.link import Connection, Link
from perdure.worker.worker import new_metrics

from tests.support.cuts import Cutter
from tests.support.pgwait import eventually
from tests.support.workerproc import enqueue

ME = "me-1"
RUNNING, SUCCEEDED, RETRYING = StepStatus.RUNNING, StepStatus.SUCCEEDED, StepStatus.RETRYING


@dataclass
class Heard:
    lost: int = 0
    refused: int = 0
    flags: list[OwnedFlags] = field(default_factory=list)
    committed: list[RunStatus | None] = field(default_factory=list)


class Bench:
    """A registered worker with a journal, and runs that it claimed."""

    def __init__(self, conn: Connection, url: str, direct: str, connections: int) -> None:
        self.conn = conn
        self.conn_url = direct
        self.metrics = new_metrics()
        self.lease = LocalLease(60.0)
        self.lease.extend(lease_clock())
        links = [Link(url, application_name=ME, statement_timeout=3.0, lock_timeout=0.3) for _ in range(connections)]
        self._links = links
        self.journal = Journal(ME, links, self.lease, self.metrics)
        self.heard: dict[str, Heard] = {}

    async def claim(self, *ids: str) -> list[RunJournal]:
        for run_id in ids:
            await enqueue(self.conn, "t.x", run_id=run_id, max_run_attempts=1)
        claimed = await self.claim_again(len(ids))
        return [self.open(run) for run in sorted(claimed, key=lambda run: ids.index(run.id))]

    async def claim_again(self, limit: int = 10) -> list[ClaimedRun]:
        return await claims.claim(
            self.conn,
            worker_id=ME,
            namespace="ns",
            pool="default",
            queue="default",
            manifest=["workflow:t.x"],
            version="1",
            limit=limit,
        )

    def open(self, run: ClaimedRun) -> RunJournal:
        heard = self.heard[run.id] = Heard()

        def lost() -> None:
            heard.lost += 1

        def refused() -> None:
            heard.refused += 1

        return self.journal.open(run, Observer(lost, refused, heard.flags.append, heard.committed.append))

    async def close(self) -> None:
        await self.journal.stop()
        for link in self._links:
            await link.close()


class CutsInFlight:
    """Cuts the journal's session again and again, each time after something more was recorded."""

    def __init__(self, here: Bench, wanted: int) -> None:
        """`wanted`: writes that are to be cut, counted by run."""
        self._here = here
        self._wanted = wanted

    @property
    def enough(self) -> bool:
        """Whether so many writes were cut. Cuts of an idle session do not count."""
        return self._here.metrics.value(names.JOURNAL_RETRIES, "connection") >= self._wanted

    async def made(self) -> None:
        """Once there were enough; what is to be cut must not stop before."""
        cutter = Cutter(self._here.conn, ME)
        while not self.enough:
            await cutter.hit()
            rows = await self._rows()

            async def grown(before: int = rows) -> bool:
                return self.enough or await self._rows() > before

            await eventually(grown, "something is recorded after the cut")

    async def _rows(self) -> int:
        count: int = await self._here.conn.fetchval("SELECT count(*) FROM perdure.workflow_steps")
        return count


@asynccontextmanager
async def bench(conn: Connection, url: str, *, direct: str = "", connections: int = 1) -> AsyncIterator[Bench]:
    row = WorkerRow(ME, "ns", "default", "pod", "", "1", ("default",), ("workflow:t.x",), 4)
    await workers.register(conn, row, 60.0)
    made = Bench(conn, url, direct or url, connections)
    made.journal.start()
    try:
        yield made
    finally:
        await made.close()


def step(index: int, seq: int, status: StepStatus, output: str | None = None) -> StepWrite:
    final = status is not RUNNING
    return StepWrite(
        index=index, seq=seq, name=f"s{index}", status=status, input=None if final else "[]", output=output
    )


async def recorded(conn: Connection, run_id: str) -> list[tuple[int, int, int, str | None]]:
    rows = await conn.fetch(
        "SELECT step_index, status, seq, output FROM perdure.workflow_steps WHERE workflow_id = $1 ORDER BY 1", run_id
    )
    return [tuple(row) for row in rows]


async def steal(conn: Connection, run_id: str) -> None:
    """As if the worker had been marked dead and the run moved."""
    await conn.execute(
        "UPDATE perdure.workflows SET status = 10, worker_id = NULL, fence = fence + 1 WHERE id = $1", run_id
    )
