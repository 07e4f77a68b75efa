"""Debounced starts: of many with one key a single run, with the input of the last, once no further one comes.

Called by clients, and by workers for the bodies of runs. One short transaction holds the key's row, then postpones the
run that it stands for, or makes a new one if that has become claimable meanwhile: there is nothing to try again,
however quickly runs are taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import asyncpg

from perdure.model.start import DURATION_MAX_SECONDS
from perdure.store import clients
from perdure.store.clients import RunStart
from perdure.store.pool import transaction
from perdure.store.statements import sql

CALLS_KEPT = 16
"""Calls of a key that are known to have come through: one that is sent again, because its answer was lost or its worker
died, is among the latest."""

FORGET_SECONDS = 3600.0
"""How long a key is known after its run became claimable: a call whose worker died is made again long before that."""


@dataclass(frozen=True, slots=True)
class Debounce:
    """A debounced start. `run`: what to create when there is none to postpone. `call`: what the call is known by when
    it is sent again. `delay`: seconds from now; `cap`: seconds from the first call on after which it is not
    postponed."""

    run: RunStart
    key: str
    call: str
    delay: float
    cap: float | None = None


async def debounce(connection: asyncpg.Connection[Any], namespace: str, asked: Debounce) -> str:
    """Postpone the run of this key and give it this input, or create it; its id. Durable on return, and done once
    however often the same call is sent."""
    key = (namespace, asked.run.workflow, asked.key)
    async with transaction(connection):
        held = await connection.fetchrow(sql("debounce_lock"), *key, asked.run.id, asked.call)
        assert held is not None
        run_id: str = held["run_id"]
        if held["done"]:
            return run_id
        cap = DURATION_MAX_SECONDS if asked.cap is None else asked.cap
        postponed = await connection.fetchval(
            sql("debounce_postpone"), run_id, namespace, asked.run.workflow, asked.delay, cap, asked.run.input
        )
        if postponed is None:
            run_id = asked.run.id
            # Its id is taken only if this call has created it, and its key was forgotten since.
            await clients.start(connection, namespace, [replace(asked.run, delay=min(asked.delay, cap))], awaited=False)
        await connection.fetchval(sql("debounce_done"), *key, run_id, asked.call, CALLS_KEPT)
    return run_id


async def sweep(connection: asyncpg.Connection[Any], limit: int) -> int:
    """Forget up to `limit` keys that are over; how many."""
    return len(await connection.fetch(sql("debounce_sweep"), limit, FORGET_SECONDS))
