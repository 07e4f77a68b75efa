"""Removal of ended runs that have no resource which could be deleted. Called by the worker's `retention`.

Marked first, removed then (`runs.purge_gone`), so that a run is either there with all its steps or on its way out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import asyncpg

from perdure.store.statements import sql


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page of old runs ended: behind it the next one begins. By default before all of them."""

    finished_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """How many runs were looked at and marked, and where to go on."""

    seen: int
    marked: int
    place: Place


async def mark(
    connection: asyncpg.Connection[Any], namespace: str, pool: str, *, age: float, place: Place, limit: int
) -> Page:
    """Mark ended runs of this pool without a resource that ended over `age` seconds ago for removal; those among the
    next `limit` behind `place` that nothing live has to do with. Durable on return; fewer than `limit` seen: the end.
    """
    row = await connection.fetchrow(sql("retention_mark"), namespace, pool, age, place.finished_at, place.run_id, limit)
    if row is None:
        return Page(0, 0, place)
    return Page(row["seen"], row["marked"], Place(row["finished_at"], row["id"]))
