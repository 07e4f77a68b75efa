"""The history of a run, as a replay elsewhere needs it: the run and all its recorded steps at one instant. Called by
clients; writes nothing."""

from __future__ import annotations

from typing import Any

import asyncpg

from perdure.model.history import RunHistory
from perdure.model.rows import RecordedStep
from perdure.model.serialization import from_number
from perdure.model.states import RunStatus
from perdure.store.claims import history
from perdure.store.pool import transaction
from perdure.store.statements import sql
from perdure.telemetry.build import VERSION

PAGE = 100
"""Steps read at once: their values have up to a megabyte each."""


async def export(connection: asyncpg.Connection[Any], run_id: str) -> RunHistory | None:
    """The history of a run, whatever its status; None when there is none of this id."""
    async with transaction(connection, isolation="repeatable_read", readonly=True):
        row = await connection.fetchrow(sql("export_run"), run_id)
        if row is None:
            return None
        steps = await _steps(connection, run_id)
    return RunHistory(
        id=row["id"],
        namespace=row["namespace"],
        workflow=row["workflow"],
        status=RunStatus(row["status"]),
        input=row["input"],
        steps=tuple(steps),
        name=row["name"],
        version=row["version"],
        definition=row["definition"],
        output=row["output"],
        error=row["error"],
        parent_id=row["parent_id"],
        rewinds=row["rewinds"],
        seed=row["seed"],
        serialization=from_number(row["serialization"]),
        release=VERSION,
    )


async def _steps(connection: asyncpg.Connection[Any], run_id: str) -> list[RecordedStep]:
    found: list[RecordedStep] = []
    while True:
        page = await history(connection, run_id, found[-1].index if found else -1, PAGE)
        if not page:
            return found
        found += page
