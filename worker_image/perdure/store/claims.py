"""Taking runs: the claim and the recorded steps that come with it. Called by the worker's claimer.

A claim counts no attempt (only a recovery from a dead worker does), pins the version and sets the deadline the
first time only. A claim whose answer is lost is found by the beat and given back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import asyncpg

from perdure.model.rows import ClaimedRun, RecordedStep
from perdure.model.states import CancelMode, StepStatus
from perdure.store.statements import sql

STEPS_WITH_CLAIM = 1000
"""Recorded steps that come with a claim: more than most runs have, little enough for a hundred runs at once."""


async def claim(
    connection: asyncpg.Connection[Any],
    *,
    worker_id: str,
    namespace: str,
    pool: str,
    queue: str,
    manifest: Sequence[str],
    version: str,
    limit: int,
) -> list[ClaimedRun]:
    """Take at most `limit` ready runs that this worker can run; they are its own, durably, on return.

    `manifest` = what it has registered (`workflow:…`, `step:…`). An empty `version` pins nothing. Fewer than
    `limit` does not mean that the queue is empty: rows that others are taking are skipped.
    """
    rows = await connection.fetch(sql("claim"), worker_id, namespace, pool, queue, list(manifest), version, limit)
    # Nothing can be recorded before the first claim.
    with_history = [row["id"] for row in rows if row["fence"] > 1]
    steps: defaultdict[str, list[RecordedStep]] = defaultdict(list)
    if with_history:
        for row in await connection.fetch(sql("history"), with_history, -1, STEPS_WITH_CLAIM):
            steps[row["workflow_id"]].append(_recorded(row))
    return [_claimed(row, tuple(steps[row["id"]])) for row in rows]


async def history(
    connection: asyncpg.Connection[Any], run_id: str, after_index: int, limit: int
) -> tuple[RecordedStep, ...]:
    """Recorded steps of a run with an index over `after_index`, in order, at most `limit`."""
    rows = await connection.fetch(sql("history"), [run_id], after_index, limit)
    return tuple(_recorded(row) for row in rows)


def _claimed(row: asyncpg.Record, steps: tuple[RecordedStep, ...]) -> ClaimedRun:
    return ClaimedRun(
        id=row["id"],
        fence=row["fence"],
        namespace=row["namespace"],
        name=row["name"],
        workflow=row["workflow"],
        input=row["input"],
        definition=row["definition"],
        run_attempts=row["run_attempts"],
        max_run_attempts=row["max_run_attempts"],
        recoveries=row["recoveries"],
        wake_seq=row["wake_seq"],
        cancel_mode=None if row["cancel_mode"] is None else CancelMode(row["cancel_mode"]),
        suspended=row["suspended"],
        deadline_in=row["deadline_in"],
        steps=steps,
        ready_seconds=row["ready_seconds"] or 0.0,
    )


def _recorded(row: asyncpg.Record) -> RecordedStep:
    return RecordedStep(
        index=row["step_index"],
        name=row["name"],
        status=StepStatus(row["status"]),
        input=row["input"],
        output=row["output"],
        error=row["error"],
        attempts=row["attempts"],
        attempt_errors=row["attempt_errors"],
        wake_at=row["wake_at"],
        wake_in=row["wake_in"],
    )
