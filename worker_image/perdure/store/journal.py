"""The durable writes of runs, many at once. Called by the worker's journal and by nobody else.

One statement: ownership is tested and locked once, everything written hangs on that. What was sent once may be
sent again unchanged for ever: it writes nothing twice. After a lost answer `was_mine` tells one's own ending from
a lost claim. What a run alone writes from step to step has statements of its own, which take little more than a third
of the time (`_alone`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple, assert_never

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


SEPARATOR = "\x1f"
"""Stands between the values of a column: no registered name holds it, and JSON has it only as an escape."""


FEW_STEPS = 16
"""Steps up to which the small statement is the cheaper one."""


# Not frozen: one of each is made for every run of every statement, and setting the fields of a frozen one costs thrice
# as much.
@dataclass(slots=True)
class RunWrites:
    """What one run wants written under its `fence`: steps (each index once, the later of two folded), then how it
    ended, if it did. `wake_seq` is what the run saw when it was claimed or last answered: a park that missed a
    wake becomes claimable instead. `resent`: something of it may be written already."""

    run_id: str
    fence: int
    steps: Sequence[StepWrite] = ()
    ending: Ending | None = None
    wake_seq: int = 0
    resent: bool = False


@dataclass(slots=True)
class Ack:
    """The answer for one run. Not `owned`: nothing of it was written. `ended` None although an ending was sent: a
    cancel came first and `flags` say so. `fence` is the row's after the statement, as far as it is known. `awaited`:
    the run has ended for good, and a client waits for that; `waited`: and a run that did not start it does."""

    owned: bool
    flags: OwnedFlags | None
    ended: RunStatus | None
    fence: int
    awaited: bool = False
    waited: bool = False


async def commit(
    connection: asyncpg.Connection[Any],
    worker_id: str,
    batch: Sequence[RunWrites],
    *,
    backoff: Backoff = DEFAULT_BACKOFF,
) -> dict[str, Ack]:
    """Write a batch (each run once); one answer per run. Durable on return, all of it or none.

    Starts of steps are refused while a cancel is set, and so is every ending but a cancel, a park or a release.
    A value that cannot be stored fails the whole batch with its own SQLSTATE (class 22, 23, 54): split it. A step that
    was sent as `fresh` and is there already fails it, too (`is_not_fresh`): send it again as `resent`.
    """
    if len(batch) == 1 and (alone := alone_of(batch[0])) is not None:
        ack = await _alone(connection, worker_id, batch[0], alone)
        if ack is not None:
            return {batch[0].run_id: ack}
        batch = [replace(batch[0], resent=True)]
    writes = sorted(batch, key=attrgetter("run_id"))
    name, arguments = statement(worker_id, writes, backoff)
    rows = await connection.fetch(sql(name), *arguments)
    acks = {each.run_id: _as_hoped(each) for each in writes}
    for row in sorted(rows, key=lambda row: row["ended"] is not None):
        _correct(acks[writes[row["run"] - 1].run_id], row)
    return acks


def statement(worker_id: str, writes: Sequence[RunWrites], backoff: Backoff) -> tuple[str, tuple[Any, ...]]:
    """Name and arguments of what writes this, for runs sorted by their ids."""
    runs = (
        _texts([each.run_id for each in writes]),
        _numbers([each.fence for each in writes]),
        _numbers([each.wake_seq for each in writes]),
        worker_id,
    )
    steps = [(place, step) for place, each in enumerate(writes, 1) for step in each.steps]
    if len(steps) <= FEW_STEPS and all(each.ending is None for each in writes):
        return "journal_steps", (*runs, *_columns(steps))
    fresh = [(place, step) for place, step in steps if step.fresh and not writes[place - 1].resent]
    others = [(place, step) for place, step in steps if not step.fresh or writes[place - 1].resent]
    retries = (backoff.run_retry, backoff.mismatch, backoff.limit, backoff.run_attempts)
    return "journal_commit", (*runs, *_fresh_columns(fresh), *_columns(others), *_ending_columns(writes), *retries)


class Alone(NamedTuple):
    """What a run writes by itself: the result of a step whose start was answered, then the fresh start of the next or
    the run's success."""

    finish: StepWrite | None
    start: StepWrite | None


def alone_of(writes: RunWrites) -> Alone | None:
    """The writes in that form, None if they have another."""
    if writes.resent or len(writes.steps) > 2 or not (writes.ending is None or type(writes.ending) is Succeeded):
        return None
    finish = start = None
    for step in writes.steps:
        if step.fresh and start is None:
            start = step
        elif step.status is StepStatus.SUCCEEDED and step.input is None and not step.attempts and finish is None:
            finish = step
        else:
            return None
    if start is not None and writes.ending is not None:
        return None
    nothing = not writes.steps and writes.ending is None
    return None if nothing else Alone(finish, start)


async def _alone(connection: asyncpg.Connection[Any], worker_id: str, writes: RunWrites, alone: Alone) -> Ack | None:
    """Write it; None when it has to be written the other way, which does no harm after this one."""
    name, arguments = alone_statement(worker_id, writes, alone)
    row = await connection.fetchrow(sql(name), *arguments)
    if row is None:
        return Ack(False, None, None, writes.fence)
    if not row["done"]:
        return None
    cancel = row["cancel_mode"]
    flags = OwnedFlags(None if cancel is None else CancelMode(cancel), row["suspended"], row["wake_seq"])
    if writes.ending is None or row["awaited"] is None:
        return Ack(True, flags, None, writes.fence)
    return Ack(True, flags, RunStatus.SUCCEEDED, writes.fence + 1, row["awaited"], row["waited"])


