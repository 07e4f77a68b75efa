"""Taking runs: where they are ready, the claim, and the recorded steps that come with it. Called by the worker's
claimer.

A claim is told the ranges of the index from which it takes, and from which place on (`look` finds them): so it reads
nothing that was claimed before, which an old snapshot elsewhere may keep in the index for hours. A claim counts no
attempt (only a recovery from a dead worker does), pins the version and sets the deadline the first time only. A claim
whose answer is lost is found by the beat and given back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import asyncpg

from perdure.model.rows import ClaimedRun, RecordedStep
from perdure.model.serialization import from_number
from perdure.model.states import CancelMode, RunStatus, StepStatus, Undo
from perdure.store.statements import sql

STEPS_WITH_CLAIM = 1000
"""Recorded steps that come with a claim: more than most runs have, little enough for a hundred runs at once."""

BYTES_WITH_CLAIM = 16 * 1024 * 1024
"""Bytes of recorded steps that come with a claim, of all its runs together: a fraction of a second on a slow line, and
of a small pod's memory. One step of each comes in any case."""

PAGE_BYTES = 4 * 1024 * 1024
"""Bytes of recorded steps in a further page of one run."""

PARTITIONS = 100
"""Partitions of a queue that one look finds, as many as runs fit into one claim: about a millisecond of look-ups."""


class Place(NamedTuple):
    """A place in the order of ready runs of one range."""

    priority: int
    run_at: datetime
    id: str


BEGINNING = Place(-(2**31), datetime(2000, 1, 1, tzinfo=UTC), "")
"""Before every run: no priority is lower."""


class RangeKey(NamedTuple):
    """A range of the index of ready runs: bound to this version ('' to none yet), of one set of required names (by its
    hash), in one partition."""

    version: str
    route: int
    partition_key: str


@dataclass(frozen=True, slots=True)
class Scope:
    """Who claims from what. `manifest` = what the worker has registered (`workflow:…`, `step:…`). An empty `version`
    pins nothing."""

    worker_id: str
    namespace: str
    pool: str
    queue: str
    manifest: Sequence[str]
    version: str


@dataclass(frozen=True, slots=True)
class Look:
    """Ranges with ready runs and the first place of each, partitions in the order of their turns. `cut`: there may be
    further partitions, behind the last one here."""

    ranges: dict[RangeKey, Place]
    cut: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """What a claim brought. `places`: of each range from which runs were taken the last one's place. `ended`: how many
    were past their deadline and were ended instead, by partition like `counts`, which has both. `room`: how many runs
    the limits of the queue let be taken, of those that were asked for; None: it has no limits. `again_in`: seconds
    until its rate lets another begin; None: the rate did not cut the claim short."""

    runs: list[ClaimedRun]
    places: dict[RangeKey, Place]
    counts: dict[str, int]
    ended: int
    room: int | None = None
    again_in: float | None = None

    @property
    def total(self) -> int:
        """Runs that are not ready any more."""
        return len(self.runs) + self.ended


async def look(connection: asyncpg.Connection[Any], scope: Scope, after: str, partitions: int = PARTITIONS) -> Look:
    """Where runs are ready that this worker can run: at most `partitions` partitions, those after the one named
    `after` first. Takes nothing and locks nothing."""
    rows = await connection.fetch(
        sql("claim_ranges"),
        scope.worker_id,
        scope.namespace,
        scope.pool,
        scope.queue,
        list(scope.manifest),
        scope.version,
        after,
        partitions,
    )
    ranges: dict[RangeKey, Place] = {}
    seen: set[str] = set()
    for row in rows:
        seen.add(row["partition_key"])
        if len(seen) > partitions:
            break
        ranges[RangeKey(row["version"], row["route"], row["partition_key"])] = _place(row)
    return Look(ranges, cut=len(seen) > partitions or any(row["cut"] for row in rows))


