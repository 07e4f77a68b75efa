"""Workflows whose steps use idempotency keys."""

from typing import Any

import asyncpg
import perdure
from perdure import idempotency

from tests.worker.flows import effect, gate


@perdure.step
async def guarded(key: str, through: str) -> str:
    """Does its work at most one at a time, until it has succeeded."""

    async def body() -> str:
        await effect("begun", key)
        await gate(through)
        await effect("ended", key)
        return key

    return "ran" if await idempotency.commit_on_success(key, body, lease=LEASE, wait=60) else "was done"


LEASE = 1.5


@perdure.step
async def marked(key: str, through: str) -> str:
    async def body() -> None:
        await effect("begun", key)
        await gate(through)

    return "ran" if await idempotency.once(key, body) else "was done"


@perdure.step
async def remembered(key: str) -> int:
    async def body() -> int:
        await effect("done", key)
        return 7

    return await idempotency.remember(key, body)


@perdure.transaction(max_attempts=2, interval=0.01)
async def in_transaction(connection: "asyncpg.Connection[Any]", key: str) -> list[Any]:
    """The key is committed with the counter, or not at all."""

    async def body() -> int:
        return int(await connection.fetchval("UPDATE public.counters SET value = value + 1 RETURNING value"))

    async def failing() -> None:
        await connection.execute("SELECT 1/0")

    found = [(await idempotency.once(key, body)).value, await idempotency.remember(key + "r", body)]
    try:
        await idempotency.commit_on_success(key + "c", failing)
    except asyncpg.DivisionByZeroError:
        found.append((await idempotency.commit_on_success(key + "c", body)).value)
    step = perdure.current().step
    assert step is not None
    if step.attempt == 1:
        raise ConnectionError("all of it again")
    return found


@perdure.workflow(name="idem.in_body")
async def in_body() -> str:
    async def body() -> None:
        raise AssertionError

    try:
        await idempotency.once("k", body)
    except RuntimeError as error:
        return str(error)
    return ""


@perdure.workflow(name="idem.call")
async def call(name: str, args: list[Any]) -> Any:
    return await globals()[name](*args)
