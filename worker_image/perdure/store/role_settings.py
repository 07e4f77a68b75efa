"""Settings that a role must bring along where sessions cannot set them: behind a pooler in transaction mode.

Used by the command line, which prints the statements, and by workers, which say what is missing.
"""

from __future__ import annotations

from typing import Any

import asyncpg

from perdure.store.pool import session_settings
from perdure.store.pooler import PASSED_ON
from perdure.store.statements import sql


async def missing(connection: asyncpg.Connection[Any]) -> dict[str, str]:
    """Settings that this session's role lacks in this database, each with the statement that gives it; run by the role
    itself or a superuser, it holds for sessions opened from then on."""
    wanted = {name: value for name, value in session_settings().items() if name not in PASSED_ON}
    rows = await connection.fetch(sql("role_settings"), list(wanted), list(wanted.values()))
    return {row["name"]: row["statement"] for row in rows}
