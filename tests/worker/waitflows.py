"""Workflows for the tests of waits for runs, beside those of `flows`, which they wait for."""

from typing import Any

import perdure

from tests.worker import flows


@perdure.workflow(name="w.result")
async def result(run_id: str) -> str:
    """What the end of any run looks like from here."""
    try:
        return f"returned {await perdure.handle(run_id).result()!r}"
    except perdure.PerdureError as error:
        return f"raised {error.code}"
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"


@perdure.workflow(name="w.same_start")
async def same_start(run_id: str, gate_name: str) -> Any:
    """Starts what somebody else has started before, and waits for it."""
    started = await flows.through_a_gate.options(id=run_id).start(gate_name)
    return await started.result()


@perdure.workflow(name="w.select")
async def select(runs: list[str]) -> str:
    return await perdure.select_workflow(*runs)


@perdure.workflow(name="w.join")
async def join(runs: list[str]) -> list[str]:
    """How they stand once all have ended, and that this took no place."""
    await perdure.join_workflows(*runs)
    return [(await perdure.handle(run).status()).name for run in runs]


@perdure.workflow(name="w.run")
async def run(gate_name: str) -> list[str]:
    return await flows.through_a_gate.run(gate_name)
