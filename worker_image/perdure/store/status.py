"""What the status of a resource is made from, and what has been reported. Called by reporter and operator.

Content and revision are read in one snapshot; `reported_revision` only rises, and only after the API server took
the status. So a lost answer or a dead reporter costs one more write, never a wrong or a missing one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from perdure.model.rows import RunView, StatusSource, StepCounts, StepView
from perdure.model.states import CancelMode, RunStatus, StepStatus, Undo
from perdure.store import waiting
from perdure.store.statements import sql

SHOWN_STEPS = 100
"""Steps read of each run: as many as a status may list."""

STEP_OUTPUT_BYTES = 1024
"""Largest output of a step that is read: as much as a status shows."""

RUN_OUTPUT_BYTES = 4096
"""Largest output of a run that is read: as much as a status shows."""

ERROR_CHARACTERS = 16_384
"""Most of an error that is read; a status shows less."""


async def read(connection: asyncpg.Connection[Any], ids: Sequence[str]) -> list[StatusSource]:
    """The sources of these runs, in one snapshot, in the order of `ids`; unknown ids are left out."""
    rows = await connection.fetch(
        sql("status_read"),
        sorted(set(ids)),
        SHOWN_STEPS,
        STEP_OUTPUT_BYTES,
        RUN_OUTPUT_BYTES,
        ERROR_CHARACTERS,
    )
    found = {row["id"]: _source(row) for row in rows}
    return [found[each] for each in dict.fromkeys(ids) if each in found]


async def mark_reported(connection: asyncpg.Connection[Any], reported: Sequence[tuple[str, int]]) -> None:
    """These (id, revision) are in the API server; what has moved on since stays due."""
    latest: dict[str, int] = {}
    for run_id, revision in reported:
        latest[run_id] = max(revision, latest.get(run_id, revision))
    ids = sorted(latest)
    await connection.fetch(sql("status_mark_reported"), ids, [latest[each] for each in ids])


async def due(connection: asyncpg.Connection[Any], limit: int) -> list[str]:
    """Runs behind resources whose status is overdue and that no worker holds, longest first."""
    return [row["id"] for row in await connection.fetch(sql("status_due"), limit)]


async def postpone(connection: asyncpg.Connection[Any], ids: Sequence[str], seconds: float) -> None:
    """Their status could not be written: they are due again in so many seconds, behind all others."""
    await connection.fetch(sql("status_postpone"), sorted(set(ids)), seconds)


def _source(row: asyncpg.Record) -> StatusSource:
    return StatusSource(
        run=_run(row),
        counts=StepCounts(
            succeeded=row["succeeded"], failed=row["failed"], running=row["running"], retrying=row["retrying"]
        ),
        steps=_steps(row),
    )


def _run(row: asyncpg.Record) -> RunView:
    return RunView(
        id=row["id"],
        namespace=row["namespace"],
        name=row["name"],
        workflow=row["workflow"],
        pool=row["pool"],
        queue=row["queue"],
        version=row["version"],
        status=RunStatus(row["status"]),
        fence=row["fence"],
        edits=row["edits"],
        suspended=row["suspended"],
        cancel_mode=None if row["cancel_mode"] is None else CancelMode(row["cancel_mode"]),
        cancel_reason=row["cancel_reason"],
        undo=None if row["undo"] is None else Undo(row["undo"]),
        generation=row["generation"],
        run_attempts=row["run_attempts"],
        recoveries=row["recoveries"],
        max_recoveries=row["max_recoveries"],
        waiting_for=waiting.decode(row["waiting_for"]),
        waiting_since=row["waiting_since"],
        wake_at=row["wake_at"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        worker_pod=row["worker_pod"],
        definition=row["definition"],
        output=row["output"],
        output_bytes=row["output_bytes"],
        error=row["error"],
        last_seq=row["last_seq"],
    )


def _steps(row: asyncpg.Record) -> tuple[StepView, ...]:
    if row["indexes"] is None:
        return ()
    columns = (
        row["indexes"],
        row["names"],
        row["statuses"],
        row["attempts"],
        row["outputs"],
        row["errors"],
        row["started"],
        row["finished"],
        row["wakes"],
    )
    return tuple(
        StepView(index, name, StepStatus(status), attempts, output, error, started, finished, wake)
        for index, name, status, attempts, output, error, started, finished, wake in zip(*columns, strict=True)
    )
