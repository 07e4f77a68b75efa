"""Workflows for the tests of the client: without effects, so that they need no tables of their own."""

import asyncio
from dataclasses import dataclass

import perdure


@dataclass
class Receipt:
    order: str
    cents: int


class Declined(Exception):
    """An application's own error, with more than a message."""

    def __init__(self, cents: int) -> None:
        super().__init__(f"{cents} cents are too much")
        self.cents = cents


@perdure.step(name="c.charge")
async def charge(cents: int) -> int:
    if cents > 1000:
        raise Declined(cents)
    return cents


@perdure.workflow(name="c.buy")
async def buy(order: str, cents: int) -> Receipt:
    return Receipt(order, await charge(cents))


@perdure.workflow(name="c.nothing")
async def nothing() -> None: ...


@perdure.workflow(name="c.large")
async def large(length: int) -> str:
    return "x" * length


@perdure.workflow(name="c.endless")
async def endless() -> None:
    await forever()


@perdure.step(name="c.forever")
async def forever() -> None:
    await asyncio.Event().wait()


@perdure.workflow(name="c.talks")
async def talks() -> list[object]:
    """Says that it listens, takes two messages, and says so."""
    await perdure.set_event("state", "listening")
    heard = [await perdure.recv("orders"), await perdure.recv("orders", timeout=60)]
    await perdure.set_event("state", {"heard": len(heard)})
    return heard


@perdure.workflow(name="c.naps")
async def naps(seconds: float) -> None:
    await perdure.sleep(seconds)
