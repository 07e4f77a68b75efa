"""Runs as code outside of workers asks for them: bulk start, how the awaited ones stand, messages, events.

Called by the client. A start has no fence and needs none: a run's id is taken once, by whoever is first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from perdure.model.rows import ClaimedRun, workflow_requirement
from perdure.model.serialization import NUMBERS, Serialization
from perdure.model.states import RunStatus
from perdure.store.pool import transaction
from perdure.store.statements import sql

FIRST_FENCE = 1
"""Fence of a run's first owner."""


@dataclass(frozen=True, slots=True)
class RunStart:
    """One run to create. `input` is what is stored, `timeout` and `delay` are seconds, an empty partition is none.

    `attributes` is JSON text. `token`: of a start that asks whether a run was there, to know its own. None: as the
    worker's settings say for `max_run_attempts`, as registered or configured for `serialization`.
    """

    id: str
    workflow: str
    input: str
    pool: str
    queue: str
    priority: int
    timeout: float | None = None
    delay: float | None = None
    partition_key: str = ""
    deduplication_id: str | None = None
    attributes: str | None = None
    token: int | None = None
    max_run_attempts: int | None = None
    serialization: Serialization | None = None


@dataclass(frozen=True, slots=True)
class ExistingRun:
    """The run that has an id already; `input` is as stored. `token`: of the start that made it or ran it again."""

    id: str
    namespace: str
    workflow: str
    input: str
    status: RunStatus = RunStatus.ENQUEUED
    token: int | None = None
    parent_id: str | None = None
    parent_step: int | None = None
    deleted: bool = False
    """Whether it is about to be removed: nobody can be given it, and its id is in use until then."""

    @property
    def failed(self) -> bool:
        """Whether it may be run again."""
        return self.status in {RunStatus.FAILED, RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED}


@dataclass(frozen=True, slots=True)
class Holder:
    """The run that holds a deduplication id."""

    id: str
    workflow: str


@dataclass(frozen=True, slots=True)
class RunSight:
    """How a run stands. `output` and `error` are JSON texts of a run that has ended, left out when they are larger
    than was asked for: then it is not `complete`. `armed`: its end will be told by a notification."""

    id: str
    workflow: str
    status: RunStatus
    armed: bool
    complete: bool
    output: str | None
    error: str | None
    cancel_reason: str | None
    recoveries: int


async def start(
    connection: asyncpg.Connection[Any], namespace: str, runs: Sequence[RunStart], *, awaited: bool
) -> set[str]:
    """Create the runs whose ids, and deduplication ids, are free, in one statement; ids of the created. Durable on
    return unless the connection is in a transaction.

    `awaited`: their ends will be told by notifications. Of two with one id in the list, either may be created: do not
    send such.
    """
    rows = await connection.fetch(
        sql("client_start"),
        namespace,
        awaited,
        [each.id for each in runs],
        [each.workflow for each in runs],
        [workflow_requirement(each.workflow) for each in runs],
        [each.pool for each in runs],
        [each.queue for each in runs],
        [each.priority for each in runs],
        [each.timeout for each in runs],
        [each.delay for each in runs],
        [each.partition_key for each in runs],
        [each.input for each in runs],
        [each.deduplication_id for each in runs],
        [each.attributes for each in runs],
        [each.token for each in runs],
        [each.max_run_attempts for each in runs],
        [NUMBERS[each.serialization] for each in runs],
    )
    return {row["id"] for row in rows}


async def start_here(
    connection: asyncpg.Connection[Any], worker_id: str, version: str, namespace: str, run: RunStart
) -> ClaimedRun | None:
    """Create the run as one that this worker, of this version, has taken; None when an id is taken or the worker takes
    no runs any more. Durable on return. Not for a run with a delay. Its end is not told by a notification.
    """
    assert run.delay is None, "a delayed run is nobody's"
    made = await connection.fetchval(
        sql("client_start_here"),
        worker_id,
        version,
        run.id,
        namespace,
        run.workflow,
        workflow_requirement(run.workflow),
        run.pool,
        run.queue,
        run.priority,
        run.timeout,
        run.partition_key,
        run.input,
        run.deduplication_id,
        run.attributes,
        run.token,
        run.max_run_attempts,
        NUMBERS[run.serialization],
    )
    return None if made is None else first_claim(run, namespace)


