"""Workflows for the tests of streams. Their gates and effects are those of `flows`."""

import asyncio
from typing import Any

import perdure
from perdure.errors import InsideStep, StreamClosed

from tests.worker.flows import effect, gate


@perdure.step(name="s.gated")
async def gated(name: str) -> None:
    await effect("begun", name)
    await gate(name)


@perdure.workflow(name="s.writes")
async def writes(first: int, count: int, close: bool = True, before: str = "") -> None:
    """Writes numbers, waiting at a gate before the last one."""
    for number in range(first, first + count - 1):
        await perdure.write_stream("s", number)
    if before:
        await gated(before)
    await perdure.write_stream("s", first + count - 1)
    if close:
        await perdure.close_stream("s")


@perdure.workflow(name="s.reads")
async def reads(run_id: str, count: int, offset: int = 0) -> list[Any]:
    return [await perdure.read_stream(run_id, "s", offset + n, type=int) for n in range(count)]


@perdure.workflow(name="s.reads_on")
async def reads_on(run_id: str, limit: float | None = None) -> list[Any]:
    """Until there is nothing more; why it ended comes last."""
    found: list[Any] = []
    try:
        while True:
            found.append(await perdure.read_stream(run_id, "s", len(found), limit))
    except perdure.StreamTimeout as error:
        return [*found, error.message]


@perdure.step(name="s.tokens", max_attempts=2, interval=0.0)
async def tokens(words: list[str], fails: bool) -> int:
    for word in words:
        await perdure.write_stream("s", word)
    info = perdure.current().step
    if fails and info is not None and info.attempt == 1:
        raise ValueError("once more")
    await perdure.close_stream("s")
    try:
        await perdure.write_stream("s", "late")
    except StreamClosed:
        return len(words)
    return 0


@perdure.workflow(name="s.streams_tokens")
async def streams_tokens(words: list[str], fails: bool = False) -> int:
    return await tokens(words, fails)


@perdure.step(name="s.listens")
async def listens(run_id: str) -> list[Any]:
    return [await perdure.read_stream(run_id, "s", n, 20) for n in range(2)]


@perdure.workflow(name="s.step_reads")
async def step_reads(run_id: str) -> list[Any]:
    return await listens(run_id)


@perdure.step(name="s.threaded")
def threaded() -> str:
    """In the thread of a sync step, with a loop of its own."""

    async def talk() -> None:
        for n in range(3):
            await perdure.write_stream("s", n)

    asyncio.run(talk())
    try:
        perdure.write_stream("s", 3)
    except InsideStep:
        return "refused where nothing can await it"
    return "taken"


@perdure.workflow(name="s.writes_in_a_thread")
async def writes_in_a_thread() -> str:
    return await threaded()


@perdure.transaction(name="s.in_a_transaction")
async def in_a_transaction(connection: Any) -> str:
    try:
        await perdure.write_stream("s", 1)
    except InsideStep as error:
        return error.message
    return "taken"


@perdure.workflow(name="s.writes_in_a_transaction")
async def writes_in_a_transaction() -> str:
    return await in_a_transaction()


@perdure.step(name="s.left_behind")
async def left_behind(name: str) -> None:
    """Goes on when its worker has lost the run."""
    await effect("begun", name)
    while True:
        try:
            await asyncio.sleep(0.02)
            await perdure.write_stream("s", "zombie")
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            await effect(type(error).__name__, name)
            raise


@perdure.workflow(name="s.left_behind_run")
async def left_behind_run() -> None:
    await left_behind("g")


@perdure.workflow(name="s.sets")
async def sets(name: str) -> None:
    await gated(name)
    await perdure.set_event("state", {"of": name})


@perdure.workflow(name="s.stays")
async def stays() -> None:
    await perdure.recv("never")
