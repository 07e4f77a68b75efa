"""Schedules in the database: what they say, how they stand, and the runs that they start.

Called by clients, who say what there is, and by every worker's sweeper, which fires them (`store/firing`). What may
be sent again may be sent again here, too: a schedule is made what it is said to be, and the run of a tick has one id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from perdure.model.firing import Firing, Standing
from perdure.model.rows import workflow_requirement
from perdure.model.schedules import CatchUp, Overlap, Rule, ScheduleInfo
from perdure.model.ticks import next_tick
from perdure.store.statements import sql

OPEN_RUNS = 100
"""Runs of a schedule that have not ended, read at once: there is one, unless it lets them overlap."""

PROBLEM_SECONDS = 60.0
"""Seconds until a schedule is looked at again whose rule no process could read: another version of the code, or of the
time zones, may be there by then."""


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """What a schedule says. `input` and `attributes` are JSON texts, `timeout` is seconds."""

    name: str
    rule: Rule
    workflow: str
    input: str
    pool: str
    queue: str
    priority: int
    timeout: float | None = None
    partition_key: str = ""
    attributes: str | None = None
    max_run_attempts: int | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """A schedule, and the database's time at which it stood so."""

    info: ScheduleInfo
    now: datetime


@dataclass(frozen=True, slots=True)
class Started:
    """A run of a schedule; `created`: by this call, else it was there."""

    id: str
    namespace: str
    pool: str
    created: bool


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided of a schedule that was due; the sentence why nothing could be decided, or None."""

    schedule: Standing
    firing: Firing
    problem: str | None = None

    def moved(self, by: timedelta) -> Decided:
        """The same by a clock that is so much ahead."""
        return replace(self, schedule=self.schedule.moved(by), firing=self.firing.moved(by))


async def apply(
    connection: asyncpg.Connection[Any], namespace: str, owner: str, rows: Sequence[ScheduleRow], *, change: bool
) -> set[str]:
    """Make these schedules what they say (each name once); names of those that are so now. The others are another
    owner's, or, without `change`, there and different.

    In a transaction of the caller, who gives it up when a name is missing.
    """
    done = await connection.fetch(
        sql("schedule_apply"),
        namespace,
        owner,
        change,
        [each.name for each in rows],
        [each.rule.cron for each in rows],
        [each.rule.time_zone for each in rows],
        [str(each.rule.overlap) for each in rows],
        [str(each.rule.catch_up) for each in rows],
        [each.rule.window for each in rows],
        [each.rule.jitter for each in rows],
        [each.workflow for each in rows],
        [workflow_requirement(each.workflow) for each in rows],
        [each.input for each in rows],
        [each.pool for each in rows],
        [each.queue for each in rows],
        [each.priority for each in rows],
        [each.timeout for each in rows],
        [each.partition_key for each in rows],
        [each.attributes for each in rows],
        [each.max_run_attempts for each in rows],
    )
    return {row["name"] for row in done}


async def prune(connection: asyncpg.Connection[Any], namespace: str, owner: str, names: Iterable[str]) -> list[str]:
    """Remove what the owner's set has no more; the names. Nobody's schedules are no set: of those none goes."""
    return [row["name"] for row in await connection.fetch(sql("schedule_prune"), namespace, owner, list(names))]


async def delete(connection: asyncpg.Connection[Any], namespace: str, name: str) -> bool:
    """Remove a schedule; whether it was there. Durable on return."""
    return await connection.fetchval(sql("schedule_delete"), namespace, name) is not None


async def pause(connection: asyncpg.Connection[Any], namespace: str, name: str, *, paused: bool) -> bool:
    """Pause a schedule, or have it go on from now; whether it is there. Durable on return."""
    return await connection.fetchval(sql("schedule_pause"), namespace, name, paused) is not None


async def inputs(connection: asyncpg.Connection[Any], namespace: str, names: Sequence[str]) -> dict[str, str]:
    """What the schedules of these names start with, as it is stored."""
    rows = await connection.fetch(sql("schedule_inputs"), namespace, list(names))
    return {row["name"]: row["input"] for row in rows}


async def get(connection: asyncpg.Connection[Any], namespace: str, name: str) -> Sight | None:
    """How a schedule stands, None when there is none of that name."""
    row = await connection.fetchrow(sql("schedule_get"), namespace, name)
    return None if row is None else _sight(row)


async def read(connection: asyncpg.Connection[Any], namespace: str, after: str, limit: int) -> list[Sight]:
    """A page of the schedules of a namespace, those behind the name `after`."""
    return [_sight(row) for row in await connection.fetch(sql("schedule_read"), namespace, after, limit)]


async def due(connection: asyncpg.Connection[Any], limit: int) -> list[tuple[Standing, datetime]]:
    """Schedules that are to be looked at, and the time; at most twice `limit`. Holds their rows in a transaction."""
    rows = await connection.fetch(sql("schedule_due"), limit)
    return [
        (Standing(row["namespace"], row["name"], _rule(row), row["decided"], row["queued_tick"]), row["now"])
        for row in rows
    ]


async def open_runs(
    connection: asyncpg.Connection[Any], names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], list[str]]:
    """Runs of schedules, given as (namespace, name), that have not ended."""
    rows = await connection.fetch(
        sql("schedule_open"), [each for each, _ in names], [each for _, each in names], OPEN_RUNS
    )
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        found.setdefault((row["namespace"], row["name"]), []).append(row["id"])
    return found


async def start(connection: asyncpg.Connection[Any], runs: Sequence[tuple[str, str, str]]) -> list[Started]:
    """Start runs, given as (namespace, schedule, id), as their schedules say; those whose schedule is there."""
    rows = await connection.fetch(
        sql("schedule_start"), [each[0] for each in runs], [each[1] for each in runs], [each[2] for each in runs]
    )
    return [Started(row["id"], row["namespace"], row["pool"], row["created"]) for row in rows]


async def decided(connection: asyncpg.Connection[Any], decisions: Sequence[Decided]) -> None:
    """Write down what was decided, in the transaction that holds the rows."""
    firings = [each.firing for each in decisions]
    await connection.fetch(
        sql("schedule_decided"),
        [each.schedule.namespace for each in decisions],
        [each.schedule.name for each in decisions],
        [each.decided for each in firings],
        [each.next_tick for each in firings],
        [each.next_at for each in firings],
        [each.queued for each in firings],
        [max(each.start, default=None) for each in firings],
        [each.skipped for each in firings],
        [each.missed for each in firings],
        [each.problem for each in decisions],
        PROBLEM_SECONDS,
    )


def _rule(row: asyncpg.Record) -> Rule:
    return Rule(
        row["cron"],
        row["time_zone"],
        Overlap(row["overlap"]),
        CatchUp(row["catch_up"]),
        row["catch_up_window"],
        row["jitter"],
    )


def _sight(row: asyncpg.Record) -> Sight:
    now = row["now"]
    upcoming = None
    if not row["paused"] and row["problem"] is None:
        upcoming = next_tick(row["cron"], row["time_zone"], max(row["decided"], now))
    return Sight(
        ScheduleInfo(
            name=row["name"],
            workflow=row["workflow"],
            cron=row["cron"],
            time_zone=row["time_zone"],
            overlap=Overlap(row["overlap"]),
            catch_up=CatchUp(row["catch_up"]),
            catch_up_window=row["catch_up_window"],
            jitter=row["jitter"],
            pool=row["pool"],
            queue=row["queue"],
            priority=row["priority"],
            owner=row["owner"],
            paused=row["paused"],
            last_tick=row["last_tick"],
            next_tick=upcoming,
            queued_tick=row["queued_tick"],
            skipped=row["skipped"],
            missed=row["missed"],
            problem=row["problem"],
            created_at=row["created_at"],
        ),
        now,
    )
