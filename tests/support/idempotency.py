"""What tests of idempotency keys run, and how they let time pass."""

import asyncio
from typing import Any

import asyncpg


class Body:
    """Counts; fails as often as told; waits at a gate if it has one."""

    def __init__(self, value: Any = 1, *, failures: int = 0, gate: asyncio.Event | None = None) -> None:
        self.value = value
        self.failures = failures
        self.gate = gate
        self.calls = 0
        self.begun = asyncio.Event()

    async def __call__(self) -> Any:
        self.calls += 1
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.calls <= self.failures:
            raise ConnectionError(f"call {self.calls}")
        return self.value


async def let_expire(conn: "asyncpg.Connection[Any]", seconds: float = 0.0) -> None:
    """Whatever has an end has reached it: by the database's clock, the only one that counts."""
    await conn.execute("UPDATE perdure.idempotency_keys SET expires_at = now() - make_interval(secs => $1)", seconds)
