"""Answers to questions about runs and their steps: one, a page of a list, the steps. Called by clients and the worker.

A list is read in portions: ids in order from an index, then those of them that pass the filter; so no statement reads
more than `PORTION` runs, however few of very many pass. The order is that of creation, and pages follow a key and not a
count: what is added or removed meanwhile moves nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any, assert_never

import asyncpg

from perdure.model.listing import (
    EARLIEST,
    LATEST,
    Cursor,
    OneRun,
    Question,
    RunDetails,
    RunFilter,
    RunPage,
    RunQuery,
    StepDetails,
    StepQuery,
)
from perdure.model.serialization import from_number
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import waiting
from perdure.store.pool import transaction
from perdure.store.statements import sql

PORTION = 5000
"""Runs looked at in one statement where not all are in the list: some ten milliseconds."""

FIRST_PORTION = 500
"""The first time: mostly there are enough among so many."""

PORTIONS = 3
"""So many, and runs with rare attributes are looked up by these: where they are not rare, a page is full by then."""

EVERYTHING = RunFilter()


async def one(connection: asyncpg.Connection[Any], question: OneRun) -> RunDetails | None:
    """The run, None when there is none."""
    found = await _details(connection, [question.run_id], EVERYTHING, None, 1, payloads=question.payloads)
    return found[0] if found else None


async def steps(connection: asyncpg.Connection[Any], question: StepQuery) -> tuple[StepDetails, ...] | None:
    """Recorded steps in order; None when there is no such run."""
    rows = await connection.fetch(sql("list_steps"), question.run_id, question.after, question.limit, question.payloads)
    if not rows and await one(connection, OneRun(question.run_id, payloads=False)) is None:
        return None
    return tuple(
        StepDetails(
            index=row["step_index"],
            name=row["name"],
            status=StepStatus(row["status"]),
            attempts=row["attempts"],
            started_at=row["started_at"],
            finished_at=row["finished_at"],
            wake_at=row["wake_at"],
            input=row["input"],
            output=row["output"],
            error=row["error"],
        )
        for row in rows
    )


async def page(connection: asyncpg.Connection[Any], query: RunQuery) -> RunPage:
    """The next runs of a list, each as it stood at one instant."""
    after = None if query.after is None else Cursor.read(query.after)
    found: list[RunDetails] = []
    # One more than is asked for says whether there is another page.
    portion = FIRST_PORTION if query.filter.sparse else query.limit + 1
    for number in count():
        wanted = query.limit + 1 - len(found)
        async with transaction(connection, isolation="repeatable_read", readonly=True):
            places = await _places(connection, query, after, max(portion, wanted), rare=number >= PORTIONS)
            ids = [place.id for place in places]
            found += await _details(
                connection,
                ids,
                query.filter,
                query.namespace,
                wanted,
                newest_first=query.newest_first,
                payloads=query.payloads,
            )
        if len(found) > query.limit:
            del found[query.limit :]
            return RunPage(tuple(found), Cursor(found[-1].created_at, found[-1].id).text())
        if len(places) < max(portion, wanted):
            return RunPage(tuple(found), None)
        after, portion = places[-1], PORTION
    raise AssertionError("it never ends by itself")


async def _places(
    connection: asyncpg.Connection[Any], query: RunQuery, after: Cursor | None, limit: int, *, rare: bool
) -> list[Cursor]:
    chosen, namespace = query.filter, query.namespace
    begin = _begin(query) if after is None else after
    if chosen.by_name or (rare and chosen.attributes is not None):
        ids = chosen.ids
        parent = chosen.parent_id if ids is None else None
        fork = chosen.forked_from if ids is None and parent is None else None
        attributes = None if chosen.by_name else chosen.attributes
        rows = await connection.fetch(
            sql("list_named"),
            namespace,
            list(ids or ()),
            parent,
            fork,
            query.newest_first,
            begin.created_at,
            begin.id,
            limit,
            attributes,
        )
    else:
        end = chosen.created_from or EARLIEST if query.newest_first else chosen.created_until or LATEST
        rows = await connection.fetch(
            sql("list_newest" if query.newest_first else "list_oldest"),
            namespace,
            chosen.live,
            chosen.succeeded,
            chosen.others,
            begin.created_at,
            begin.id,
            end,
            limit,
        )
    return [Cursor(row["created_at"], row["id"]) for row in rows]


def _begin(query: RunQuery) -> Cursor:
    """Before the first place that the list can have. No id sorts before the empty one."""
    if query.newest_first:
        return Cursor(query.filter.created_until or LATEST, "")
    return Cursor(query.filter.created_from or EARLIEST, "")


async def _details(
    connection: asyncpg.Connection[Any],
    ids: Sequence[str],
    chosen: RunFilter,
    namespace: str | None,
    limit: int,
    *,
    newest_first: bool = True,
    payloads: bool,
) -> list[RunDetails]:
    if not ids:
        return []
    rows = await connection.fetch(
        sql("list_runs"),
        list(ids),
        limit,
        newest_first,
        payloads,
        namespace,
        chosen.id_prefix,
        _list(chosen.workflows),
        _list(chosen.statuses),
        _list(chosen.queues),
        _list(chosen.pools),
        _list(chosen.versions),
        chosen.parent_id,
        chosen.forked_from,
        chosen.partition_key,
        chosen.attributes,
        chosen.created_from,
        chosen.created_until,
        chosen.finished_from,
        chosen.finished_until,
    )
    return [_run(row) for row in rows]


def _list(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _run(row: asyncpg.Record) -> RunDetails:
    mode, held = row["cancel_mode"], waiting.decode(row["waiting_for"])
    return RunDetails(
        id=row["id"],
        namespace=row["namespace"],
        name=row["name"],
        workflow=row["workflow"],
        status=RunStatus(row["status"]),
        pool=row["pool"],
        queue=row["queue"],
        priority=row["priority"],
        partition_key=row["partition_key"] or None,
        version=row["version"],
        parent_id=row["parent_id"],
        parent_step=row["parent_step"],
        forked_from=row["forked_from"],
        forked_at=row["forked_at"],
        rewinds=row["rewinds"],
        deduplication_id=row["deduplication_id"],
        attributes={} if row["attributes"] is None else json.loads(row["attributes"]),
        timeout=row["timeout"],
        deadline_at=row["deadline_at"],
        wake_at=row["wake_at"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        run_attempts=row["run_attempts"],
        recoveries=row["recoveries"],
        suspended=row["suspended"],
        cancel_mode=None if mode is None else CancelMode(mode),
        cancel_reason=row["cancel_reason"],
        waiting_for=None if held is None else held.message or held.kind,
        worker=row["worker_id"],
        input=row["input"],
        output=row["output"],
        error=row["error"],
        serialization=from_number(row["serialization"]),
        undoes=row["undoes"],
    )


async def answer(connection: asyncpg.Connection[Any], question: Question) -> Any:
    """The answer to a question of a run: None where the run that it is about is not there."""
    match question:
        case OneRun():
            return await one(connection, question)
        case StepQuery():
            return await steps(connection, question)
        case RunQuery():
            return await page(connection, question)
    assert_never(question)
