"""Workflows for the tests of what is done with runs that are there."""

import asyncio
from typing import Any

import perdure

from tests.worker.flows import effect, gate


@perdure.step(name="m.note")
async def note(label: str) -> str:
    await effect("done", label)
    return label


@perdure.step(name="m.open")
async def opened(name: str) -> str:
    """Fails until the test has opened the gate."""
    try:
        async with asyncio.timeout(0.1):
            await gate(name)
    except TimeoutError:
        raise ValueError(f"{name} is shut") from None
    return name


@perdure.workflow(name="m.needs")
async def needs(name: str) -> list[str]:
    return [await note("before"), await opened(name), await note("after")]


@perdure.workflow(name="m.child")
async def child(label: str) -> str:
    return await note(label)


@perdure.workflow(name="m.waits")
async def waits(name: str) -> str:
    return await held("held", name)


@perdure.step(name="m.held")
async def held(label: str, name: str) -> str:
    await effect("begun", label)
    await gate(name)
    await effect("ended", label)
    return label


@perdure.workflow(name="m.parent")
async def parent(name: str) -> list[str]:
    await perdure.set_event("state", "begun")
    first = await (await child.start("first")).result()
    message = await perdure.recv("orders")
    await perdure.set_event("state", message)
    second = await (await child.start("second")).result()
    return [first, message, second, await opened(name)]


@perdure.workflow(name="m.runs_child")
async def runs_child(name: str) -> list[str]:
    """Starts a child and waits for it in one call, before what fails."""
    return [await child.run("first"), await opened(name)]


@perdure.workflow(name="m.manager")
async def manager(run_id: str) -> list[Any]:
    """Takes a failed run up again, waits for it, forks and rewinds it, and says what is known of all."""
    handle = await perdure.resume(run_id, needs)
    first = await handle.result()
    forked = await perdure.fork(run_id, "m.note", needs)
    again = await perdure.rewind(run_id, perdure.Cut.LAST_STEP, needs)
    results = await asyncio.gather(forked.result(), again.result())
    await perdure.set_attributes(forked.id, {"checked": True})
    known = await forked.details()
    names = [step.name for step in await handle.steps()]
    listed = await perdure.list_workflows(forked_from=run_id)
    await forked.delete()
    return [first, *results, known.attributes, names, [run.id for run in listed.runs]]


@perdure.step(name="m.cancels")
async def cancels(run_id: str) -> int:
    return await perdure.cancel(run_id, "a step cancelled it")


@perdure.workflow(name="m.steps_cancel")
async def steps_cancel(run_id: str) -> int:
    return await cancels(run_id)


refused: list[Exception] = []
"""What calls of stale steps in this process were refused with."""


@perdure.step(name="m.stale")
async def stale(name: str, run_id: str) -> str:
    await effect("begun", "stale")
    await gate(name)
    try:
        await perdure.cancel(run_id)
    except Exception as error:
        refused.append(error)  # at once: a body that is not wanted any more is stopped where it waits
        raise
    return "done"


@perdure.workflow(name="m.stale_run")
async def stale_run(name: str, run_id: str) -> str:
    return await stale(name, run_id)


@perdure.workflow(name="m.forks")
async def forks(run_id: str) -> str:
    return await (await perdure.fork(run_id, perdure.Cut.BEGINNING, child)).result()


@perdure.workflow(name="m.relies")
async def relies(name: str) -> list[str]:
    return await (await needs.start(name)).result()
