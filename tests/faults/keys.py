"""What a step does under an idempotency key, noted for the checker (`sql/keys.sql`): that it was asked, that the body
began and was done, what the caller got.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

from perdure import KeyLost, idempotency

from tests.faults.effects import noted
from tests.faults.programs import LEASE

KEY_LEASE = 4 * LEASE
"""Seconds: longer than most faults last, so that keys are seldom lost; short enough to go on after a killed holder."""


async def under_a_key(name: str, how: str, fails: int, ms: int) -> None:
    """Call the helper `how` with a body that fails `fails` times in this process. Loses the key in silence."""
    await noted(name, how, "call")
    tries = 0

    async def body() -> str:
        nonlocal tries
        tries += 1
        token = uuid4().hex
        await noted(name, how, "begun", token)
        await asyncio.sleep(ms / 1000)
        if tries <= fails:
            raise ConnectionError(f"try {tries} of {name}")
        await noted(name, how, "done", token)
        return token

    for _ in range(fails + 1):
        try:
            match how:
                case "once":
                    await idempotency.once(name, body)
                case "commit_on_success":
                    await idempotency.commit_on_success(name, body, lease=KEY_LEASE)
                case _:
                    await noted(name, how, "got", await idempotency.remember(name, body, lease=KEY_LEASE))
        except KeyLost:
            # Both may have done it: so it is said.
            await noted(name, how, "lost")
            return
        except ConnectionError:
            continue
        return
