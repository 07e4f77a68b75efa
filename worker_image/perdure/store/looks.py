"""What durable calls look at without doing anything: the own inbox, the clock. Called by the worker's journal."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import asyncpg

from perdure.model.calls import InboxLook
from perdure.store.statements import sql


async def inbox(connection: asyncpg.Connection[Any], run_id: str, topic: str) -> InboxLook:
    """Whether a message of the topic is there for the run, and the run's count of wakes."""
    row = await connection.fetchrow(sql("call_inbox"), run_id, topic)
    return InboxLook(False, 0) if row is None else InboxLook(row["there"], row["wake_seq"])


async def clock(connection: asyncpg.Connection[Any]) -> datetime:
    """The database's time."""
    return cast(datetime, await connection.fetchval(sql("call_clock")))
