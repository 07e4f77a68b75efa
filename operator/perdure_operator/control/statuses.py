"""The status of runs that no worker reports: new ones, waiting ones, ended ones whose worker died before saying so.

The database says whose status is due; each is projected by the same pure function that workers use, written under
its revision, and recorded as reported only after the API server took it. So a crash at any point is repaired by
whoever looks next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perdure.errors import StoreUnavailable
from perdure.model.rows import StatusSource
from perdure.resources.kinds import WORKFLOW
from perdure.resources.projection import project
from perdure.store import status
from perdure.telemetry.logs import get_logger

from perdure_operator.control.database import Database
from perdure_operator.control.keys import Key
from perdure_operator.kube.errors import ApiRefused, ApiUnavailable
from perdure_operator.kube.status import StatusWriter, Written

log = get_logger(__name__)

IDLE_SECONDS = 0.5
"""Time between two looks for due statuses: half of the second within which a new Workflow shows that it is accepted."""

GATHER_SECONDS = 0.15
"""Head start of a worker that claims a new run at once: its first report then saves ours."""

BATCH = 100
"""Statuses projected at once: their sources are at most some megabytes."""

WRITERS = 8
"""Writes under way at once, so that one slow answer does not hold up the others."""

REFUSED_SECONDS = 300.0
"""When a refused status is tried again: the same content is refused again, so it must not be in the others' way."""

AWAY_SECONDS = (1.0, 5.0)
"""First and longest wait while the API server does not take statuses."""


class Statuses:
    """`run` until cancelled; `kick` when something is known to be due."""

    def __init__(self, database: Database, writer: StatusWriter, look_at: Callable[[Key], None]) -> None:
        self._database = database
        self._writer = writer
        self._look_at = look_at
        self._direct: set[str] = set()
        self._wake = asyncio.Event()

    def kick(self, run_id: str | None = None) -> None:
        """Look soon. With an id also if a worker holds that run: its row was changed from outside."""
        if run_id is not None:
            self._direct.add(run_id)
        self._wake.set()

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        away = AWAY_SECONDS[0]
        while True:
            try:
                found, unwritten = await self._round()
            except StoreUnavailable as error:
                log.debug("statuses wait for the database", error=str(error))
                found, unwritten = 0, 1
            if unwritten:
                await asyncio.sleep(away)
                away = min(AWAY_SECONDS[1], away * 2)
                continue
            away = AWAY_SECONDS[0]
            if found < BATCH:
                await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(GATHER_SECONDS)
        self._wake.clear()

    async def _round(self) -> tuple[int, int]:
        """How many were due, and how many of them the API server did not take for now."""
        direct, self._direct = self._direct, set()
        try:
            async with self._database.connection("status") as connection:
                ids = list(dict.fromkeys([*await status.due(connection, BATCH), *direct]))[: 2 * BATCH]
                sources = await status.read(connection, ids) if ids else []
        except StoreUnavailable:
            self._direct |= direct
            raise
        outcome = await self._write_all(sources)
        if outcome.done or outcome.refused:
            async with self._database.connection("status") as connection:
                await status.mark_reported(connection, [(each.run.id, each.run.revision) for each in outcome.done])
                if outcome.refused:
                    await status.postpone(connection, [each.run.id for each in outcome.refused], REFUSED_SECONDS)
        self._direct |= {each.run.id for each in outcome.missed} & direct
        return len(ids), len(outcome.missed)

    async def _write_all(self, sources: Sequence[StatusSource]) -> Outcome:
        outcome = Outcome()
        waiting = list(reversed(sources))

        async def writer() -> None:
            while waiting:
                source = waiting.pop()
                if outcome.missed:  # the server is away: the rest need not find out one by one
                    outcome.missed.append(source)
                else:
                    (await self._write(source, outcome)).append(source)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(WRITERS, len(waiting))):
                group.create_task(writer())
        return outcome

    async def _write(self, source: StatusSource, outcome: Outcome) -> list[StatusSource]:
        """Write one; the list of the outcome that it belongs to."""
        run = source.run
        if run.name is None:
            return outcome.done
        try:
            written = await self._writer.write(WORKFLOW, run.namespace, run.name, run.id, project(source))
        except ApiUnavailable as error:
            log.debug("statuses wait for the API server", error=str(error))
            return outcome.missed
        except ApiRefused as error:
            log.error("status refused", namespace=run.namespace, workflow=run.name, error=str(error))
            return outcome.refused
        if written is Written.GONE:
            self._look_at(Key(run.namespace, run.name, run.id))
        return outcome.done


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the statuses of a round: settled, refused for what they are, not taken for now."""

    done: list[StatusSource] = field(default_factory=list)
    refused: list[StatusSource] = field(default_factory=list)
    missed: list[StatusSource] = field(default_factory=list)
