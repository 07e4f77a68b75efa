"""An order that is undone when it cannot be delivered, or when the customer has changed their mind.

Each step says at its call which other one undoes it. Nothing here catches an error or remembers what was done: kill the
worker in the middle of it all, and another one goes on, forwards or backwards.
"""

from __future__ import annotations

from datetime import timedelta

import perdure
from pydantic import BaseModel


class Hold(BaseModel):
    """Items that are set aside."""

    number: str
    pieces: int


class NoCourier(Exception):
    """Nobody drives there."""


@perdure.step
async def reserve(order: str, pieces: int) -> Hold:
    """Set the items aside."""
    return Hold(number=f"hold-{order}", pieces=pieces)


@perdure.step(max_attempts=20)
async def release(hold: Hold) -> str:
    """Put the items back."""
    return f"{hold.pieces} pieces of {hold.number} are back"


@perdure.step(max_attempts=5)
async def charge(order: str, cents: int) -> str:
    """Take the money; returns the number of the payment."""
    step = perdure.current().step
    # The bank knows a payment by this key: a step that is begun again after a crash takes nothing twice.
    return f"payment-{step.idempotency_key if step else order}"


@perdure.step(max_attempts=20)
async def refund(payment: str, cents: int) -> str:
    """Give the money back."""
    return f"{cents / 100:.2f} of {payment} are given back"


@perdure.step
async def book_courier(hold: Hold, country: str) -> str:
    """Have it fetched; returns the number of the parcel."""
    if country == "atlantis":
        raise NoCourier(f"nobody drives to {country}")
    return f"parcel-{hold.number}"


@perdure.workflow(name="shop.order", max_run_attempts=2)
async def place(order: str, pieces: int, cents: int, country: str) -> str:
    """Reserve, charge, book a courier, and wait until it has come: for two weeks, then all of it is undone."""
    hold = await reserve(order, pieces).undo(release)
    await charge(order, cents).undo(refund, cents)
    parcel = await book_courier(hold, country)
    fetched = await perdure.recv("fetched", timeout=timedelta(days=14), type=str)
    if fetched is None:
        raise NoCourier(f"nobody came for {parcel}")
    return f"{parcel} is with {fetched}"
