"""Keys of `perdure.idempotency`. Called by that module and by the sweeper.

A key is free, held (under a lease, by a token), or done. Every write carries the token, so that a holder who was away
for longer than its lease changes nothing of its successor's; instants are the database's. Each statement may be sent
again unchanged after a lost answer. The caller makes keys that Postgres can store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import asyncpg

from perdure.store.statements import sql


@dataclass(frozen=True, slots=True)
class Key:
    """One key, and the token of the caller who wants it."""

    scope: str
    key: str
    token: str


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a key that could not be taken. `expires_in` seconds, None for never."""

    done: bool
    value: str | None
    expires_in: float | None


async def mark(connection: asyncpg.Connection[Any], key: Key, ttl: float | None) -> bool:
    """Take the key as done, for `ttl` seconds or for ever; False when it is held or done already."""
    return await connection.fetchval(sql("idempotency_mark"), key.scope, key.key, key.token, ttl) is not None


async def claim(connection: asyncpg.Connection[Any], key: Key, lease: float) -> bool:
    """Hold the key for `lease` seconds; False when it is held or done already."""
    return await connection.fetchval(sql("idempotency_claim"), key.scope, key.key, key.token, lease) is not None


async def read(connection: asyncpg.Connection[Any], key: Key) -> Known | None:
    """What is known of the key; None when it is free."""
    row = await connection.fetchrow(sql("idempotency_read"), key.scope, key.key)
    return None if row is None else Known(row["state"] == 20, row["value"], row["expires_in"])


async def renew(connection: asyncpg.Connection[Any], key: Key, lease: float) -> bool:
    """Hold it for `lease` seconds from now; False when somebody else has it."""
    return await connection.fetchval(sql("idempotency_renew"), key.scope, key.key, key.token, lease) is not None


async def finish(connection: asyncpg.Connection[Any], key: Key, value: str | None, ttl: float | None) -> bool:
    """It is done: keep that, and the value, for `ttl` seconds or for ever; False when somebody else has the key."""
    return await connection.fetchval(sql("idempotency_finish"), key.scope, key.key, key.token, value, ttl) is not None


async def release(connection: asyncpg.Connection[Any], key: Key) -> None:
    """It was not done: the key is free again, if it is still held by this token."""
    await connection.execute(sql("idempotency_release"), key.scope, key.key, key.token)


async def sweep(connection: asyncpg.Connection[Any], limit: int) -> int:
    """Remove at most so many expired keys; how many there were."""
    done = await connection.execute(sql("idempotency_sweep"), limit)
    return int(done.rpartition(" ")[2])
