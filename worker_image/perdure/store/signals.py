"""Messages to runs that are sent by a resource: as a client's, but only to a run that may still take them.

Called by the operator. Sending one again is no second message, however often and by whomever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import asyncpg

from perdure.model.states import RunStatus
from perdure.store.statements import sql


@dataclass(frozen=True, slots=True)
class Sent:
    """`status`: how the run stands, None when there is none. `has_it`: the message is in its inbox, or was before."""

    status: RunStatus | None
    has_it: bool


async def send(connection: asyncpg.Connection[Any], run_id: str, topic: str, key: str, value: str) -> Sent:
    """Put a message, JSON text, into the inbox of a run that has not ended. Durable on return.

    The receiver still has to be woken (`wakes.announce`).
    """
    row = await connection.fetchrow(sql("signal_send"), run_id, topic, key, value)
    if row is None:
        return Sent(None, has_it=False)
    return Sent(RunStatus(row["status"]), row["has_it"])
