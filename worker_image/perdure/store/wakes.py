"""Waking runs that wait for something that somebody else brings about: a message, a child's end, an event.

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
from perdure.store.statements import sql

TOLD_AFTER = 0.5
"""Seconds that a worker has to tell of what it brought about before the sweeps do it."""

EVENT_PAGE = 200
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


async def announce_untold(connection: asyncpg.Connection[Any], limit: int) -> list[Woken]:
    """Wake runs for up to `limit` things of each kind of which their worker should have told and has not."""
    messages, children, events = await untold(connection, limit, TOLD_AFTER)
    woken = await announce(connection, messages, children)
    for event in events:
        woken += await announce_event(connection, event)
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
