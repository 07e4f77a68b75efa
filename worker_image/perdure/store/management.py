"""What is done with runs that are there: cancel, resume, rewind, fork, delete, delay, attributes.

Called by clients, and by the worker for the calls of runs. Every verb is one transaction that first locks all the runs
it is about, sorted, and decides on what the lock brought back: whoever settles, claims or wakes one of them was first,
or waits and then finds what was done. All of it is durable on return, or nothing is there.

The call of a run locks the caller's row in the same sorted pass, tests its claim, and records its step with what was
done. It never shares a statement with the journal's writes, which lock no rows but their own runs' (rule R15).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import asyncpg

from perdure.errors import (
    ConflictingWorkflow,
    InvalidArgument,
    NonExistentWorkflow,
    SystemDatabaseError,
    WorkflowConflict,
    WorkflowNotRewindable,
)
from perdure.model.listing import OneRun
from perdure.model.management import (
    Cancel,
    Cut,
    Delay,
    Delete,
    Fork,
    Managed,
    Recorded,
    Resume,
    Rewind,
    SetAttributes,
    Standing,
    Undone,
    Verb,
    index_of,
    keeps_undone,
    may_be_delayed,
    reopens,
    resumes,
)
from perdure.model.rows import OwnedFlags, StepWrite
from perdure.model.start import ATTRIBUTES_MAX_BYTES
from perdure.model.states import CancelMode, RunStatus
from perdure.store import listing, runs
from perdure.store.pool import transaction
from perdure.store.statements import sql
from perdure.store.transaction import Claim

DELETED = "it was deleted"
"""Why a run that is deleted was cancelled."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of the call of a run. `output`: what its step recorded; None: a cancel of the caller came first, and
    nothing was done. `managed` None: an earlier copy of the call did it."""

    flags: OwnedFlags
    output: str | None
    managed: Managed | None


class CallerLost(Exception):
    """The run that asks is not the claim's any more; `why` says what became of it."""

    def __init__(self, why: SystemDatabaseError) -> None:
        super().__init__(why.message)
        self.why = why


async def manage(connection: asyncpg.Connection[Any], ids: Sequence[str], verb: Verb) -> list[Managed]:
    """Do this with all of the runs, in the order of `ids`, or with none. Durable on return.

    Made again after a lost answer it has no second effect, but for a rewind and a delay, which begin anew. Raises
    `NonExistentWorkflow`, `WorkflowNotRewindable`, `ConflictingWorkflow`, `InvalidArgument`.
    """
    async with transaction(connection):
        found = await _lock(connection, ids)
        return await _apply(connection, [_standing(found, each) for each in ids], verb)


async def manage_for(
    connection: asyncpg.Connection[Any], claim: Claim, run_id: str, verb: Verb, write: StepWrite | None
) -> Done:
    """Do this with a run on behalf of another, and record it as that one's step `write`; None: as part of a step, which
    records it itself. Durable on return; sent again unchanged it has no second effect where there is a step.

    Raises `CallerLost` when the caller has another owner (`WorkflowConflict`) or is gone (`NonExistentWorkflow`), and
    as `manage`.
    """
    async with transaction(connection):
        found = await _lock(connection, [claim.run_id, run_id])
        flags = _flags(found.get(claim.run_id), claim)
        if write is not None:
            if flags.cancel_mode is not None:
                return Done(flags, None, None)
            recorded = await connection.fetchrow(sql("manage_recorded"), claim.run_id, write.index)
            if recorded is not None:
                return Done(flags, recorded["output"] or "null", None)
        [managed] = await _apply(connection, [_standing(found, run_id)], verb)
        output = output_of(verb, managed)
        if write is not None:
            await connection.fetchrow(
                sql("manage_step"),
                claim.run_id,
                write.index,
                write.name,
                claim.fence,
                write.seq,
                write.input or "",
                output,
            )
        return Done(flags, output, managed)


def output_of(verb: Verb, managed: Managed) -> str:
    """What a step records of it, as JSON text: the id where there is a handle, the status of a cancel."""
    match verb:
        case Resume() | Rewind() | Fork():
            return json.dumps(managed.id)
        case Cancel():
            return json.dumps(int(managed.status))
        case Delete() | Delay() | SetAttributes():
            return "null"
    assert_never(verb)


