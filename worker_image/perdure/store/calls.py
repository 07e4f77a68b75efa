"""The durable calls of runs that have an effect outside their own steps, and what such calls look at.

Called by the worker's journal. Each kind is one statement for the calls of many runs: ownership is tested and locked
once and all else hangs on it, as in `journal`. What was sent once may be sent again unchanged for ever; the answer to a
repetition is read from the steps, since the first copy may have been the one that counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

import asyncpg

from perdure.model.calls import (
    AwaitEvent,
    AwaitRuns,
    CallAnswer,
    EventValue,
    Outcomes,
    OwnCall,
    Receive,
    RunOutcome,
    Send,
    SetEvent,
    Start,
    Statuses,
    is_plain,
)
from perdure.model.rows import OwnedFlags
from perdure.model.serialization import NUMBERS
from perdure.model.start import NO_TIMEOUT, attributes_text, seconds_of
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.model.streams import AwaitStream, CloseStream, WriteStream
from perdure.store.statements import sql

MAX_CALLS = 100
"""Calls in one statement: its parts are joined row by row, and it holds all its locks until it ends."""


@dataclass(frozen=True, slots=True)
class RunCalls:
    """Calls of one run under its `fence`, in the order of their numbers. `again`: they may have been sent before."""

    run_id: str
    fence: int
    calls: tuple[OwnCall, ...]
    again: bool = False


Item = tuple[RunCalls, OwnCall]
Key = tuple[str, int]


async def execute(
    connection: asyncpg.Connection[Any], worker_id: str, batch: Sequence[RunCalls]
) -> dict[str, list[CallAnswer]]:
    """Carry out the calls of runs (each run once): for each run that is still this claim's, an answer to each call.

    Durable on return. Runs that are not in the answer have another owner, and nothing of theirs was done.
    """
    waiting = {each.run_id: list(each.calls) for each in sorted(batch, key=lambda each: each.run_id)}
    runs = {each.run_id: each for each in batch}
    answers: dict[Key, CallAnswer] = {}
    while any(waiting.values()):
        group = _next_group(waiting, runs)
        owned, done = await _send(connection, worker_id, group)
        for run, call in group:
            flags = owned.get((run.run_id, run.fence))
            if flags is None:
                waiting[run.run_id] = []
                runs.pop(run.run_id, None)
                continue
            found = done.get((run.run_id, call.step.seq))
            if found is None:
                # Refused by a cancel, which a plain one is not, or an earlier copy came through: nobody knows how many
                # wakes that one had seen.
                found = CallAnswer(replace(flags, wake_seq=0), done=is_plain(call))
            answers[run.run_id, call.step.seq] = found
    await _read_back(connection, [each for each in runs.values() if each.again], answers)
    return {run_id: [answers[run_id, call.step.seq] for call in run.calls] for run_id, run in runs.items()}


async def look_at_runs(
    connection: asyncpg.Connection[Any], run_id: str, others: Sequence[str], *, ended: bool = False
) -> Outcomes:
    """How other runs stand, or only those that have `ended`, and the count of wakes of `run_id`, which asks.

    Reads the outputs of those that have ended: ask for a bounded number.
    """
    rows = await connection.fetch(sql("call_runs"), run_id, list(others), ended)
    found = {
        row["id"]: RunOutcome(
            RunStatus(row["status"]),
            row["output"],
            row["error"],
            row["cancel_reason"],
            row["workflow"],
            row["own"],
            row["deleted"],
        )
        for row in rows
        if row["status"] is not None
    }
    return Outcomes(found, next((row["wake_seq"] for row in rows if row["status"] is None), 0))


async def statuses_of(connection: asyncpg.Connection[Any], run_id: str, others: Sequence[str]) -> Statuses:
    """How other runs stand, in one question, and the count of wakes of `run_id`, which asks."""
    rows = await connection.fetch(sql("call_statuses"), run_id, list(others))
    return Statuses(
        {row["id"]: RunStatus(row["status"]) for row in rows if row["status"] is not None},
        frozenset(row["id"] for row in rows if row["own"]),
        next((row["wake_seq"] for row in rows if row["status"] is None), 0),
    )


async def ask_for_news(connection: asyncpg.Connection[Any], runs: Sequence[str]) -> None:
    """Have the workers that end these runs tell at once whoever waits for it (`AwaitRuns`, which comes first). Those
    that somebody holds just now are left to the sweeps."""
    await connection.fetch(sql("call_await_news"), list(runs))


async def look_at_event(connection: asyncpg.Connection[Any], run_id: str, setter: str, name: str) -> EventValue:
    """The value of an event of the run `setter`, and the count of wakes of `run_id`, which asks."""
    row = await connection.fetchrow(sql("call_event"), run_id, setter, name)
    return EventValue(None, 0) if row is None else EventValue(row["value"], row["wake_seq"])


def _next_group(waiting: dict[str, list[OwnCall]], runs: dict[str, RunCalls]) -> list[Item]:
    """Calls of one kind for one statement: of each run those at the front, since the numbers of its calls must rise."""
    kind: type[OwnCall] | None = None
    group: list[Item] = []
    for run_id, calls in waiting.items():
        while calls and len(group) < MAX_CALLS and (kind is None or type(calls[0]) is kind):
            kind = type(calls[0])
            group.append((runs[run_id], calls.pop(0)))
            if kind is Receive:
                break
    return group


async def _send(
    connection: asyncpg.Connection[Any], worker_id: str, group: Sequence[Item]
) -> tuple[dict[Key, OwnedFlags], dict[Key, CallAnswer]]:
    """Flags of each (run, fence) found, answer of each (run, seq) done or tried."""
    name, columns = _statement([call for _, call in group])
    rows = await connection.fetch(
        sql(name),
        sorted({run.run_id for run, _ in group}),
        worker_id,
        [run.run_id for run, _ in group],
        [run.fence for run, _ in group],
        [call.step.index for _, call in group],
        [call.step.seq for _, call in group],
        [call.step.input or "" for _, call in group],
        [call.step.output for _, call in group],
        *columns,
    )
    owned = {
        (row["id"], row["fence"]): OwnedFlags(
            cancel_mode=None if row["cancel_mode"] is None else CancelMode(row["cancel_mode"]),
            suspended=row["suspended"],
            wake_seq=row["wake_seq"],
        )
        for row in rows
        if row["seq"] is None
    }
    done = {
        (row["id"], row["seq"]): CallAnswer(
            owned[row["id"], row["fence"]], row["done"], row["output"] if row["done"] else None
        )
        for row in rows
        if row["seq"] is not None
    }
    return owned, done


async def _read_back(
    connection: asyncpg.Connection[Any], runs: Sequence[RunCalls], answers: dict[Key, CallAnswer]
) -> None:
    """Of calls that may have been sent before: the recorded outcome is the answer."""
    doubtful = [(run, call) for run in runs for call in run.calls]
    if not doubtful:
        return
    rows = await connection.fetch(
        sql("call_outcomes"),
        [run.run_id for run, _ in doubtful],
        [run.fence for run, _ in doubtful],
        [call.step.index for _, call in doubtful],
    )
    for row in rows:
        answer = answers.get((row["id"], row["seq"]))
        if answer is not None and row["status"] == StepStatus.SUCCEEDED:
            answers[row["id"], row["seq"]] = replace(answer, done=True, output=row["output"])


def _statement(calls: Sequence[Any]) -> tuple[str, tuple[list[Any], ...]]:
    """Name and further columns of the statement for calls of one kind."""
    first: OwnCall = calls[0]
    match first:
        case Start():
            return "call_start", _start_columns(calls)
        case Send():
            return "call_send", (
                [call.to for call in calls],
                [call.topic for call in calls],
                [call.key for call in calls],
                [call.value for call in calls],
            )
        case Receive():
            return "call_receive", (
                [call.topic for call in calls],
                [call.step.wake_in for call in calls],
                [str(call.otherwise) for call in calls],
            )
        case SetEvent():
            return "call_set_event", ([call.event for call in calls], [call.value for call in calls])
        case AwaitEvent():
            return "call_await_event", (
                [call.run_id for call in calls],
                [call.event for call in calls],
                [call.step.wake_in for call in calls],
            )
        case AwaitRuns():
            flat = [(place, run) for place, call in enumerate(calls, 1) for run in call.runs]
            return "call_await_runs", ([place for place, _ in flat], [run for _, run in flat])
        case WriteStream():
            return "call_write_stream", (
                [call.key for call in calls],
                [call.value for call in calls],
                [call.plain for call in calls],
            )
        case CloseStream():
            return "call_close_stream", ([call.key for call in calls], [call.plain for call in calls])
        case AwaitStream():
            return "call_await_stream", (
                [call.run_id for call in calls],
                [call.key for call in calls],
                [call.offset for call in calls],
                [call.step.wake_in for call in calls],
            )
    assert_never(first)


def _start_columns(calls: Sequence[Start]) -> tuple[list[Any], ...]:
    options = [call.options for call in calls]
    return (
        [call.id for call in calls],
        [call.workflow for call in calls],
        [call.requires for call in calls],
        [call.input for call in calls],
        [each.pool for each in options],
        [each.queue for each in options],
        [each.priority for each in options],
        [seconds_of(each.timeout) for each in options],
        [seconds_of(each.delay) for each in options],
        [each.partition_key for each in options],
        [each.timeout is NO_TIMEOUT for each in options],
        [each.deduplication_id for each in options],
        [None if each.attributes is None else attributes_text(each.attributes) for each in options],
        [call.max_run_attempts for call in calls],
        [NUMBERS[each.choice] for each in options],
    )
