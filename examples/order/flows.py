"""An order, from the warehouse to the receipt: five steps, each durable before the next one begins.

Kill the worker in the middle and another one goes on from the last finished step.
"""

import asyncio
from dataclasses import dataclass
from decimal import Decimal

import perdure
from pydantic import BaseModel, Field


class Order(BaseModel):
    """What a customer has bought. `pace_seconds` makes each step take that long, so that one can watch."""

    order_id: str
    amount: Decimal = Field(gt=0)
    items: list[str] = Field(min_length=1)
    pace_seconds: float = Field(default=0, ge=0)


@dataclass
class Shipment:
    """A parcel on its way."""

    carrier: str
    tracking: str


class Receipt(BaseModel):
    """What the customer gets in the end, and the result of the workflow."""

    order_id: str
    charged: Decimal
    payment: str
    tracking: str


@perdure.step
async def reserve_stock(order_id: str, items: list[str], pace_seconds: float = 0) -> dict[str, int]:
    """Set the items aside: how many of each."""
    await asyncio.sleep(pace_seconds)
    return {item: items.count(item) for item in sorted(set(items))}


@perdure.step(max_attempts=5, timeout=300)
async def charge_card(order_id: str, amount: Decimal, pace_seconds: float = 0) -> str:
    """Take the money, once however often this runs: payment services know idempotency keys."""
    await asyncio.sleep(pace_seconds)
    step = perdure.current().step if perdure.is_active() else None
    return f"payment-{step.idempotency_key if step else order_id}"


@perdure.step
async def pack(reserved: dict[str, int], pace_seconds: float = 0) -> int:
    """Put everything into parcels of at most three items: how many parcels."""
    await asyncio.sleep(pace_seconds)
    return -(-sum(reserved.values()) // 3)


@perdure.step(max_attempts=3)
async def ship(order_id: str, parcels: int, pace_seconds: float = 0) -> Shipment:
    """Hand the parcels over."""
    await asyncio.sleep(pace_seconds)
    return Shipment(carrier="post", tracking=f"{order_id}-{parcels}")


@perdure.step
async def send_receipt(order: Order, payment: str, shipment: Shipment, pace_seconds: float = 0) -> Receipt:
    """Tell the customer."""
    await asyncio.sleep(pace_seconds)
    return Receipt(order_id=order.order_id, charged=order.amount, payment=payment, tracking=shipment.tracking)


@perdure.workflow(name="orders.process_order")
async def process_order(order: Order) -> Receipt:
    """Process one order."""
    pace = order.pace_seconds
    reserved = await reserve_stock(order.order_id, order.items, pace)
    payment = await charge_card(order.order_id, order.amount, pace)
    parcels = await pack(reserved, pace)
    shipment = await ship(order.order_id, parcels, pace)
    return await send_receipt(order, payment, shipment, pace)