async def _lock(connection: asyncpg.Connection[Any], ids: Sequence[str]) -> dict[str, asyncpg.Record]:
    rows = await connection.fetch(sql("manage_lock"), sorted(set(ids)))
    return {row["id"]: row for row in rows}


def _flags(row: asyncpg.Record | None, claim: Claim) -> OwnedFlags:
    if row is None or row["deleted"]:
        raise CallerLost(NonExistentWorkflow(f"run {claim.run_id} was deleted while it ran"))
    if (row["status"], row["worker_id"], row["fence"]) != (RunStatus.RUNNING, claim.worker_id, claim.fence):
        raise CallerLost(WorkflowConflict(f"run {claim.run_id} was taken over while this execution of it ran"))
    mode = row["cancel_mode"]
    return OwnedFlags(None if mode is None else CancelMode(mode), row["suspended"], row["wake_seq"])


def _standing(found: dict[str, asyncpg.Record], run_id: str) -> Standing:
    row = found.get(run_id)
    if row is None or row["deleted"]:
        raise NonExistentWorkflow(f"there is no run {run_id}")
    return Standing(
        id=row["id"],
        namespace=row["namespace"],
        pool=row["pool"],
        name=row["name"],
        status=RunStatus(row["status"]),
        cancelled=row["cancel_mode"] is not None,
        suspended=row["suspended"],
        parent_id=row["parent_id"],
        started=row["started"],
        reopen=row["reopen"],
        undone=row["undone"],
    )


async def _apply(connection: asyncpg.Connection[Any], found: Sequence[Standing], verb: Verb) -> list[Managed]:
    match verb:
        case Cancel(reason, mode, cascade):
            now = await runs.cancel_all(connection, [run.id for run in found], mode, reason, cascade=cascade)
            return [
                _managed(run, now[run.id], ready=now[run.id] is RunStatus.ENQUEUED, ended=not run.status.finished)
                for run in found
            ]
        case Resume():
            return await _resume(connection, found)
        case Delete():
            return await _delete(connection, found)
        case Rewind(to):
            return [await _rewind(connection, run, to) for run in found]
        case Fork():
            return [await _fork(connection, run, verb) for run in found]
        case Delay(seconds):
            return [await _delay(connection, run, seconds) for run in found]
        case SetAttributes():
            return [await _set_attributes(connection, run, verb) for run in found]
    assert_never(verb)


async def _resume(connection: asyncpg.Connection[Any], found: Sequence[Standing]) -> list[Managed]:
    taken = {run.id for run in found if resumes(run)}
    if taken:
        again = [run.id for run in found if run.id in taken and reopens(run)]
        if again:
            await connection.fetch(sql("sweep_retry_steps"), again)
        undone = [run.id for run in found if run.id in taken and run.undone]
        if undone:
            await connection.fetch(sql("undo_reopen"), undone)
        await connection.fetch(sql("manage_resume"), sorted(taken))
    return [
        _managed(run, RunStatus.ENQUEUED, ready=True) if run.id in taken else _managed(run, run.status) for run in found
    ]


async def _delete(connection: asyncpg.Connection[Any], found: Sequence[Standing]) -> list[Managed]:
    for run in found:
        if run.name is not None:
            raise InvalidArgument(f"run {run.id} belongs to the resource {run.namespace}/{run.name}: delete that")
    await runs.remove(connection, [run.id for run in found], DELETED)
    return [
        _managed(run, run.status if run.status in _STAYS else RunStatus.CANCELLED, ended=run.status not in _STAYS)
        for run in found
    ]


_STAYS = frozenset({RunStatus.RUNNING, *(status for status in RunStatus if status.finished)})
"""Statuses that a delete leaves: a run that has an owner is ended by it."""


