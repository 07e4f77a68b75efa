"""Ten thousand readings: the same for each, spread over all workers of the pool, and one answer at the end.

Two ways that differ in what one item costs. `in_portions` gives a hundred items at a time to a child run, in which each
is a step: little is recorded of the parent, and a crash does again only the steps that were in progress. `one_by_one`
gives each item a run of its own, which may wait, fail and be resumed alone, and costs some seven times as much.
"""

from __future__ import annotations

import perdure


@perdure.step(max_attempts=3)
async def measure(item: int) -> int:
    """What is done for one item."""
    return item % 7


@perdure.step
async def save(total: int, items: int) -> str:
    """Keep what came out."""
    return f"{items} readings, {total} in all"


@perdure.workflow(name="readings.portion")
async def portion(first: int, count: int) -> int:
    """Some items, each a step, all at once."""
    return sum(await perdure.gather(*(measure(item) for item in range(first, first + count))))


@perdure.workflow(name="readings.in_portions")
async def in_portions(items: int = 10_000, size: int = 100) -> str:
    """A child for each portion; its result is small, and the handles' results come in order."""
    starts = [portion.start(first, min(size, items - first)) for first in range(0, items, size)]
    handles = await perdure.gather(*starts)
    return await save(sum(await perdure.join_workflows(*handles)), items)


@perdure.workflow(name="readings.one")
async def one(item: int) -> int:
    """One item, as a run of its own."""
    return await measure(item)


@perdure.workflow(name="readings.one_by_one")
async def one_by_one(items: int = 10_000, size: int = 500) -> str:
    """A child for each item, so many started at once."""
    total = 0
    for first in range(0, items, size):
        starts = [one.start(item) for item in range(first, min(first + size, items))]
        handles = await perdure.gather(*starts)
        total += sum(await perdure.join_workflows(*handles))
    return await save(total, items)
