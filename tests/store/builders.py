"""Rows as tests want them, made through the store itself; everything has a default."""

from typing import Any, TypeAlias

import asyncpg
from perdure.model.outcome import Ending
from perdure.model.rows import ClaimedRun, NewRun, StepWrite, WorkerRow
from perdure.model.states import StepStatus
from perdure.store import claims, journal, runs, workers
from perdure.store.journal import Ack, RunWrites

Connection: TypeAlias = "asyncpg.Connection[Any]"

LEASE = 60.0
MANIFEST = ("step:s", "workflow:x")


def worker_row(worker_id: str = "w1", **fields: Any) -> WorkerRow:
    values: dict[str, Any] = {
        "namespace": "ns",
        "pool": "default",
        "pod": f"pod-{worker_id}",
        "pod_uid": f"uid-{worker_id}",
        "version": "v1",
        "queues": ("default",),
        "manifest": MANIFEST,
        "slots": 4,
    }
    return WorkerRow(id=worker_id, **{**values, **fields})


async def add_worker(conn: Connection, worker_id: str = "w1", **fields: Any) -> str:
    await workers.register(conn, worker_row(worker_id, **fields), LEASE)
    return worker_id


def new_run(run_id: str = "r1", **fields: Any) -> NewRun:
    values: dict[str, Any] = {
        "namespace": "ns",
        "name": f"name-{run_id}",
        "workflow": "x",
        "requires": ("workflow:x",),
        "input": "{}",
        "max_run_attempts": 1,
    }
    return NewRun(id=run_id, **{**values, **fields})


async def add_run(conn: Connection, run_id: str = "r1", **fields: Any) -> str:
    await runs.upsert(conn, new_run(run_id, **fields))
    return run_id


async def claim(conn: Connection, worker_id: str = "w1", **fields: Any) -> list[ClaimedRun]:
    values: dict[str, Any] = {
        "namespace": "ns",
        "pool": "default",
        "queue": "default",
        "manifest": MANIFEST,
        "version": "v1",
        "limit": 10,
    }
    return await claims.claim(conn, worker_id=worker_id, **{**values, **fields})


async def claimed(conn: Connection, run_id: str = "r1", worker_id: str = "w1", **fields: Any) -> ClaimedRun:
    """A new run that a worker owns."""
    if not await conn.fetchval("SELECT count(*) FROM perdure.workers WHERE id = $1", worker_id):
        await add_worker(conn, worker_id)
    await add_run(conn, run_id, **fields)
    [run] = await claim(conn, worker_id, queue=fields.get("queue", "default"))
    assert run.id == run_id
    return run


def start(index: int = 0, seq: int = 1, **fields: Any) -> StepWrite:
    return StepWrite(index, seq, "s", StepStatus.RUNNING, "[]", **fields)


def finish(index: int = 0, seq: int = 2, output: str = '"ok"', input: str | None = "[]", **fields: Any) -> StepWrite:
    return StepWrite(index, seq, "s", StepStatus.SUCCEEDED, input, output, **fields)


def failure(index: int = 0, seq: int = 2, **fields: Any) -> StepWrite:
    error = '{"type": "ValueError", "message": "no"}'
    return StepWrite(index, seq, "s", StepStatus.FAILED, "[]", None, error, 1, **fields)


async def write(
    conn: Connection,
    run: ClaimedRun,
    *steps: StepWrite,
    ending: Ending | None = None,
    worker_id: str = "w1",
    wake_seq: int | None = None,
) -> Ack:
    """One run's writes through the journal."""
    seen = run.wake_seq if wake_seq is None else wake_seq
    return (await journal.commit(conn, worker_id, [RunWrites(run.id, run.fence, steps, ending, seen)]))[run.id]


async def row(conn: Connection, run_id: str = "r1") -> asyncpg.Record:
    found = await conn.fetchrow("SELECT * FROM perdure.workflows WHERE id = $1", run_id)
    assert found is not None
    return found


async def step_rows(conn: Connection, run_id: str = "r1") -> list[asyncpg.Record]:
    return await conn.fetch("SELECT * FROM perdure.workflow_steps WHERE workflow_id = $1 ORDER BY step_index", run_id)


async def everything(conn: Connection) -> list[Any]:
    """All rows of all tables, to assert that nothing was written."""
    return [
        await conn.fetch(f"SELECT * FROM perdure.{table} ORDER BY 1, 2")
        for table in ("workflows", "workflow_payloads", "workflow_steps")
    ]


async def let_time_pass(conn: Connection, column: str, seconds: float, run_id: str | None = None) -> None:
    """Move an instant of the runs into the past, instead of sleeping."""
    await conn.execute(
        f"UPDATE perdure.workflows SET {column} = {column} - make_interval(secs => $1) WHERE id = coalesce($2, id)",
        seconds,
        run_id,
    )


async def expire(conn: Connection, *worker_ids: str) -> None:
    """Their leases have run out; so short ones that the start of the server lies further back."""
    await conn.execute(
        "UPDATE perdure.workers SET beat_at = now() - interval '1 second', lease_until = now() - interval '1 second'"
        " WHERE id = ANY($1)",
        list(worker_ids),
    )