async def _rewind(connection: asyncpg.Connection[Any], run: Standing, to: Cut) -> Managed:
    if not run.status.finished:
        raise WorkflowNotRewindable(f"run {run.id} has not ended, it is {run.status.name}: cancel it first, or fork it")
    cut = await _cut(connection, run.id, to)
    undone = await undone_of(connection, run.id) if run.undone else None
    if undone is not None and keeps_undone(cut, undone):
        raise WorkflowNotRewindable(f"run {run.id} cannot go on from {cut}: {_WAS_UNDONE.format(undone.first)}")
    await connection.fetchrow(sql("manage_rewind_streams"), run.id, cut)
    await connection.fetchrow(sql("manage_rewind"), run.id, cut)
    return _managed(run, RunStatus.ENQUEUED, ready=True)


async def _fork(connection: asyncpg.Connection[Any], run: Standing, verb: Fork) -> Managed:
    cut = await _cut(connection, run.id, verb.at)
    undone = await undone_of(connection, run.id) if run.undone else None
    if undone is not None and cut > undone.first:
        raise InvalidArgument(f"run {run.id} cannot be forked at {cut}: {_WAS_UNDONE.format(undone.first)}")
    started = await _children(connection, run.id, cut, verb)
    made = await connection.fetchrow(
        sql("manage_fork"),
        run.id,
        verb.new_id,
        cut,
        [json.dumps(old) for old, _ in verb.children],
        [json.dumps(new) for _, new in verb.children],
        started,
    )
    if made is None:
        there = await listing.one(connection, OneRun(verb.new_id, payloads=False))
        if there is None or (there.forked_from, there.forked_at) != (run.id, cut):
            raise ConflictingWorkflow(f"{verb.new_id} is the id of another run; {run.id} was not forked")
        return Managed(there.id, there.status, there.namespace, there.pool)
    await connection.fetchrow(sql("manage_fork_streams"), run.id, verb.new_id, cut)
    return Managed(verb.new_id, RunStatus.ENQUEUED, made["namespace"], made["pool"], ready=True)


async def _children(connection: asyncpg.Connection[Any], run_id: str, cut: int, verb: Fork) -> list[str]:
    """Recorded inputs of the waits for the children that are replaced. Each must be one whose start is kept."""
    if not verb.children:
        return []
    old = [each for each, _ in verb.children]
    rows = await connection.fetch(sql("manage_children"), run_id, cut, [json.dumps(each) for each in old])
    kept = {json.loads(row["output"]) for row in rows}
    missing = [each for each in old if each not in kept]
    if missing:
        raise InvalidArgument(f"{missing[0]} is no child that run {run_id} has started before index {cut}")
    return [json.dumps([each]) for each in old]


_WAS_UNDONE = "what its step at index {0} and later ones had done was undone; an index up to {0} can be"


async def undone_of(connection: asyncpg.Connection[Any], run_id: str) -> Undone | None:
    """What was undone of a run, None if nothing was. Under its lock."""
    row = await connection.fetchrow(sql("undo_first"), run_id)
    return None if row is None else Undone(row["undo_at"], row["first"])


async def _cut(connection: asyncpg.Connection[Any], run_id: str, cut: Cut) -> int:
    row = await connection.fetchrow(sql("manage_cut"), run_id, cut.name)
    assert row is not None
    return index_of(cut, Recorded(row["last"], row["failed"], row["named"]), run_id)


async def _delay(connection: asyncpg.Connection[Any], run: Standing, seconds: float) -> Managed:
    if not may_be_delayed(run):
        raise InvalidArgument(f"run {run.id} is {run.status.name}: only a run that has not begun can be delayed")
    await connection.fetchrow(sql("manage_delay"), run.id, seconds)
    return _managed(run, RunStatus.DELAYED)


async def _set_attributes(connection: asyncpg.Connection[Any], run: Standing, verb: SetAttributes) -> Managed:
    size = await connection.fetchval(sql("manage_attributes"), run.id, verb.changed, list(verb.removed))
    if size is not None and size > ATTRIBUTES_MAX_BYTES:
        raise InvalidArgument(f"the attributes of run {run.id} would be {size} bytes, at most {ATTRIBUTES_MAX_BYTES}")
    return _managed(run, run.status)


def _managed(run: Standing, status: RunStatus, *, ready: bool = False, ended: bool = False) -> Managed:
    over = ended and status.finished
    return Managed(run.id, status, run.namespace, run.pool, ready=ready, ended=over, parent_id=run.parent_id)
