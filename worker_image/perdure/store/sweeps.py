"""What time does to runs that nobody owns: waking, retrying, deadlines. Called by every worker and the operator.

All of it is idempotent and bounded, and skips what others hold: any one healthy process is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import asyncpg

from perdure.model.states import RunStatus
from perdure.store.pool import transaction
from perdure.store.statements import sql

READY_ROOM = 500
"""Ready runs of a pool up to which sleepers are woken: a tenth of a second of a busy worker's time. A run that comes
fresh never has more woken ones ahead of it."""

WOKEN_ANYWAY = 2
"""Runs woken of a pool in one statement however many are ready: whoever sleeps gets a place in the queue at last."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A run past its deadline: CANCELLED now, or RUNNING with a cancel for its owner."""

    id: str
    status: RunStatus


async def wake_due(connection: asyncpg.Connection[Any], limit: int) -> list[tuple[str, str]]:
    """Make runs claimable whose time has come; (namespace, pool) of each, so that workers can be notified.

    Of each pool at most `limit`, and of sleepers no more than bring its ready runs to `READY_ROOM`. None: nothing is
    left that is due.
    """
    woken = await connection.fetch(sql("sweep_wake"), limit, READY_ROOM, WOKEN_ANYWAY)
    retried: list[asyncpg.Record] = []
    # Looked at before a transaction is opened: retries of whole runs are rare.
    if await connection.fetch(sql("sweep_retry_lock"), limit):
        async with transaction(connection):
            held = await connection.fetch(sql("sweep_retry_lock"), limit)
            ids = sorted(row["id"] for row in held)
            await connection.execute(sql("sweep_retry_steps"), ids)
            retried = await connection.fetch(sql("sweep_retry"), ids)
    return [(row["namespace"], row["pool"]) for row in (*woken, *retried)]


async def cancel_overdue(connection: asyncpg.Connection[Any], limit: int) -> list[Overdue]:
    """End runs past their deadline: at once where nobody owns them, else by a cancel."""
    rows = await connection.fetch(sql("sweep_overdue"), limit)
    return [Overdue(row["id"], RunStatus(row["status"])) for row in rows]
