"""Versions of a pool's workers: what each has, and which runs of earlier ones go on with a later one.

Called by the worker: a session says what it has before it registers, the sweeper adopts and forgets. A run that
somebody runs is never touched, and a run's fence stays as it is: its owner does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from perdure.model.versions import WorkflowVersion
from perdure.store.statements import sql

FORGET_LIMIT = 100
"""Versions forgotten in one statement."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """Runs that go on with another version from now on, and how many of them are ready to be claimed."""

    runs: int
    ready: int


async def register(
    connection: asyncpg.Connection[Any],
    namespace: str,
    pool: str,
    version: str,
    workflows: Sequence[WorkflowVersion],
    *,
    first: bool,
) -> list[str]:
    """Say what a version has; names of the workflows of which that is news. `first`: this process has said it of no
    version yet. Sending it again changes nothing. A version without a name has nothing: its runs are bound to none."""
    if not version:
        return []
    ordered = sorted(workflows, key=lambda each: each.workflow)
    rows = await connection.fetch(
        sql("versions_register"),
        namespace,
        pool,
        version,
        [each.workflow for each in ordered],
        [each.source_hash for each in ordered],
        [each.policy.value for each in ordered],
        first,
    )
    return [row["workflow"] for row in rows]


async def adopt(connection: asyncpg.Connection[Any], namespace: str, pool: str, version: str, limit: int) -> Adopted:
    """Have up to `limit` runs of earlier versions go on with this one, where the policy of their workflow allows it."""
    rows = await connection.fetch(sql("versions_adopt"), namespace, pool, version, limit)
    return Adopted(len(rows), sum(row["ready"] for row in rows))


async def forget(connection: asyncpg.Connection[Any], older_than: float, limit: int = FORGET_LIMIT) -> list[str]:
    """Remove what is known of versions that registered more than so many seconds ago and have neither workers nor
    runs; their names, once for each workflow."""
    return [row["version"] for row in await connection.fetch(sql("versions_forget"), older_than, limit)]