async def take(
    connection: asyncpg.Connection[Any],
    scope: Scope,
    ranges: Sequence[tuple[RangeKey, Place]],
    limit: int,
    limited: bool = False,
) -> Taken:
    """Take at most `limit` ready runs out of these ranges, each from its place on; they are this worker's, durably, on
    return. Partitions take turns in the order in which they first occur. The limits of the queue hold: of all that is
    committed, no claim makes more runs of it run at once or begin in a time than they say. `limited`: it is known to
    have some, which saves a question and decides nothing.

    Fewer than `limit` does not mean that the ranges are empty: rows that others are taking are skipped.
    """
    turns: dict[str, int] = {}
    for key, _ in ranges:
        turns.setdefault(key.partition_key, len(turns))
    arguments = (
        scope.worker_id,
        scope.namespace,
        scope.pool,
        scope.queue,
        list(scope.manifest),
        scope.version,
        limit,
        [key.version for key, _ in ranges],
        [key.route for key, _ in ranges],
        [key.partition_key for key, _ in ranges],
        [turns[key.partition_key] for key, _ in ranges],
        [place.priority for _, place in ranges],
        [place.run_at for _, place in ranges],
        [place.id for _, place in ranges],
    )
    rows = await connection.fetch(sql("claim_limited" if limited else "claim"), *arguments)
    if not limited and rows[0]["refused"]:
        limited = True
        rows = await connection.fetch(sql("claim_limited"), *arguments)
    places: dict[RangeKey, Place] = {}
    counts: defaultdict[str, int] = defaultdict(int)
    claimed = []
    for row in rows:
        key = ranges[row["number"] - 1][0]
        if row["id"] is None:
            continue
        places[key] = max(places.get(key, BEGINNING), _place(row))
        counts[key.partition_key] += 1
        if row["status"] == RunStatus.RUNNING:
            claimed.append(row)
    steps, more = await _recorded_of(connection, claimed)
    runs = [_claimed(row, tuple(steps[row["id"]]), more_steps=row["id"] in more) for row in claimed]
    taken = Taken(runs, places, dict(counts), ended=sum(counts.values()) - len(runs))
    if not limited:
        return taken
    room, starts, again_in = rows[0]["room"], rows[0]["starts"], rows[0]["again_in"]
    begun = sum(not ranges[row["number"] - 1][0].version for row in claimed)
    cut_by_rate = starts is not None and begun >= starts and starts < limit
    return replace(taken, room=room, again_in=again_in if cut_by_rate else None)


async def claim(
    connection: asyncpg.Connection[Any],
    *,
    worker_id: str,
    namespace: str,
    pool: str,
    queue: str,
    manifest: Sequence[str],
    version: str,
    limit: int,
) -> list[ClaimedRun]:
    """Look and take at most `limit` ready runs, for callers that remember nothing in between."""
    scope = Scope(worker_id, namespace, pool, queue, manifest, version)
    found = await look(connection, scope, "")
    if not found.ranges:
        return []
    return (await take(connection, scope, list(found.ranges.items()), limit)).runs


async def history(
    connection: asyncpg.Connection[Any], run_id: str, after_index: int, limit: int
) -> tuple[RecordedStep, ...]:
    """Recorded steps of a run with an index over `after_index`, in order: at most `limit`, and at least one
    if there is any."""
    rows = await connection.fetch(sql("history"), [run_id], after_index, limit, PAGE_BYTES)
    return tuple(_recorded(row) for row in rows)


async def _recorded_of(
    connection: asyncpg.Connection[Any], rows: Sequence[asyncpg.Record]
) -> tuple[defaultdict[str, list[RecordedStep]], set[str]]:
    """Recorded steps of claimed runs, a page of each; and the runs that may have more."""
    # Nothing can be recorded before the first claim.
    with_history = [row["id"] for row in rows if row["fence"] > 1]
    steps: defaultdict[str, list[RecordedStep]] = defaultdict(list)
    more: set[str] = set()
    if with_history:
        most = max(1, BYTES_WITH_CLAIM // len(with_history))
        for row in await connection.fetch(sql("history"), with_history, -1, STEPS_WITH_CLAIM, most):
            page = steps[row["workflow_id"]]
            page.append(_recorded(row))
            if row["bytes"] >= most or len(page) >= STEPS_WITH_CLAIM:
                more.add(row["workflow_id"])
    return steps, more


def _place(row: asyncpg.Record) -> Place:
    return Place(row["priority"], row["run_at"], row["id"])


def _claimed(row: asyncpg.Record, steps: tuple[RecordedStep, ...], *, more_steps: bool) -> ClaimedRun:
    return ClaimedRun(
        id=row["id"],
        fence=row["fence"],
        namespace=row["namespace"],
        name=row["name"],
        workflow=row["workflow"],
        input=row["input"],
        definition=row["definition"],
        run_attempts=row["run_attempts"],
        max_run_attempts=row["max_run_attempts"],
        recoveries=row["recoveries"],
        wake_seq=row["wake_seq"],
        cancel_mode=None if row["cancel_mode"] is None else CancelMode(row["cancel_mode"]),
        suspended=row["suspended"],
        deadline_in=row["deadline_in"],
        steps=steps,
        more_steps=more_steps,
        ready_seconds=row["ready_seconds"] or 0.0,
        parent_id=row["parent_id"],
        rewinds=row["rewinds"],
        undo=None if row["undo"] is None else Undo(row["undo"]),
        seed=row["seed"],
        serialization=from_number(row["serialization"]),
    )


def _recorded(row: asyncpg.Record) -> RecordedStep:
    return RecordedStep(
        index=row["step_index"],
        name=row["name"],
        status=StepStatus(row["status"]),
        input=row["input"],
        output=row["output"],
        error=row["error"],
        attempts=row["attempts"],
        attempt_errors=row["attempt_errors"],
        wake_at=row["wake_at"],
        wake_in=row["wake_in"],
    )
