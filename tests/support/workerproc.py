"""Workers for tests: inside the test's own loop where that is enough, as a real process where killing matters."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg
from perdure.api import default_registry
from perdure.engine.registry import Registry
from perdure.model.rows import NewRun, workflow_requirement
from perdure.model.states import RunStatus
from perdure.store import runs
from perdure.store.pool import connect
from perdure.worker.settings import WorkerSettings
from perdure.worker.worker import Worker

from tests.support.pgwait import eventually

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 60.0
# A machine that runs other tests, too, may take long to start a process; nothing here waits for it in vain.
TEST_LEASE = 2.0
TEST_SETTINGS: dict[str, Any] = {
    "namespace": "ns",
    "pool": "default",
    "poll_seconds": 0.2,
    "lease_seconds": TEST_LEASE,
    "drain_seconds": 10.0,
    "run_attempts": 1,
}


def settings(**changes: Any) -> WorkerSettings:
    return WorkerSettings(**{**TEST_SETTINGS, **changes})


@asynccontextmanager
async def working(url: str, registry: Registry = default_registry, **changes: Any) -> AsyncIterator[Worker]:
    """A worker in this loop that has registered; drained at the end."""
    exits: list[int] = []
    worker = Worker(settings(**changes), registry, database_url=url, exit_process=exits.append)
    await worker.start()
    try:
        await worker.wait_until_working()
        yield worker
    finally:
        worker.drain()
        try:
            await asyncio.wait_for(worker.wait(), STOP_SECONDS)
        finally:
            assert not exits, "the worker wanted to end the process"


class WorkerProcess:
    """`python -m perdure.worker` with the test's workflows; killed at the end of the block if it still runs."""

    def __init__(
        self,
        url: str,
        *,
        modules: str = "tests.worker.flows",
        environment: Mapping[str, str] | None = None,
        **changes: Any,
    ) -> None:
        given = {**TEST_SETTINGS, "metrics_port": 0, "probe_port": 0, **changes}
        path = os.pathsep.join([str(ROOT), str(ROOT / "worker_image")])
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")},
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "PERDURE_DATABASE_URL": url,
            "PERDURE_MODULES": modules,
            **{f"PERDURE_{name.upper()}": str(value) for name, value in given.items()},
            **(environment or {}),
        }
        with tempfile.NamedTemporaryFile(prefix="perdure-worker-", suffix=".log", delete=False) as file:
            self._log = Path(file.name)
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGCONT)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if kind is not None:
            print(f"--- log of worker {self.process.pid}\n{self._log.read_text()}")
        self._log.unlink()

    def start(self, **environment: str) -> None:
        """Begin a process; again, when the one before has ended, with the same log."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "perdure.worker"],
                cwd=ROOT,
                env={**self._env, **environment},
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, seconds: float = STOP_SECONDS) -> int:
        """Its exit code, once it has ended."""

        async def over() -> bool:
            return self.process.poll() is not None

        await eventually(over, "the worker's process ends", seconds)
        return self.process.wait()

    def text(self) -> str:
        """Everything it wrote."""
        return self._log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        """What it logged, as far as it is JSON."""
        found = []
        for line in self.text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def said(self, message: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if message in str(line.get("message", ""))]

    async def says(self, message: str, seconds: float = STOP_SECONDS) -> dict[str, Any]:
        """The first line with this message, once it is there."""

        async def found() -> list[dict[str, Any]]:
            if self.process.poll() is not None and not self.said(message):
                raise AssertionError(f"the worker ended with {self.process.returncode}: {self._log.read_text()}")
            return self.said(message)

        return (await eventually(found, f"the worker says {message!r}", seconds))[0]

    async def writes(self, text: str, seconds: float = STOP_SECONDS) -> None:
        """Once this stands in what it wrote, as JSON or not."""

        async def written() -> bool:
            return text in self.text()

        await eventually(written, f"the worker writes {text!r}", seconds)

    async def works(self) -> Self:
        """Once it has registered."""
        await self.says("registered")
        return self


async def enqueue(conn: "asyncpg.Connection[Any]", workflow: str, *args: Any, run_id: str, **changes: Any) -> str:
    """A run of a registered workflow with these positional arguments."""
    fields: dict[str, Any] = {
        "id": run_id,
        "namespace": "ns",
        "name": None,
        "workflow": workflow,
        "requires": (workflow_requirement(workflow),),
        "input": json.dumps(list(args)),
        **changes,
    }
    await runs.upsert(conn, NewRun(**fields))
    return run_id


async def finished(conn: "asyncpg.Connection[Any]", run_id: str, seconds: float = 30.0) -> RunStatus:
    """Final status of a run, once it has one."""

    async def status() -> RunStatus | None:
        found = await runs.get_status(conn, run_id)
        return found if found is not None and found.finished else None

    found = await eventually(status, f"run {run_id} ends", seconds)
    assert found is not None
    return found


async def effects(conn: "asyncpg.Connection[Any]", run_id: str) -> list[tuple[str, str]]:
    """What the bodies of a run did, in order: (label, what)."""
    rows = await conn.fetch("SELECT label, what FROM public.effects WHERE run = $1 ORDER BY number", run_id)
    return [(row["label"], row["what"]) for row in rows]


async def until_effect(conn: "asyncpg.Connection[Any]", run_id: str, label: str, what: str, count: int = 1) -> None:
    async def there() -> bool:
        return (await effects(conn, run_id)).count((label, what)) >= count

    await eventually(there, f"{run_id}: {label} {what} {count}x")


async def open_gate(conn: "asyncpg.Connection[Any]", name: str) -> None:
    await conn.execute("INSERT INTO public.gates VALUES ($1) ON CONFLICT DO NOTHING", name)


async def connect_again(url: str) -> "asyncpg.Connection[Any]":
    """A session on a database that is coming back."""

    async def connected() -> "asyncpg.Connection[Any] | None":
        try:
            return await connect(url, application_name="test")
        except Exception:
            return None

    found = await eventually(connected, "the database is back")
    assert found is not None
    return found
