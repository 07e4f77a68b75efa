"""An invoice that is reminded of after a month, thrice, unless it is paid before: a run of a quarter of a year that
needs no pod while it waits.

Tell it of the payment with `kubectl apply -f signal.yaml`, or from a program:
`await client.send(run_id, {"cents": 4200}, "paid")`.
"""

from __future__ import annotations

from datetime import timedelta

import perdure

MONTH = timedelta(days=30)
REMINDERS = 3


@perdure.step(max_attempts=5, interval=timedelta(minutes=1))
async def send_mail(customer: str, about: str) -> str:
    """Send it, once however often this runs: mail services know idempotency keys."""
    step = perdure.current().step if perdure.is_active() else None
    return f"{about} to {customer} ({step.idempotency_key if step else 'not sent'})"


@perdure.workflow(name="invoices.collect")
async def collect(customer: str, cents: int) -> str:
    """Send the invoice, wait for the money, remind."""
    await send_mail(customer, f"invoice over {cents / 100:.2f}")
    for number in range(1, REMINDERS + 1):
        won = await perdure.select(paid=perdure.recv("paid"), due=perdure.sleep(MONTH))
        if won.name == "paid":
            return f"paid after {number - 1} reminders"
        await send_mail(customer, f"reminder {number}")
        await perdure.set_event("reminders", number)
    return "to be collected"
