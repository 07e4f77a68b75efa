"""Every way in which a claim writes, and why the other statements that write need no claim.

A statement that writes and is in neither list fails the tests: whoever adds one says which it is.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from re import MULTILINE, search, sub
from typing import Any

from perdure.model.calls import AwaitEvent, AwaitRuns, Otherwise, OwnCall, PlainSend, Receive, Send, SetEvent, Start
from perdure.model.management import SetAttributes
from perdure.model.outcome import Cancelled, Ending, ErrorRecord, Failed, Mismatch, Parked, Released, Succeeded
from perdure.model.rows import ClaimedRun, StepWrite, WaitingFor
from perdure.model.start import StartOptions
from perdure.model.states import StepStatus
from perdure.model.streams import AwaitStream, CloseStream, WriteStream
from perdure.store import calls, plain, statements, transaction, undo, workers
from perdure.store.calls import RunCalls
from perdure.store.journal import DEFAULT_BACKOFF, FEW_STEPS, RunWrites, alone_of, alone_statement, statement
from perdure.store.management import CallerLost, manage_for
from perdure.store.transaction import Claim

from tests.store.builders import Connection, failure, finish, start, write

FOLDER = Path(statements.__file__).parent / "sql"
ERROR = ErrorRecord("E", "m")
LATE = 9
"""Number of these writes: higher than what the tests write before."""

Sender = Callable[[Connection, ClaimedRun], Coroutine[Any, Any, object]]


@dataclass(frozen=True)
class Fenced:
    """`send` as worker `w1`; the answer is falsy, or not `owned`, when the run is not this claim's. `before` is what
    the run has written by then."""

    statement: str
    send: Sender
    before: Sender | None = None


def journal(*steps: StepWrite, ending: Ending | None = None, before: Sender | None = None) -> Fenced:
    writes = RunWrites("", 0, steps, ending)
    alone = alone_of(writes)
    name = statement("", [writes], DEFAULT_BACKOFF)[0] if alone is None else alone_statement("", writes, alone)[0]
    return Fenced(name, lambda conn, run: write(conn, run, *steps, ending=ending), before)


def call(statement: str, make: Callable[[ClaimedRun, StepWrite], OwnCall], before: Sender | None = None) -> Fenced:
    async def send(conn: Connection, run: ClaimedRun) -> object:
        made = make(run, StepWrite(0, LATE, "x", StepStatus.SUCCEEDED, "[]", '"done"'))
        return await calls.execute(conn, "w1", [RunCalls(run.id, run.fence, (made,))])

    return Fenced(statement, send, before)


async def running(conn: Connection, run: ClaimedRun) -> object:
    return await write(conn, run, start())


async def message(conn: Connection, run: ClaimedRun) -> object:
    return await conn.execute(
        "INSERT INTO perdure.messages (workflow_id, topic, key, value) VALUES ($1, 't', $1, '1')", run.id
    )


async def finish_in_transaction(conn: Connection, run: ClaimedRun) -> object:
    async with conn.transaction():
        await transaction.begin(conn, "mark")
        return (await transaction.finish(conn, Claim(run.id, "w1", run.fence), finish(seq=LATE), "mark")).flags


async def change_attributes(conn: Connection, run: ClaimedRun) -> object:
    """What is done with another run is done with this one, so that there is one row to look at."""
    step = StepWrite(0, LATE, "perdure.set_attributes", StepStatus.SUCCEEDED, "[]")
    try:
        done = await manage_for(conn, Claim(run.id, "w1", run.fence), run.id, SetAttributes('{"a": 1}'), step)
    except CallerLost:
        return None
    return done.managed


async def to_be_undone(conn: Connection, run: ClaimedRun) -> object:
    await undo.promise(conn, Claim(run.id, "w1", run.fence), 0, "back", "[null]")
    await write(conn, run, finish(seq=1))
    return await conn.execute("UPDATE perdure.workflows SET undo = 2")


FENCED: dict[str, Fenced] = {
    "start": journal(start(seq=LATE)),
    "fresh start": journal(replace(start(seq=LATE), fresh=True)),
    "many fresh starts": journal(*(start(index, LATE + index, fresh=True) for index in range(FEW_STEPS + 1))),
    "start of another attempt": journal(start(seq=LATE), before=running),
    "finish": journal(finish(seq=LATE)),
    "finish after its start": journal(finish(seq=LATE), before=running),
    "failure": journal(failure(seq=LATE), before=running),
    "finish and next start": journal(finish(seq=LATE), start(1, LATE + 1), before=running),
    "finish and next start of a run alone": journal(
        finish(seq=LATE, input=None), start(1, LATE + 1, fresh=True), before=running
    ),
    "succeeded": journal(finish(7, LATE), ending=Succeeded("1")),
    "succeeded alone": journal(finish(seq=LATE, input=None), ending=Succeeded("1"), before=running),
    "succeeded without steps": journal(ending=Succeeded("1")),
    "failed": journal(finish(7, LATE), ending=Failed(ERROR)),
    "cancelled": journal(finish(7, LATE), ending=Cancelled("why")),
    "mismatch": journal(finish(7, LATE), ending=Mismatch(ERROR)),
    "parked": journal(finish(7, LATE), ending=Parked(WaitingFor("x"), 60.0)),
    "released": journal(finish(7, LATE), ending=Released("drain")),
    "give back": Fenced("worker_give_back", lambda conn, run: workers.give_back(conn, "w1", [(run.id, run.fence)])),
    "transaction": Fenced("transaction_step", finish_in_transaction, running),
    "call about another run": Fenced("manage_step", change_attributes),
    "child": call("call_start", lambda run, step: Start(step, f"{run.id}-0", "x", "workflow:x", "[]", StartOptions())),
    "message": call("call_send", lambda run, step: Send(step, run.id, "t", f"{run.id}/0", '"hi"')),
    "receive": call("call_receive", lambda run, step: Receive(step, "t", Otherwise.NOTHING), message),
    "event": call("call_set_event", lambda run, step: SetEvent(step, "e", "1")),
    "wait for an event": call("call_await_event", lambda run, step: AwaitEvent(step, "setter", "e")),
    "message of a step": Fenced(
        "plain_send",
        lambda conn, run: plain.send(conn, Claim(run.id, "w1", run.fence), PlainSend(run.id, "t", "k", "1")),
    ),
    "promise to undo": Fenced(
        "undo_promise", lambda conn, run: undo.promise(conn, Claim(run.id, "w1", run.fence), 0, "back", "[null]")
    ),
    "begin to undo": Fenced(
        "undo_begin", lambda conn, run: undo.begin(conn, Claim(run.id, "w1", run.fence), LATE), to_be_undone
    ),
    "wait for runs": call("call_await_runs", lambda run, step: AwaitRuns(step, ("other", "another"))),
    "stream": call("call_write_stream", lambda run, step: WriteStream(step, "s", "1")),
    "stream inside a step": call("call_write_stream", lambda run, step: WriteStream(step, "s", "1", True), running),
    "end of a stream": call("call_close_stream", lambda run, step: CloseStream(step, "s")),
    "wait for a stream": call("call_await_stream", lambda run, step: AwaitStream(step, "writer", "s", 0)),
}

UNFENCED: dict[str, set[str]] = {
    "Takes runs that nobody owns, or from workers that are gone, and raises the fence": {
        "claim",
        "claim_limited",
        "rerun",
        "sweep_retry",
        "sweep_retry_steps",
        "sweep_wake",
        "wake_runs",
        "worker_move",
    },
    "A request from outside, which counts whoever owns the run; what nobody owns it changes itself, with the fence": {
        "run_cancel",
        "run_gone",
        "run_upsert",
        "sweep_cascade_children",
        "sweep_overdue",
    },
    "The same, in a transaction that has locked the run and decides on what it found; it raises the fence": {
        "manage_attributes",
        "manage_delay",
        "manage_fork",
        "manage_fork_streams",
        "manage_resume",
        "manage_rewind",
        "manage_rewind_streams",
        "undo_reopen",
    },
    "A debounced run that nobody has had yet, and the key that it is found by": {
        "debounce_done",
        "debounce_lock",
        "debounce_postpone",
        "debounce_sweep",
    },
    "Says to which version a run is bound that nobody runs: no owner changes, so the fence stays": {"versions_adopt"},
    "Comes from outside: makes runs, puts messages into inboxes": {
        "client_start",
        "client_start_here",
        "client_send",
        "schedule_start",
        "signal_send",
    },
    "A note beside the run, which is no part of what it has done": {
        "backlog_set_waiting",  # it has a fence of its own kind: see test_a_reason_is_not_written_under_another_fence
        "call_await_news",
        "client_watch",
        "retention_mark",
        "status_mark_reported",
        "status_postpone",
        "sweep_cascade_done",
        "wake_child_told",
        "wake_event_forget",
        "wake_event_told",
        "wake_message_told",
        "wake_run_forget",
        "wake_stream_forget",
        "wake_stream_told",
    },
    "Removes what has ended": {"run_purge", "run_purge_calls", "run_purge_steps"},
    "Its own rows, under its own rules": {
        "idempotency_claim",
        "idempotency_finish",
        "idempotency_mark",
        "idempotency_release",
        "idempotency_renew",
        "idempotency_sweep",
        "leader_claim",
        "leader_release",
        "migration_record",
        "schedule_apply",
        "schedule_decided",
        "schedule_delete",
        "schedule_pause",
        "schedule_prune",
        "queue_apply",
        "queue_create",
        "queue_delete",
        "queue_pause",
        "versions_forget",
        "versions_register",
        "worker_beat",
        "worker_drain",
        "worker_forget",
        "worker_mark_dead",
        "worker_mark_expired",
        "worker_register",
        "worker_retire",
        "worker_stop",
    },
}


def writing() -> set[str]:
    """The shipped statements that write."""
    found: set[str] = set()
    for path in FOLDER.glob("*.sql"):
        text = sub(r"--.*$", "", path.read_text(), flags=MULTILINE)
        if search(r"\bINSERT INTO\b|\bDELETE FROM\b|^\s*UPDATE\b|\(\s*UPDATE\b", text, MULTILINE):
            found.add(path.stem)
    return found


TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'perdure' AND tablename <> 'migrations' ORDER BY 1"


async def empty(conn: Connection) -> None:
    """As after the migrations: cheaper than another database."""
    tables = await conn.fetch(TABLES)
    await conn.execute("; ".join(f"DELETE FROM perdure.{table}" for (table,) in tables))


async def contents(conn: Connection) -> dict[str, list[Any]]:
    """Every row of every table, as it is."""
    found = {}
    for (table,) in await conn.fetch(TABLES):
        rows = await conn.fetch(f"SELECT t::text FROM perdure.{table} t")
        found[str(table)] = sorted(row[0] for row in rows)
    return found
