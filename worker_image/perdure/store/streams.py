"""Streams as they are read: by runs, one value at a time, and by clients, many readers in one question.

Writing to them is a call of a run (`store.calls`), waking those who wait is in `store.wakes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from perdure.model.states import RunStatus
from perdure.model.streams import StreamLook, StreamState
from perdure.store.statements import sql

PAGE_VALUES = 200
"""Values for one reader in one answer: a tick has far fewer, and a reader that comes late is through in a few."""

PAGE_CHARACTERS = 256 * 1024
"""Characters of values for one reader in one answer, unless its first alone is longer."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who wants to go on from an offset."""

    run_id: str
    key: str
    offset: int


@dataclass(frozen=True, slots=True)
class Page:
    """What there was for a reader, as JSON texts in their order; and how the stream stands after them."""

    values: tuple[str, ...]
    state: StreamState


async def look(connection: asyncpg.Connection[Any], run_id: str, writer: str, key: str, offset: int) -> StreamLook:
    """The value of a stream of the run `writer` at an offset, and the count of wakes of `run_id`, which asks."""
    row = await connection.fetchrow(sql("call_stream"), run_id, writer, key, offset)
    if row is None:
        return StreamLook(None, StreamState.OPEN, 0, 0)
    return StreamLook(row["value"], _state(row), row["length"] or 0, row["wake_seq"])


async def pages(connection: asyncpg.Connection[Any], readers: Sequence[Reader]) -> list[Page]:
    """What there is for each reader. Ask for a bounded number."""
    rows = await connection.fetch(
        sql("client_streams"),
        [each.run_id for each in readers],
        [each.key for each in readers],
        [each.offset for each in readers],
        PAGE_VALUES,
        PAGE_CHARACTERS,
    )
    found: list[list[Any]] = [[] for _ in readers]
    for row in rows:
        found[row["n"] - 1].append(row)
    return [_page(reader, mine) for reader, mine in zip(readers, found, strict=True)]


def _page(reader: Reader, rows: Sequence[Any]) -> Page:
    values = tuple(row["value"] for row in rows if row["value"] is not None)
    state, length = _state(rows[0]), rows[0]["length"] or 0
    if state is not StreamState.NO_RUN and length > reader.offset + len(values):
        state = StreamState.OPEN  # the rest is in the next page
    return Page(values, state)


def _state(row: Any) -> StreamState:
    if row["status"] is None:
        return StreamState.NO_RUN
    if row["closed"]:
        return StreamState.CLOSED
    return StreamState.RUN_ENDED if RunStatus(row["status"]).finished else StreamState.OPEN
