"""Waking runs that wait for something that somebody else brings about: a message, the end of a run, an event.

Called by the worker that brought it about, just after and on another connection (never its own and foreign runs in one
statement: R15), and by every sweeper for what that worker did not come to. The order is fixed: the thing is committed,
the runs are woken, the thing is marked as told; so whatever dies in between, something is left that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from perdure.model.calls import child_key, event_key, message_key
from perdure.model.streams import stream_key
from perdure.store.statements import sql

TOLD_AFTER = 0.5
"""Seconds that a worker has to tell of what it brought about before the sweeps do it."""

PAGE = EVENT_PAGE = 200
"""Waiters woken in one statement: it holds their row locks for a few milliseconds."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that is there. `key` is unique for its receiver."""

    receiver: str
    topic: str
    key: str


@dataclass(frozen=True, slots=True)
class Child:
    """A run that has ended and was started by another."""

    id: str
    parent: str


@dataclass(frozen=True, slots=True)
class Event:
    """An event that was set, under this (fence, seq)."""

    run_id: str
    name: str
    fence: int
    seq: int


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream that was written to, or closed."""

    run_id: str
    key: str


@dataclass(frozen=True, slots=True)
class Woken:
    """A run that was told of something; `ready` when it waited for it and is claimable now."""

    id: str
    namespace: str
    pool: str
    wake_seq: int
    ready: bool


async def announce(
    connection: asyncpg.Connection[Any], messages: Sequence[Message], children: Sequence[Child]
) -> list[Woken]:
    """Wake the receivers and the parents, then mark all as told. May be repeated: a run woken twice looks twice."""
    pairs = [(each.receiver, message_key(each.topic)) for each in messages]
    pairs += [(each.parent, child_key(each.id)) for each in children]
    woken = await _wake(connection, pairs)
    if messages:
        keys = sorted({(each.receiver, each.key) for each in messages})
        await connection.fetch(sql("wake_message_told"), [run_id for run_id, _ in keys], [key for _, key in keys])
    if children:
        await connection.fetch(sql("wake_child_told"), sorted({each.id for each in children}))
    return woken


async def announce_event(connection: asyncpg.Connection[Any], event: Event) -> list[Woken]:
    """Wake all who wait for an event, then mark it as told."""
    woken: list[Woken] = []
    while True:
        rows = await connection.fetch(sql("wake_event_waits"), event.run_id, event.name, EVENT_PAGE)
        waiters = [row["workflow_id"] for row in rows]
        if waiters:
            key = event_key(event.run_id, event.name)
            woken += await _wake(connection, [(waiter, key) for waiter in waiters])
            await connection.fetch(sql("wake_event_forget"), event.run_id, event.name, waiters)
        if len(waiters) < EVENT_PAGE:
            break
    await connection.fetch(sql("wake_event_told"), event.run_id, event.name, event.fence, event.seq)
    return woken


async def announce_streams(connection: asyncpg.Connection[Any], streams: Sequence[Stream]) -> list[Woken]:
    """Wake all who wait for streams, then mark these as told of. May be repeated. Returns who was woken.

    How long each is, is looked up before its readers are: what is written after that look is told of by its writer.
    """
    pairs = sorted({(each.run_id, each.key) for each in streams})
    rows = await connection.fetch(sql("wake_streams"), [run for run, _ in pairs], [key for _, key in pairs])
    found = sorted((row["workflow_id"], row["key"], row["length"], row["closed"]) for row in rows)
    columns = [[stream[column] for stream in found] for column in range(4)]
    woken: list[Woken] = []
    while found:
        waits = await connection.fetch(sql("wake_stream_waits"), *columns, PAGE)
        if waits:
            pages = sorted(
                (*found[wait["n"] - 1][:2], wait["workflow_id"], *found[wait["n"] - 1][2:]) for wait in waits
            )
            woken += await _wake(connection, [(waiter, stream_key(run, key)) for run, key, waiter, *_ in pages])
            await connection.fetch(
                sql("wake_stream_forget"), *([each[column] for each in pages] for column in range(5))
            )
        if len(waits) < PAGE:
            await connection.fetch(sql("wake_stream_told"), *columns)
            break
    return woken


async def untold_streams(connection: asyncpg.Connection[Any], limit: int, after: float) -> list[Stream]:
    """Up to `limit` streams of whose values nobody has told for `after` seconds."""
    rows = await connection.fetch(sql("sweep_untold_streams"), limit, after)
    return [Stream(row["workflow_id"], row["key"]) for row in rows]


async def announce_ends(connection: asyncpg.Connection[Any], runs: Sequence[str]) -> list[Woken]:
    """Wake all runs that wait for the ends of these, which they have not started. May be repeated. A run that waits
    anew meanwhile stays one that waits: these may have been set going again."""
    woken: list[Woken] = []
    while True:
        waits = await connection.fetch(sql("wake_run_waits"), list(runs), PAGE)
        if not waits:
            return woken
        woken += await _wake(connection, [(each["workflow_id"], child_key(each["run_id"])) for each in waits])
        columns = [[each[name] for each in waits] for name in ("run_id", "workflow_id", "fence", "seq")]
        gone = await connection.fetch(sql("wake_run_forget"), *columns)
        if len(waits) < PAGE or not gone:
            return woken


async def announce_ended(
    connection: asyncpg.Connection[Any], behind: str, limit: int, after: float = TOLD_AFTER
) -> tuple[list[Woken], str]:
    """Wake runs whose awaited runs have ended and that nobody has told: looks at the next `limit` awaited runs behind
    the id `behind`. Also gives where the next look begins, empty for at the beginning."""
    rows = await connection.fetch(sql("sweep_run_waits"), behind, limit, after)
    ended = [row["run_id"] for row in rows if row["ended"]]
    woken = await announce_ends(connection, ended) if ended else []
    return woken, next((row["run_id"] for row in rows if row["place"] == limit), "")


async def announce_untold(connection: asyncpg.Connection[Any], limit: int, after: float = TOLD_AFTER) -> list[Woken]:
    """Wake runs for up to `limit` things of each kind of which their worker should have told and has not."""
    messages, children, events = await untold(connection, limit, after)
    woken = await announce(connection, messages, children)
    for event in events:
        woken += await announce_event(connection, event)
    woken += await announce_streams(connection, await untold_streams(connection, limit, after))
    return woken


async def untold(
    connection: asyncpg.Connection[Any], limit: int, after: float
) -> tuple[list[Message], list[Child], list[Event]]:
    """Up to `limit` of each that nobody has announced for `after` seconds."""
    messages = await connection.fetch(sql("sweep_unannounced"), limit, after)
    children = await connection.fetch(sql("sweep_untold"), limit, after)
    events = await connection.fetch(sql("sweep_unannounced_events"), limit, after)
    return (
        [Message(row["workflow_id"], row["topic"], row["key"]) for row in messages],
        [Child(row["id"], row["parent_id"]) for row in children],
        [Event(row["workflow_id"], row["name"], row["fence"], row["seq"]) for row in events],
    )


async def cascade(connection: asyncpg.Connection[Any], limit: int) -> int:
    """Pass cancels on to children, one level; how many were cancelled. Each level is a call of its own."""
    parents = [row["id"] for row in await connection.fetch(sql("sweep_cascade"), limit)]
    if not parents:
        return 0
    cancelled = await connection.fetch(sql("sweep_cascade_children"), parents, limit)
    await connection.fetch(sql("sweep_cascade_done"), parents)
    return len(cancelled)


async def wake_seqs(connection: asyncpg.Connection[Any], ids: Sequence[str]) -> dict[str, int]:
    """The counts of wakes of runs."""
    rows = await connection.fetch(sql("wake_counts"), list(ids))
    return {row["id"]: row["wake_seq"] for row in rows}


async def _wake(connection: asyncpg.Connection[Any], pairs: Sequence[tuple[str, str]]) -> list[Woken]:
    if not pairs:
        return []
    rows = await connection.fetch(sql("wake_runs"), [run for run, _ in pairs], [key for _, key in pairs])
    return [Woken(row["id"], row["namespace"], row["pool"], row["wake_seq"], row["wakes"]) for row in rows]
