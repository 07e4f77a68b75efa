"""What the body of a step does beside itself under the fence of its claim: no step is recorded of it, the step around
it stands for it. Called by the worker's journal, each call a statement of its own."""

from __future__ import annotations

from typing import Any

import asyncpg

from perdure.model.calls import PlainSend
from perdure.store.statements import sql
from perdure.store.transaction import Claim


async def send(connection: asyncpg.Connection[Any], claim: Claim, message: PlainSend) -> bool | None:
    """Put a message into a run's inbox, once for each key; whether there is such a run. None: the sender's run has
    another owner, and nothing was sent. Durable on return."""
    found: bool | None = await connection.fetchval(
        sql("plain_send"),
        claim.run_id,
        claim.worker_id,
        claim.fence,
        message.to,
        message.topic,
        message.key,
        message.value,
    )
    return found
