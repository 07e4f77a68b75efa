"""Undoing the steps of a run: what was promised before they began, and what is done about it at the end.

Called by the worker's journal, each call a statement of its own under the fence of its claim. What is undone is decided
once, by the statement that begins with it; from then on every claim of the run reads the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import asyncpg

from perdure.model.outcome import ErrorRecord
from perdure.model.rows import OwnedFlags
from perdure.model.states import CancelMode
from perdure.store.statements import sql
from perdure.store.transaction import Claim


@dataclass(frozen=True, slots=True)
class Part:
    """One step that is undone: its index and name, what it returned (as stored), the name of the step that undoes it
    and the arguments of that one, as stored, in whose first place the result belongs."""

    index: int
    step: str
    output: str
    name: str
    input: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is undone, in this order. `index` is that of the step that says so, None when there is nothing to undo.
    `error` is what the run has failed with; None: it was cancelled, for `reason`."""

    flags: OwnedFlags
    index: int | None
    error: ErrorRecord | None
    reason: str
    parts: tuple[Part, ...] = ()


async def promise(
    connection: asyncpg.Connection[Any], claim: Claim, index: int, name: str, text: str
) -> OwnedFlags | None:
    """Write down that the step `name`, with these arguments, undoes the one at this index. Durable on return, once
    however often it is sent. None: the run has another owner. A cancel in the flags: nothing was written."""
    row = await connection.fetchrow(sql("undo_promise"), claim.run_id, claim.worker_id, claim.fence, index, name, text)
    return None if row is None else _flags(row)


async def begin(connection: asyncpg.Connection[Any], claim: Claim, seq: int) -> Plan | None:
    """Begin to undo the steps of the run, or go on with it; `seq` is the number of that write. Durable on return.

    None: the run has another owner. A cancel in the flags: the run is to be removed, and nothing is undone.
    """
    row = await connection.fetchrow(sql("undo_begin"), claim.run_id, claim.worker_id, claim.fence, seq)
    if row is None:
        return None
    if row["undo_at"] is None:
        return _plan(row, _flags(row), ())
    parts = await connection.fetch(sql("undo_plan"), claim.run_id)
    return _plan(parts[0], _flags(row), parts)


def _plan(row: asyncpg.Record, flags: OwnedFlags, parts: list[asyncpg.Record] | tuple[()]) -> Plan:
    # A cancel that compensates is answered by this, and a suspension does not count any more.
    cancel = None if flags.cancel_mode is CancelMode.COMPENSATE else flags.cancel_mode
    flags = OwnedFlags(cancel, False, flags.wake_seq)
    return Plan(
        flags=flags,
        index=row["undo_at"],
        error=ErrorRecord.from_json(row["cause"]) if row["failed"] else None,
        reason="" if row["failed"] else json.loads(row["cause"]),
        parts=tuple(
            Part(part["step_index"], part["step"], part["output"] or "null", part["name"], part["input"])
            for part in parts
        ),
    )


def _flags(row: asyncpg.Record) -> OwnedFlags:
    mode = row["cancel_mode"]
    return OwnedFlags(None if mode is None else CancelMode(mode), row["suspended"], row["wake_seq"])
