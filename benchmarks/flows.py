"""Workflows whose steps do nothing, so that what is measured is what a step costs."""

import asyncio

import perdure
from perdure import step, workflow


@step(name="bench.noop")
async def noop(number: int) -> int:
    return number


@step(name="bench.pause")
async def pause(number: int, seconds: float) -> int:
    await asyncio.sleep(seconds)
    return number


@step(name="bench.echo")
async def echo(text: str) -> str:
    return text


@workflow(name="bench.chain")
async def chain(steps: int) -> int:
    """Steps one after the other, as fast as they go."""
    for number in range(steps):
        await noop(number)
    return steps


@workflow(name="bench.paced")
async def paced(steps: int, seconds: float) -> int:
    """Steps that take a while, so that a worker can be killed in one."""
    for number in range(steps):
        await pause(number, seconds)
    return steps


@workflow(name="bench.payload")
async def payload(steps: int, text: str) -> int:
    """Steps that take a text and return it."""
    for _ in range(steps):
        text = await echo(text)
    return len(text)


@workflow(name="bench.sleeper")
async def sleeper(seconds: float) -> int:
    """Between two steps it waits, and takes no slot."""
    await noop(1)
    await perdure.sleep(seconds)
    return await noop(2)
