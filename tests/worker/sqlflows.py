"""Workflows whose steps write to the test's database in the transaction of their checkpoint."""

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
import perdure

from tests.worker.flows import effect, gate, note

TABLES = """
CREATE TABLE public.counters (
    name text PRIMARY KEY, value integer NOT NULL CHECK (value < 100), owner text UNIQUE DEFERRABLE INITIALLY DEFERRED);
INSERT INTO public.counters (name, value) VALUES ('a', 0), ('b', 0);
"""

SLOW_COMMIT = """
CREATE FUNCTION public.wait_for_test() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER wait_for_test AFTER UPDATE ON public.counters DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION public.wait_for_test();
"""
"""A COMMIT that wrote a counter waits while the test holds the lock 7."""

ADD = "UPDATE public.counters SET value = value + 1 WHERE name = $1 RETURNING value"


@perdure.transaction
async def add(connection: "asyncpg.Connection[Any]", name: str) -> int:
    value: int = await connection.fetchval(ADD, name)
    return value


@perdure.transaction(name="add_gated")
async def add_gated(connection: "asyncpg.Connection[Any]", name: str, through: str) -> int:
    """Says when it has begun, and waits with its row written and nothing committed."""
    value: int = await connection.fetchval(ADD, name)
    await effect("written", through)
    await gate(through)
    return value


@perdure.transaction
async def both(connection: "asyncpg.Connection[Any]", first: str, second: str, through: str) -> int:
    await connection.execute(ADD, first)
    await effect("written", first)
    if through:
        await gate(through)
    return int(await connection.fetchval(ADD, second))


@perdure.transaction(isolation="serializable")
async def add_serializable(connection: "asyncpg.Connection[Any]", name: str, through: str) -> int:
    value = await connection.fetchval("SELECT value FROM public.counters WHERE name = $1", name)
    await effect("read", name)
    await gate(through)
    await connection.execute("UPDATE public.counters SET value = $2 WHERE name = $1", name, value + 1)
    return int(value) + 1


@perdure.transaction(max_attempts=3, interval=0.01)
async def flaky_add(connection: "asyncpg.Connection[Any]", name: str) -> int:
    await connection.execute(ADD, name)
    step = perdure.current().step
    assert step is not None
    if step.attempt < 3:
        raise ConnectionError(f"attempt {step.attempt}")
    return step.attempt


@perdure.transaction
async def add_many(connection: "asyncpg.Connection[Any]", name: str, by: int) -> None:
    await connection.execute("UPDATE public.counters SET value = value + $2 WHERE name = $1", name, by)


@perdure.transaction
async def own(connection: "asyncpg.Connection[Any]", owner: str) -> None:
    """Breaks a constraint that Postgres looks at when it commits."""
    await connection.execute("UPDATE public.counters SET owner = $1", owner)


@perdure.transaction
async def giving(connection: "asyncpg.Connection[Any]", text: str, times: int) -> str:
    await connection.execute(ADD, "a")
    return text * times


@perdure.transaction
async def unstorable(connection: "asyncpg.Connection[Any]", code: int) -> str:
    await connection.execute(ADD, "a")
    return chr(code)


@perdure.transaction(max_attempts=5, interval=0.01)
async def saying(connection: "asyncpg.Connection[Any]", statements: list[str]) -> None:
    await effect("tried", "saying")
    await connection.execute(ADD, "a")
    for statement in statements:
        await connection.execute(statement)


@perdure.transaction
async def swallowing(connection: "asyncpg.Connection[Any]", savepoint: bool) -> str:
    await connection.execute(ADD, "a")
    try:
        if savepoint:
            async with connection.transaction():
                await connection.execute("INSERT INTO public.counters VALUES ('a', 0)")
        else:
            await connection.execute("INSERT INTO public.counters VALUES ('a', 0)")
    except asyncpg.UniqueViolationError:
        return "there"
    return "new"


@perdure.transaction(timeout=0.05)
async def slow(connection: "asyncpg.Connection[Any]", name: str) -> None:
    await connection.execute(ADD, name)
    await connection.execute("SELECT pg_sleep(60)")


@perdure.transaction
async def giving_way(connection: "asyncpg.Connection[Any]", name: str) -> None:
    """Postgres ends it for the sake of another, each time."""
    await connection.execute(ADD, name)
    await effect("tried", name)
    await connection.execute("DO $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END $$")


@perdure.transaction
async def nested(connection: "asyncpg.Connection[Any]") -> list[int]:
    first = await add("a")
    with suppress(ValueError):
        await add_then_fail("b")
    return [first, await add("a")]


@perdure.transaction
async def add_then_fail(connection: "asyncpg.Connection[Any]", name: str) -> None:
    await connection.execute(ADD, name)
    raise ValueError(name)


@perdure.transaction
async def commits(connection: "asyncpg.Connection[Any]") -> None:
    await connection.execute(ADD, "a")
    await connection.execute("COMMIT")


@perdure.step
async def adding_step(name: str) -> int:
    return await add(name)


@perdure.workflow(name="sql.add")
async def adds(times: int) -> list[int]:
    return [await add("a") for _ in range(times)]


@perdure.workflow(name="sql.gated")
async def adds_gated(through: str) -> list[Any]:
    return [await note("before"), await add_gated("a", through), await note("after")]


@perdure.workflow(name="sql.call")
async def call(name: str, args: list[Any]) -> Any:
    """Any of the above, by the name of its function."""
    return await globals()[name](*args)


@perdure.workflow(name="sql.caught")
async def caught(name: str, args: list[Any]) -> str:
    try:
        await globals()[name](*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@perdure.workflow(name="sql.beside")
async def beside(through: str) -> list[Any]:
    """A transaction with steps beside it that finish while it runs."""
    slow_one = asyncio.ensure_future(add_gated("a", through))
    others = [await note(f"n{number}") for number in range(3)]
    return [*others, await slow_one]
