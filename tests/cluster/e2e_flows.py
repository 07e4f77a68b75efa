"""Workflows of the end-to-end tests, brought into the stock worker image by a ConfigMap.

Each step body leaves a row in `e2e.effects`, so that a test can count how often it ran, and where. A gated step then
stands at a gate, an advisory lock that the test holds: it is in the middle of the step for as long as the test wants.
"""

import asyncio
import os

import asyncpg
from perdure import current, step, workflow


async def _effect(label: str, *, gate: int | None = None) -> str:
    run = current()
    connection = await asyncpg.connect(os.environ["PERDURE_DATABASE_URL"])
    try:
        await connection.execute(
            "INSERT INTO e2e.effects (run, label, pod) VALUES ($1, $2, $3)",
            run.run_id,
            label,
            os.environ["PERDURE_POD_NAME"],
        )
        if gate is not None:
            await connection.execute("SELECT pg_advisory_lock_shared($1)", gate)
    finally:
        await connection.close()
    return label


@step(name="e2e.act")
async def act(label: str) -> str:
    return await _effect(label)


@step(name="e2e.stand", max_attempts=60, interval=0.5, max_interval=1)
async def stand(label: str, gate: int) -> str:
    """Tried again for half a minute, as its own connection may be cut with the database."""
    return await _effect(label, gate=gate)


@step(name="e2e.fail", max_attempts=2, interval=0.1)
async def fail(label: str) -> str:
    await _effect(label)
    raise ValueError(f"{label} does not work")


@step(name="e2e.block")
def block(label: str) -> str:
    """A body that is not async: it runs in a thread."""
    return asyncio.run(_effect(label))


@workflow(name="e2e.line")
async def line(labels: list[str], gated: str = "", gate: int = 0) -> list[str]:
    """One step for each label, one after the other; the one named `gated` stands at the gate."""
    return [await (stand(label, gate) if label == gated else act(label)) for label in labels]


@workflow(name="e2e.failing")
async def failing() -> str:
    await block("before")
    return await fail("broken")
