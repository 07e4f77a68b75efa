"""Postgres and workers on this machine, for the measures that need no cluster: as durable as in production."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
from perdure.dev import processes
from perdure.dev.postgres import EmbeddedPostgres, ServerOptions
from perdure.dev.processes import WorkerProcess, WorkerSettings
from perdure.model.rows import NewRun, workflow_requirement
from perdure.store import migrate, pool, runs

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE, POOL = "bench", "bench"
POLL_SECONDS = 0.002
SECONDS = 120.0


class Host:
    """A migrated database and the workers over it."""

    def __init__(self, url: str, connection: asyncpg.Connection[Any], folder: Path) -> None:
        self.url = url
        self.connection = connection
        self._folder = folder
        self._workers: list[WorkerProcess] = []

    async def start_worker(self, number: int = 1, *, slots: int = 16, lease: float = 30.0) -> WorkerProcess:
        """A ready worker. The same number again is the same pod, with a new container."""
        before = await self._live()
        worker = await self.start_worker_at_once(number, slots=slots, lease=lease)
        await self.until(lambda: self._has_new(before), f"worker {number}", worker)
        return worker

    async def start_worker_at_once(self, number: int, *, slots: int = 16, lease: float = 30.0) -> WorkerProcess:
        """A worker that is not waited for."""
        settings = WorkerSettings(
            self.url, ["benchmarks.flows"], [ROOT], NAMESPACE, POOL, ["default"], slots, lease, self._folder
        )
        worker = await processes.start(settings, number)
        self._workers.append(worker)
        return worker

    async def stop_workers(self) -> None:
        await asyncio.gather(*(worker.stop(10.0) for worker in self._workers))
        self._workers.clear()

    async def submit(self, workflow: str, count: int = 1, **arguments: Any) -> list[str]:
        """Runs of a workflow, as intake would store them; in one transaction, so that all become visible at once."""
        ids = [f"bench-{uuid.uuid4()}" for _ in range(count)]
        async with self.connection.transaction():
            for run_id in ids:
                await runs.upsert(
                    self.connection,
                    NewRun(
                        id=run_id,
                        namespace=NAMESPACE,
                        name=None,
                        workflow=workflow,
                        requires=(workflow_requirement(workflow),),
                        input=json.dumps(arguments),
                        pool=POOL,
                    ),
                )
        return ids

    async def until_finished(self, ids: Sequence[str]) -> None:
        async def finished() -> bool:
            open_runs = "SELECT count(*) FROM perdure.workflows WHERE id = ANY($1) AND status < 50"
            return bool(await self.connection.fetchval(open_runs, list(ids)) == 0)

        await self.until(finished, "the end of the runs")
        failed = "SELECT count(*) FROM perdure.workflows WHERE id = ANY($1) AND status <> 50"
        if count := await self.connection.fetchval(failed, list(ids)):
            raise RuntimeError(f"{count} runs did not succeed; the workers' logs are in {self._folder}")

    async def until_ended(self, run: str) -> None:
        """Whichever way."""

        async def ended() -> bool:
            status = await self.connection.fetchval("SELECT status FROM perdure.workflows WHERE id = $1", run)
            return bool(status >= 50)

        await self.until(ended, f"the end of {run}")

    async def until(self, check: Any, what: str, worker: WorkerProcess | None = None) -> None:
        """Poll an async check."""
        deadline = time.monotonic() + SECONDS
        while not await check():
            if worker is not None and worker.exit_code is not None:
                raise RuntimeError(f"the worker has ended:\n{worker.last_words()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not come about within {SECONDS:.0f}s")
            await asyncio.sleep(POLL_SECONDS)

    async def _live(self) -> set[str]:
        rows = await self.connection.fetch("SELECT id FROM perdure.workers WHERE state = 10")
        return {row["id"] for row in rows}

    async def _has_new(self, before: set[str]) -> bool:
        return bool(await self._live() - before)


@asynccontextmanager
async def host() -> AsyncIterator[Host]:
    """Everything up and taken down again."""
    with _folder() as folder, _postgres(folder) as server:
        await migrate.migrate(server.url())
        connection = await pool.connect(server.url(), application_name="perdure-bench")
        found = Host(server.url(), connection, folder)
        try:
            yield found
        finally:
            await found.stop_workers()
            await connection.close()


def _postgres(folder: Path) -> EmbeddedPostgres:
    return EmbeddedPostgres(folder / "postgres", options=ServerOptions(log=folder / "postgres.log"))


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        Path(name).chmod(0o711)  # started by root, Postgres runs as another user, who must get to its data
        yield Path(name)
