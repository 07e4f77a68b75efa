"""Starts runs, keeps so many under way, and asks of some of them what their programs say (cancel, suspend, resume).

Some are started by a client instead, which then waits for their end, too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol

from perdure.model.rows import NewRun, workflow_requirement
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs as store

from tests.faults.database import Database
from tests.faults.programs import Program, program

POLL_SECONDS = 0.05

CHILD_SECONDS = 30.0
"""A cancel that waits for a child waits no longer than this."""


@dataclass(frozen=True)
class Seen:
    """How a run ended, as a client saw it. `error`: code or class of what was raised."""

    status: RunStatus
    output: str | None = None
    error: str = ""


@dataclass
class Started:
    """One run that was started for sure. `cancelled` is what the database said to a cancel."""

    id: str
    program: Program
    cancelled: RunStatus | None = None
    orphan: bool = False
    """Started by a run that was stopped: it may never have been started, or be cancelled with it."""
    seen: Seen | None = None
    """What its client saw of its end; None when it has seen none."""
    trouble: list[str] = field(default_factory=list)
    """What must not happen to a client and did."""


class Client(Protocol):
    """What starts runs in the way of a program outside of workers (`clients`)."""

    async def start(self, run: Started) -> None:
        """It exists on return."""

    async def cancel(self, run: Started, mode: CancelMode) -> RunStatus:
        """How it stands then."""

    async def result(self, run: Started) -> Seen:
        """How it ended."""


class Load:
    """Runs number 0, 1, 2, … of a seed."""

    def __init__(self, seed: int, database: Database, client: Client, at_once: int) -> None:
        self._seed = seed
        self._database = database
        self._client = client
        self._at_once = at_once
        self._under_way: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waits: set[asyncio.Task[None]] = set()
        self._enough = False
        self.runs: dict[str, Started] = {}

    async def run(self) -> None:
        """Start runs until told that it is enough."""
        while not self._enough:
            for _ in range(self._at_once - len(self._under_way)):
                await self._start(len(self.runs))
            await self._look()
            await asyncio.sleep(POLL_SECONDS)

    def enough(self) -> None:
        """Start no more."""
        self._enough = True

    async def unfinished(self) -> int:
        """Wait for every outside request, then say how many runs have not ended yet, children and all."""
        while self._tasks:
            for task in (await asyncio.wait(self._tasks))[0]:
                task.result()
        return int((await self._database.rows("unfinished"))[0]["runs"])

    async def seen(self, seconds: float) -> None:
        """Let the clients see the ends of their runs, for no longer than so many seconds."""
        if self._waits:
            done, deaf = await asyncio.wait(self._waits, timeout=seconds)
            for task in deaf:
                task.cancel()
            await asyncio.gather(*deaf, return_exceptions=True)
            for task in done:
                task.result()

    async def _look(self) -> None:
        self._under_way -= {row["id"] for row in await self._database.rows("ended", list(self._under_way))}

    async def _start(self, number: int) -> None:
        wanted = program(self._seed, number)
        run = Started(f"s{self._seed}-{number:06}", wanted)
        if not wanted.by:
            await self._database.ask(lambda connection: store.upsert(connection, self._row(run)))
        self.runs[run.id] = run
        self._under_way.add(run.id)
        if wanted.by:
            self._keep(self._tasks, self._by_client(run))
        else:
            self._ask_outside(run)

    async def _by_client(self, run: Started) -> None:
        """`run` is start and wait in one; the start beside it is of the same run, and says that it is there."""
        if run.program.by == "run":
            self._keep(self._waits, self._wait(run))
        await self._client.start(run)
        if run.program.by != "run":
            self._keep(self._waits, self._wait(run))
        self._ask_outside(run)

    async def _wait(self, run: Started) -> None:
        run.seen = await self._client.result(run)

    def _ask_outside(self, run: Started) -> None:
        outside = run.program.outside
        if outside.cancel_after is not None:
            self._later(outside.cancel_after, self._cancel(run), after=run.id if outside.with_children else "")
        if outside.suspend_after is not None:
            self._later(outside.suspend_after, self._suspend(run, suspended=True))
            if outside.resume_after:
                self._later(outside.resume_after, self._suspend(run, suspended=False))

    def _row(self, run: Started) -> NewRun:
        return NewRun(
            id=run.id,
            namespace="ns",
            name=None,
            workflow="f.program",
            requires=(workflow_requirement("f.program"),),
            input=json.dumps([run.program.input]),
            max_run_attempts=run.program.max_run_attempts,
            max_recoveries=run.program.max_recoveries,
            timeout=None if run.program.timeout is None else timedelta(seconds=run.program.timeout),
        )

    def _later(self, seconds: float, work: Any, *, after: str = "") -> None:
        """`after`: not before this run has a child."""

        async def do() -> None:
            if after:
                with suppress(TimeoutError):
                    async with asyncio.timeout(CHILD_SECONDS):
                        # Rows have no event.
                        while not (await self._database.rows("children", after))[0]["times"]:  # noqa: ASYNC110
                            await asyncio.sleep(POLL_SECONDS)
            await asyncio.sleep(seconds)
            await work

        self._keep(self._tasks, do())

    def _keep(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _cancel(self, run: Started) -> None:
        mode = CancelMode.IMMEDIATE if run.program.outside.immediate else CancelMode.GRACEFUL
        if run.program.by:
            run.cancelled = await self._client.cancel(run, mode)
            return
        run.cancelled = await self._database.ask(
            lambda connection: store.cancel(connection, run.id, mode, "somebody wanted it")
        )

    async def _suspend(self, run: Started, *, suspended: bool) -> None:
        changed = replace(self._row(run), suspended=suspended, generation=1 if suspended else 2)
        await self._database.ask(lambda connection: store.upsert(connection, changed))
