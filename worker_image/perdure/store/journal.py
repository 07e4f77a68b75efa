"""The durable writes of runs, many at once. Called by the worker's journal and by nobody else.

One statement: ownership is tested and locked once, everything written hangs on that. What was sent once may be
sent again unchanged for ever: it writes nothing twice. After a lost answer `was_mine` tells one's own ending from
a lost claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import asyncpg

from perdure.model.outcome import Cancelled, Ending, Failed, Lost, Mismatch, Parked, Released, Succeeded
from perdure.model.rows import OwnedFlags, StepWrite, WaitingFor
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import waiting
from perdure.store.statements import sql


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds before a run is tried again, multiplied by the count of failures (linear), and the longest wait.

    A replay that does not match is tried slowly: what helps against it is another version of the code.
    `run_attempts` is how often a body that fails runs in all, where the run itself does not say.
    """

    run_retry: float = 5.0
    mismatch: float = 5.0
    limit: float = 3600.0
    run_attempts: int = 3


DEFAULT_BACKOFF = Backoff()


@dataclass(frozen=True, slots=True)
class RunWrites:
    """What one run wants written under its `fence`: steps (each index once, the later of two folded), then how it
    ended, if it did. `wake_seq` is what the run saw when it was claimed or last answered: a park that missed a
    wake becomes claimable instead."""

    run_id: str
    fence: int
    steps: tuple[StepWrite, ...] = ()
    ending: Ending | None = None
    wake_seq: int = 0


@dataclass(frozen=True, slots=True)
class Ack:
    """The answer for one run. Not `owned`: nothing of it was written. `ended` None although an ending was sent: a
    cancel came first and `flags` say so. `fence` is the row's after the statement, as far as it is known. `awaited`:
    the run has ended for good, and somebody waits for that."""

    owned: bool
    flags: OwnedFlags | None
    ended: RunStatus | None
    fence: int
    awaited: bool = False


async def commit(
    connection: asyncpg.Connection[Any],
    worker_id: str,
    batch: Sequence[RunWrites],
    *,
    backoff: Backoff = DEFAULT_BACKOFF,
) -> dict[str, Ack]:
    """Write a batch (each run once); one answer per run. Durable on return, all of it or none.

    Starts of steps are refused while a cancel is set, and so is every ending but a cancel, a park or a release.
    A value that cannot be stored fails the whole batch with its own SQLSTATE (class 22, 23, 54): split it.
    """
    writes = sorted(batch, key=lambda each: each.run_id)
    rows = await connection.fetch(
        sql("journal_commit"),
        [each.run_id for each in writes],
        worker_id,
        *_step_columns(writes),
        *_ending_columns(writes),
        backoff.run_retry,
        backoff.mismatch,
        backoff.limit,
        backoff.run_attempts,
    )
    owned = {row["id"]: row for row in rows if row["ended"] is None}
    ended = {row["id"]: row for row in rows if row["ended"] is not None}
    return {each.run_id: _ack(each, owned.get(each.run_id), ended.get(each.run_id)) for each in writes}


async def was_mine(connection: asyncpg.Connection[Any], worker_id: str, run_id: str, fence: int) -> RunStatus | None:
    """Status of the run if its ownership under `fence` was ended by this worker itself, else None."""
    status = await connection.fetchval(sql("journal_was_mine"), run_id, fence, worker_id)
    return None if status is None else RunStatus(status)


async def steps_at(
    connection: asyncpg.Connection[Any], run_id: str, fence: int, indexes: Sequence[int]
) -> dict[int, tuple[int, StepStatus]]:
    """(seq, status) of those steps that carry a write of this claim, by index."""
    rows = await connection.fetch(sql("journal_steps_at"), run_id, fence, list(indexes))
    return {row["step_index"]: (row["seq"], StepStatus(row["status"])) for row in rows}


def _ack(writes: RunWrites, row: asyncpg.Record | None, ended: asyncpg.Record | None) -> Ack:
    if row is None:
        return Ack(owned=False, flags=None, ended=None, fence=writes.fence)
    if row["fence"] != writes.fence:
        return Ack(owned=False, flags=None, ended=None, fence=row["fence"])
    flags = OwnedFlags(
        cancel_mode=None if row["cancel_mode"] is None else CancelMode(row["cancel_mode"]),
        suspended=row["suspended"],
        wake_seq=row["wake_seq"],
    )
    if ended is None:
        return Ack(owned=True, flags=flags, ended=None, fence=row["fence"])
    status = RunStatus(ended["ended"])
    return Ack(True, flags, status, ended["fence"], awaited=ended["awaited"] and status.finished)


def _step_columns(batch: Sequence[RunWrites]) -> tuple[list[Any], ...]:
    flat = [(run.run_id, run.fence, step) for run in batch for step in run.steps]
    return (
        [run_id for run_id, _, _ in flat],
        [fence for _, fence, _ in flat],
        [step.index for _, _, step in flat],
        [step.seq for _, _, step in flat],
        [step.name for _, _, step in flat],
        [step.status for _, _, step in flat],
        [step.input for _, _, step in flat],
        [step.output for _, _, step in flat],
        [step.error for _, _, step in flat],
        [step.attempts for _, _, step in flat],
        [step.attempt_errors for _, _, step in flat],
        [step.wake_in for _, _, step in flat],
    )


@dataclass(frozen=True, slots=True)
class _EndingColumns:
    kind: str
    output: str | None = None
    error: str | None = None
    waiting_for: str | None = None
    wake_in: float | None = None
    reason: str | None = None


def _ending_columns(batch: Sequence[RunWrites]) -> tuple[list[Any], ...]:
    flat = [(run, _columns_of(run.ending)) for run in batch if run.ending is not None]
    return (
        [run.run_id for run, _ in flat],
        [run.fence for run, _ in flat],
        [columns.kind for _, columns in flat],
        [_wakes_seen(run) for run, _ in flat],
        [columns.output for _, columns in flat],
        [columns.error for _, columns in flat],
        [columns.waiting_for for _, columns in flat],
        [columns.wake_in for _, columns in flat],
        [columns.reason for _, columns in flat],
    )


def _wakes_seen(run: RunWrites) -> int:
    if isinstance(run.ending, Parked) and run.ending.wake_seq is not None:
        return run.ending.wake_seq
    return run.wake_seq


def _columns_of(ending: Ending) -> _EndingColumns:
    match ending:
        case Succeeded(output):
            return _EndingColumns("succeeded", output=output)
        case Failed(error):
            message = f"the run failed and will be tried again: {error.type}: {error.message}"
            retry = waiting.encode(WaitingFor("RunRetry", message=message))
            return _EndingColumns("failed", error=error.to_json(), waiting_for=retry)
        case Cancelled(reason):
            return _EndingColumns("cancelled", reason=waiting.clean(reason))
        case Mismatch(error):
            held = waiting.encode(WaitingFor("ReplayMismatch", name=error.step, message=error.message))
            return _EndingColumns("mismatch", error=error.to_json(), waiting_for=held)
        case Parked(waiting_for, wake_in):
            return _EndingColumns("parked", waiting_for=waiting.encode(waiting_for), wake_in=wake_in)
        case Released(reason):
            return _EndingColumns("released", reason=waiting.clean(reason))
        case Lost():
            raise ValueError("a lost run has nothing to write")
    assert_never(ending)
