"""Workflows for the tests of `gather`, `select` and what a replay needs of time and chance. Effects as in `flows`."""

import asyncio
from typing import Any

import perdure

from tests.worker.flows import effect, gate, note


@perdure.step(name="t.held")
async def held(name: str) -> str:
    await effect("begun", name)
    await gate(name)
    return name


@perdure.step(name="t.fails_once", max_attempts=1)
async def fails_once(name: str) -> str:
    await effect("tried", name)
    await gate(name)
    raise ValueError("not yet")


@perdure.workflow(name="t.first_told")
async def first_told(seconds: float) -> list[Any]:
    """Two topics and a limit of time."""
    won = await perdure.select(a=perdure.recv("a"), b=perdure.recv("b"), late=perdure.sleep(seconds))
    await note(f"won by {won.name}")
    return [won.name, won.value]


@perdure.workflow(name="t.told_or_done")
async def told_or_done(name: str) -> list[Any]:
    """A step beside a message; then what the inbox still has."""
    won = await perdure.select(told=perdure.recv("t"), done=held(name))
    await note(f"won by {won.name}")
    rest = await perdure.recv("t", timeout=0)
    return [won.name, won.value, rest]


@perdure.workflow(name="t.done_then_held")
async def done_then_held(name: str, then: str) -> list[Any]:
    """A race that is over, and a step after it."""
    won = await perdure.select(told=perdure.recv("t"), done=held(name))
    return [won.name, won.value, await held(then)]


@perdure.workflow(name="t.fails_first")
async def fails_first(name: str) -> str:
    """A step that fails before its limit of time."""
    won = await perdure.select(fails_once(name), perdure.sleep(3600))
    return f"branch {won.index}"


@perdure.workflow(name="t.drawn")
async def drawn(name: str) -> list[Any]:
    """Time and chance, a step that a death cuts off, and what they were."""
    at, one, other = await perdure.now(), perdure.uuid4(), perdure.random().random()
    await note(f"{at.isoformat()} {one} {other}")
    await held(name)
    return [at.isoformat(), str(one), other]


@perdure.workflow(name="t.gives_up")
async def gives_up() -> str:
    """Not deterministic: it gives a step up and goes on."""
    try:
        async with asyncio.timeout(0.1):
            await held("never")
    except TimeoutError:
        pass
    return "went on"
