"""An expense that somebody has to approve: the run waits without a pod, for a month if need be, and says what it waits
for.

Approve with `kubectl apply -f signal.yaml`, or from a program: `await client.send(run_id, {...}, "approval")`.
"""

from __future__ import annotations

from datetime import timedelta

import perdure
from pydantic import BaseModel


class Decision(BaseModel):
    """What the value of the signal must look like."""

    granted: bool
    by: str
    comment: str = ""


@perdure.step
async def pay(employee: str, cents: int) -> str:
    """Pay the money out; returns the number of the payment."""
    step = perdure.current().step
    assert step is not None
    # The bank knows a payment by this key: a step that is begun again after a crash pays nothing twice.
    return f"payment {step.idempotency_key}: {cents / 100:.2f} to {employee}"


@perdure.workflow(name="expenses.approve")
async def approve(employee: str, cents: int, days: float = 30) -> str:
    """Ask, wait, pay. What does not fit the type of a decision is no answer."""
    await perdure.set_event("state", "waiting for a decision")
    while True:
        try:
            decision = await perdure.recv("approval", timeout=timedelta(days=days), type=Decision)
            break
        except perdure.DecodingFailed as error:
            await perdure.set_event("state", f"not understood: {error.message}")
    if decision is None:
        return "nobody decided"
    if not decision.granted:
        return f"refused by {decision.by}: {decision.comment}"
    return await pay(employee, cents)
