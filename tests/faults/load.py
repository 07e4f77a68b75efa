"""Starts runs, keeps so many under way, and asks of some of them what their programs say (cancel, suspend, resume)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Any

from perdure.model.rows import NewRun, workflow_requirement
from perdure.model.states import CancelMode, RunStatus
from perdure.store import runs as store

from tests.faults.database import Database
from tests.faults.programs import Program, program

POLL_SECONDS = 0.05


@dataclass
class Started:
    """One run that was started for sure. `cancelled` is what the database said to a cancel."""

    id: str
    program: Program
    cancelled: RunStatus | None = None
    orphan: bool = False
    """Started by a run that was stopped: it may never have been started, or be cancelled with it."""


class Load:
    """Runs number 0, 1, 2, … of a seed."""

    def __init__(self, seed: int, database: Database, at_once: int) -> None:
        self._seed = seed
        self._database = database
        self._at_once = at_once
        self._under_way: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
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
        if self._tasks:
            for task in (await asyncio.wait(self._tasks))[0]:
                task.result()
        return int((await self._database.rows("unfinished"))[0]["runs"])

    async def _look(self) -> None:
        self._under_way -= {row["id"] for row in await self._database.rows("ended", list(self._under_way))}

    async def _start(self, number: int) -> None:
        wanted = program(self._seed, number)
        run = Started(f"s{self._seed}-{number:06}", wanted)
        await self._database.ask(lambda connection: store.upsert(connection, self._row(run)))
        self.runs[run.id] = run
        self._under_way.add(run.id)
        outside = wanted.outside
        if outside.cancel_after is not None:
            self._later(outside.cancel_after, self._cancel(run))
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
        )

    def _later(self, seconds: float, work: Any) -> None:
        async def do() -> None:
            await asyncio.sleep(seconds)
            await work

        task = asyncio.create_task(do())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cancel(self, run: Started) -> None:
        mode = CancelMode.IMMEDIATE if run.program.outside.immediate else CancelMode.GRACEFUL
        run.cancelled = await self._database.ask(
            lambda connection: store.cancel(connection, run.id, mode, "somebody wanted it")
        )

    async def _suspend(self, run: Started, *, suspended: bool) -> None:
        changed = replace(self._row(run), suspended=suspended, generation=1 if suspended else 2)
        await self._database.ask(lambda connection: store.upsert(connection, changed))
