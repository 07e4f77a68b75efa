"""An order, from the warehouse to the receipt: five steps, each durable before the next one begins.

Kill the worker in the middle, and another one goes on from the last finished step.
"""

import asyncio
from dataclasses import dataclass

import perdure
from pydantic import BaseModel, Field


class Item(BaseModel):
    """Something that was ordered."""

    sku: str
    quantity: int = Field(gt=0)


@dataclass
class Shipment:
    """Parcels on their way."""

    carrier: str
    tracking: str


class Receipt(BaseModel):
    """What the customer gets in the end, and the result of the workflow."""

    order_id: str
    paid: int
    payment: str
    shipment: Shipment


@perdure.step
async def reserve_stock(order_id: str, items: list[Item], pace_seconds: float = 0) -> int:
    """Set the items aside; returns how many pieces."""
    await asyncio.sleep(pace_seconds)
    return sum(item.quantity for item in items)


@perdure.step(max_attempts=5, timeout=300)
async def charge_card(order_id: str, amount: int, pace_seconds: float = 0) -> str:
    """Take the money, once however often this runs: payment services know idempotency keys."""
    await asyncio.sleep(pace_seconds)
    step = perdure.current().step if perdure.is_active() else None
    return f"payment-{step.idempotency_key if step else order_id}"


@perdure.step
async def pack(order_id: str, pace_seconds: float = 0) -> str:
    """Put everything into a box; returns its label."""
    await asyncio.sleep(pace_seconds)
    return f"box-{order_id}"


@perdure.step(max_attempts=3)
async def ship(order_id: str, pace_seconds: float = 0) -> Shipment:
    """Hand the box over to the carrier."""
    await asyncio.sleep(pace_seconds)
    return Shipment(carrier="post", tracking=f"track-{order_id}")


@perdure.step
async def send_receipt(order_id: str, amount: int, pace_seconds: float = 0) -> str:
    """Tell the customer; returns what was said."""
    await asyncio.sleep(pace_seconds)
    return f"Order {order_id}: {amount / 100:.2f} paid, on its way."


@perdure.workflow(name="orders.process_order")
async def process_order(order_id: str, amount: int, items: list[Item], pace_seconds: float = 0) -> Receipt:
    """Process one order for `amount` cents. `pace_seconds` makes each step take that long, so that one can watch."""
    await reserve_stock(order_id, items, pace_seconds)
    payment = await charge_card(order_id, amount, pace_seconds)
    await pack(order_id, pace_seconds)
    shipment = await ship(order_id, pace_seconds)
    await send_receipt(order_id, amount, pace_seconds)
    return Receipt(order_id=order_id, paid=amount, payment=payment, shipment=shipment)
