"""Statements of a step whose outcome is committed with the SQL of its own body. Called by `engine.transaction`.

The order is fixed: `begin`, the body, `finish`, COMMIT. Only `finish` touches the run, so that a long body
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
from perdure.store.pool import IDLE_TRANSACTION_SECONDS, LOCK_FRACTION, STATEMENT_SECONDS, transaction
from perdure.store.statements import sql


@dataclass(frozen=True, slots=True)
class Claim:
    """Under which ownership a run writes."""

    run_id: str
    worker_id: str
    fence: int


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of the step's row. Not `same`: it is another transaction than the one that was marked. `flags` None:
    nothing was written, as the run is not this claim's any more, or the step is final already; whatever else is in the
    transaction has to be rolled back."""

    same: bool
    flags: OwnedFlags | None


async def begin(connection: asyncpg.Connection[Any], mark: str) -> None:
    """Mark the open transaction; the mark goes with it."""
    await connection.fetchrow(sql("transaction_begin"), mark)


async def finish(connection: asyncpg.Connection[Any], claim: Claim, write: StepWrite, mark: str) -> Finished:
    """Write the step as succeeded, inside the open transaction, and limit how long it may hold the run's row from here.

    Raises `InFailedSQLTransactionError` when an error of its SQL has ended the transaction for all purposes.
    """
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
        mark,
        _milliseconds(STATEMENT_SECONDS * LOCK_FRACTION),
        _milliseconds(IDLE_TRANSACTION_SECONDS),
    )
    assert row is not None
    if not row["written"]:
        return Finished(row["same"], None)
    mode = row["cancel_mode"]
    return Finished(True, OwnedFlags(None if mode is None else CancelMode(mode), row["suspended"], row["wake_seq"]))


async def settled(connection: asyncpg.Connection[Any], claim: Claim, write: StepWrite) -> bool:
    """Whether the transaction with this write was committed, once it is over; waits for the session that holds it.

    Call it only when the COMMIT had been sent: before, nothing can have been committed.
    """
    async with transaction(connection):
        await connection.fetchrow(sql("transaction_settled"), claim.run_id)
        found = await journal.steps_at(connection, claim.run_id, claim.fence, [write.index])
    return found.get(write.index) == (write.seq, StepStatus.SUCCEEDED)


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))
