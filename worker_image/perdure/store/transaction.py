"""Statements of a step whose outcome is committed with the SQL of its own body. Called by `engine.transaction`.

The order is fixed: `begin`, the body, `check`, `finish`, COMMIT. Only `finish` touches the run, so that a long body
holds no lock that a reclaim, a cancel or a message waits for; it carries the only test of ownership (R1), and
everything it writes hangs on that. After a COMMIT without an answer `settled` tells what became of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import asyncpg

from perdure.model.rows import OwnedFlags, StepWrite
from perdure.model.states import CancelMode, StepStatus
from perdure.store import journal
from perdure.store.pool import IDLE_TRANSACTION_SECONDS, LOCK_FRACTION, STATEMENT_SECONDS
from perdure.store.statements import sql


@dataclass(frozen=True, slots=True)
class Claim:
    """Under which ownership a run writes."""

    run_id: str
    worker_id: str
    fence: int


async def begin(connection: asyncpg.Connection[Any], mark: str) -> None:
    """Mark the open transaction; the mark goes with it."""
    await connection.fetchrow(sql("transaction_begin"), mark)


async def check(connection: asyncpg.Connection[Any], mark: str) -> bool:
    """Whether the transaction is still the one with this mark. Limits how long what follows may hold the run's row.

    Raises `InFailedSQLTransactionError` when an error of its SQL has ended it for all purposes.
    """
    row = await connection.fetchrow(
        sql("transaction_check"),
        mark,
        _milliseconds(STATEMENT_SECONDS * LOCK_FRACTION),
        _milliseconds(IDLE_TRANSACTION_SECONDS),
    )
    assert row is not None
    return bool(row["same"])


async def finish(connection: asyncpg.Connection[Any], claim: Claim, write: StepWrite) -> OwnedFlags | None:
    """Write the step as succeeded, inside the open transaction. None when the run is not this claim's any more, or the
    step is final already: nothing was written, and all else of the transaction has to be rolled back."""
    row = await connection.fetchrow(
        sql("transaction_step"),
        claim.run_id,
        claim.worker_id,
        claim.fence,
        write.index,
        write.seq,
        write.attempts,
        write.output,
        write.attempt_errors,
    )
    if row is None or not row["written"]:
        return None
    mode = row["cancel_mode"]
    return OwnedFlags(None if mode is None else CancelMode(mode), row["suspended"], row["wake_seq"])


async def settled(connection: asyncpg.Connection[Any], claim: Claim, write: StepWrite) -> bool:
    """Whether the transaction with this write was committed, once it is over; waits for the session that holds it.

    Call it only when the COMMIT had been sent: before, nothing can have been committed.
    """
    async with connection.transaction():
        await connection.fetchrow(sql("transaction_settled"), claim.run_id)
        found = await journal.steps_at(connection, claim.run_id, claim.fence, [write.index])
    return found.get(write.index) == (write.seq, StepStatus.SUCCEEDED)


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))
