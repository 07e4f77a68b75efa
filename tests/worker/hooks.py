"""Bootstrap hooks that tests name, and workflows that tell what the hooks have set up."""

import asyncio
import contextvars
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import asyncpg
import perdure

from tests.worker.flows import effect

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
service: dict[str, Any] = {}


def say(text: str) -> None:
    print(f"hook: {text}", flush=True)


def plain() -> None:
    tenant.set("plain")


async def coroutine() -> None:
    await asyncio.sleep(0)
    tenant.set("coroutine")


@contextmanager
def manager() -> Iterator[None]:
    tenant.set("manager")
    yield
    say("manager left")


@asynccontextmanager
async def pool() -> AsyncIterator[None]:
    """As an application opens its own pool for its steps."""
    tenant.set("pool")
    async with asyncpg.create_pool(os.environ["PERDURE_DATABASE_URL"], min_size=1, max_size=1) as service["pool"]:
        yield
        say(f"pool left with {await service['pool'].fetchval('SELECT count(*) FROM public.effects')} effects")


@asynccontextmanager
async def never_left() -> AsyncIterator[None]:
    """Its end neither comes nor lets itself be cancelled."""
    yield
    while True:
        with suppress(BaseException):
            await asyncio.sleep(1000)


@contextmanager
def blocks_at_the_end() -> Iterator[None]:
    yield
    time.sleep(1000)


async def application_logs() -> None:
    logging.basicConfig(format="APP %(levelname)s %(name)s %(message)s", level=logging.INFO, stream=sys.stdout)


def nothing_for_logs() -> None:
    pass


async def broken() -> None:
    raise LookupError("no licence in the vault")


def exits() -> None:
    sys.exit("the vault is sealed")


@asynccontextmanager
async def broken_at_the_end() -> AsyncIterator[None]:
    yield
    raise LookupError("the vault is gone")


async def slow() -> None:
    try:
        say("slow begun")
        await asyncio.Event().wait()
    finally:
        say("slow ended")


def blocking() -> None:
    say("blocking begun")
    while True:
        time.sleep(60)


async def waits_for_a_file() -> None:
    while not os.path.exists(os.environ["HOOK_FILE"]):  # noqa: ASYNC110, ASYNC240, PTH110
        await asyncio.sleep(0.02)


@perdure.step
async def on_the_loop() -> str:
    return tenant.get()


@perdure.step
def in_a_thread() -> str:
    return tenant.get()


@perdure.step
async def by_the_pool() -> int:
    await effect("done", "pool")
    value: int = await service["pool"].fetchval("SELECT 41 + 1")
    return value


@perdure.workflow(name="hook.sees")
async def sees() -> list[str]:
    logging.getLogger("shop").info("a body runs")
    return [tenant.get(), await on_the_loop(), await in_a_thread()]


@perdure.workflow(name="hook.pool")
async def uses_the_pool() -> int:
    return await by_the_pool()