def first_claim(run: RunStart, namespace: str) -> ClaimedRun:
    """What a claim of a run that was just created says."""
    return ClaimedRun(
        id=run.id,
        fence=FIRST_FENCE,
        namespace=namespace,
        name=None,
        workflow=run.workflow,
        input=run.input,
        definition=None,
        run_attempts=0,
        max_run_attempts=run.max_run_attempts,
        recoveries=0,
        wake_seq=0,
        cancel_mode=None,
        suspended=False,
        deadline_in=run.timeout,
        serialization=run.serialization,
    )


async def existing(connection: asyncpg.Connection[Any], ids: Iterable[str]) -> dict[str, ExistingRun]:
    """The runs that have these ids. Reads their inputs: ask for a bounded number."""
    rows = await connection.fetch(sql("client_existing"), list(ids))
    return {
        row["id"]: ExistingRun(
            id=row["id"],
            namespace=row["namespace"],
            workflow=row["workflow"],
            input=row["input"],
            status=RunStatus(row["status"]),
            token=row["start_token"],
            parent_id=row["parent_id"],
            parent_step=row["parent_step"],
            deleted=row["deleted"],
        )
        for row in rows
    }


async def holders(
    connection: asyncpg.Connection[Any], namespace: str, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Holder]:
    """Which runs hold these deduplication ids, each of a queue: (queue, deduplication id)."""
    rows = await connection.fetch(
        sql("client_holders"), namespace, [queue for queue, _ in wanted], [held for _, held in wanted]
    )
    return {wanted[row["n"] - 1]: Holder(row["id"], row["workflow"]) for row in rows}


async def holder_for_child(
    connection: asyncpg.Connection[Any], parent_id: str, queue: str | None, deduplication_id: str
) -> Holder | None:
    """Which run holds the deduplication id in a queue, that of the parent unless another is named."""
    row = await connection.fetchrow(sql("call_holder"), parent_id, queue, deduplication_id)
    return None if row is None else Holder(row["id"], row["workflow"])


async def rerun(connection: asyncpg.Connection[Any], run_id: str, token: int) -> tuple[str, str] | None:
    """Make a run that has failed claimable again: its finished steps are kept, those that ended it run again. Of one
    whose steps were undone, all are done again from the first of these on.

    Namespace and pool of the run, durable on return; None when it has not failed or this very start, which `token`
    stands for, has run it again before.
    """
    async with transaction(connection):
        if await connection.fetchval(sql("rerun_lock"), run_id, token) is None:
            return None
        undone = await connection.fetchrow(sql("undo_first"), run_id)
        if undone is not None:
            # What is not done any more is done again.
            await connection.fetchrow(sql("manage_rewind_streams"), run_id, undone["first"])
            await connection.fetchrow(sql("manage_rewind"), run_id, undone["first"])
        await connection.execute(sql("sweep_retry_steps"), [run_id])
        row = await connection.fetchrow(sql("rerun"), run_id, token)
    return None if row is None else (row["namespace"], row["pool"])


async def watch(
    connection: asyncpg.Connection[Any], ids: Sequence[str], arm: Sequence[str], *, most_bytes: int
) -> dict[str, RunSight]:
    """How the runs stand; those that do not exist are left out. For runs in `arm`, which are among `ids`, ask to be
    told of the end.

    Outcomes of more than `most_bytes` are left out.
    """
    rows = await connection.fetch(sql("client_watch"), list(ids), list(arm), most_bytes)
    return {
        row["id"]: RunSight(
            id=row["id"],
            workflow=row["workflow"],
            status=RunStatus(row["status"]),
            armed=row["armed"],
            complete=row["complete"],
            output=row["output"],
            error=row["error"],
            cancel_reason=row["cancel_reason"],
            recoveries=row["recoveries"],
        )
        for row in rows
    }


async def send(connection: asyncpg.Connection[Any], run_id: str, topic: str, key: str, value: str) -> bool:
    """Put a message, JSON text, into the inbox of a run; whether there is such a run. Durable on return.

    A key that the receiver has is no second message. The receiver still has to be woken (`wakes.announce`).
    """
    return await connection.fetchval(sql("client_send"), run_id, topic, key, value) is not None