def alone_statement(worker_id: str, writes: RunWrites, alone: Alone) -> tuple[str, tuple[Any, ...]]:
    """Name and arguments of what writes this."""
    finish, start = alone
    done = (None, None, None) if finish is None else (finish.index, finish.seq, finish.output)
    run = (writes.run_id, worker_id, writes.fence, *done)
    if type(writes.ending) is Succeeded:
        return "journal_done", (*run, writes.ending.output)
    begun = (None, None, None, None) if start is None else (start.index, start.seq, start.name, start.input)
    return "journal_next", (*run, *begun)


def is_not_fresh(error: BaseException) -> bool:
    """Whether a step that was sent as `fresh` is there already."""
    return isinstance(error, asyncpg.UniqueViolationError) and error.constraint_name == "workflow_steps_pkey"


async def locked(connection: asyncpg.Connection[Any], run_ids: Sequence[str]) -> frozenset[str]:
    """Which of these runs somebody else holds a lock on. Waits for none; may be over when it returns."""
    rows = await connection.fetch(sql("journal_locked"), list(run_ids))
    return frozenset(row["id"] for row in rows)


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


_CALM = OwnedFlags(cancel_mode=None, suspended=False, wake_seq=0)


def _as_hoped(writes: RunWrites) -> Ack:
    """The answer for a run of which the database says nothing."""
    flags = _CALM if writes.wake_seq == 0 else OwnedFlags(None, False, writes.wake_seq)
    if type(writes.ending) is Succeeded:
        return Ack(True, flags, RunStatus.SUCCEEDED, writes.fence + 1)
    return Ack(True, flags, None, writes.fence)


def _correct(ack: Ack, row: asyncpg.Record) -> None:
    """What the database says, entered into the answer."""
    if row["ended"] is not None:
        ack.ended, ack.fence = RunStatus(row["ended"]), row["fence"]
        ack.awaited = row["awaited"] and ack.ended.finished
        ack.waited = row["waited"] and ack.ended.finished
        return
    if not row["mine"]:
        ack.owned, ack.flags, ack.ended = False, None, None
        ack.fence = ack.fence if row["fence"] is None else row["fence"]
        return
    cancel = row["cancel_mode"]
    ack.flags = OwnedFlags(None if cancel is None else CancelMode(cancel), row["suspended"], row["wake_seq"])
    if cancel is not None:
        ack.ended, ack.fence = None, row["fence"]


def _fresh_columns(fresh: Sequence[tuple[int, StepWrite]]) -> tuple[str, ...]:
    return (
        _numbers([place for place, _ in fresh]),
        _numbers([step.index for _, step in fresh]),
        _numbers([step.seq for _, step in fresh]),
        _texts([step.name for _, step in fresh]),
        _texts([step.input for _, step in fresh]),
    )


def _columns(steps: Sequence[tuple[int, StepWrite]]) -> tuple[str, ...]:
    return (
        _numbers([place for place, _ in steps]),
        _numbers([step.index for _, step in steps]),
        _numbers([step.seq for _, step in steps]),
        _texts([step.name for _, step in steps]),
        _numbers([step.status for _, step in steps]),
        _texts([step.input for _, step in steps]),
        _texts([step.output for _, step in steps]),
        _texts([step.error for _, step in steps]),
        _numbers([step.attempts for _, step in steps]),
        _texts([step.attempt_errors for _, step in steps]),
        _some_numbers([step.wake_in for _, step in steps]),
    )


def _texts(values: Sequence[str | None]) -> str:
    """A column of texts; the empty one is null. Raises what the driver raises for a value that cannot be sent."""
    filled = [value or "" for value in values]
    text = SEPARATOR.join(filled)
    if text.count(SEPARATOR) >= max(len(filled), 1):
        raise asyncpg.DataError("a value holds the character U+001F")
    # Of a column without a value nothing need be sent.
    return text if len(text) >= len(filled) else ""


def _numbers(values: Iterable[float]) -> str:
    """A column of numbers, as the literal of an array."""
    return f"{{{','.join(map(str, values))}}}"


def _some_numbers(values: Sequence[float | None]) -> str:
    """The same of a column that has few."""
    if values.count(None) == len(values):
        return "{}"
    return f"{{{','.join('null' if value is None else str(value) for value in values)}}}"


@dataclass(slots=True)
class _EndingColumns:
    kind: str
    output: str | None = None
    error: str | None = None
    waiting_for: str | None = None
    wake_in: float | None = None
    reason: str | None = None


def _ending_columns(batch: Sequence[RunWrites]) -> tuple[str, ...]:
    flat = [(place, _columns_of(run.ending)) for place, run in enumerate(batch, 1) if run.ending is not None]
    return (
        _numbers([place for place, _ in flat]),
        _texts([columns.kind for _, columns in flat]),
        _numbers([_wakes_seen(batch[place - 1]) for place, _ in flat]),
        _texts([columns.output for _, columns in flat]),
        _texts([columns.error for _, columns in flat]),
        _texts([columns.waiting_for for _, columns in flat]),
        _some_numbers([columns.wake_in for _, columns in flat]),
        _texts([columns.reason for _, columns in flat]),
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
            return _EndingColumns("cancelled", reason=_sentence(reason))
        case Mismatch(error):
            held = waiting.encode(WaitingFor("ReplayMismatch", name=error.step, message=error.message))
            return _EndingColumns("mismatch", error=error.to_json(), waiting_for=held)
        case Parked(waiting_for, wake_in):
            return _EndingColumns("parked", waiting_for=waiting.encode(waiting_for), wake_in=wake_in)
        case Released(reason):
            return _EndingColumns("released", reason=_sentence(reason))
        case Lost():
            raise ValueError("a lost run has nothing to write")
    assert_never(ending)


def _sentence(text: str) -> str:
    return waiting.clean(text).replace(SEPARATOR, " ")
