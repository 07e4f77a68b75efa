"""Workflows for the tests of the testing kit, in a registry of their own."""

import asyncio
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import perdure
from perdure.engine.registry import Registry
from perdure.engine.transaction import Connection

registry = Registry()
workflow: Any = partial(perdure.workflow, registry=registry)
step: Any = partial(perdure.step, registry=registry)
transaction: Any = partial(perdure.transaction, registry=registry)

done: list[str] = []
"""What bodies have done, in the order in which they did."""


class Backwards:
    """A codec."""

    name = "backwards"

    def encode(self, text: str) -> str:
        return text[::-1]

    def decode(self, text: str) -> str:
        return text[::-1]


@step(name="kit.note")
async def note(what: str) -> str:
    done.append(what)
    return what


@step(name="kit.sync_note")
def sync_note(what: str) -> str:
    done.append(what)
    return what


@step(name="kit.stubborn", max_attempts=3, interval=60)
async def stubborn(what: str) -> str:
    done.append(what)
    return what


@transaction(name="kit.insert")
async def insert(connection: Connection, what: str) -> str:
    done.append(what)
    await connection.execute("INSERT INTO public.gates (name) VALUES ($1)", what)
    return what


@workflow(name="kit.month")
async def month() -> list[datetime]:
    """Reminds each day for thirty days."""
    instants = [await perdure.now()]
    for day in range(30):
        await perdure.sleep(timedelta(days=1))
        await note(f"day {day + 1}")
    instants.append(await perdure.now())
    return instants


@workflow(name="kit.three", max_run_attempts=1)
async def three() -> str:
    first = await note("one")
    second = await sync_note("two")
    third = await note("three")
    return f"{first} {second} {third}"


@workflow(name="kit.sync_and_async")
async def sync_and_async() -> list[str]:
    return [await note("one"), await sync_note("two"), await stubborn("three")]


@workflow(name="kit.persistent", max_run_attempts=1)
async def persistent() -> str:
    return await stubborn("tried")  # type: ignore[no-any-return]


@workflow(name="kit.writer")
async def writer(what: str) -> str:
    stored = await insert(what)
    await note("after")
    return stored  # type: ignore[no-any-return]


@workflow(name="kit.talker")
async def talker(to: str) -> None:
    await note("before")
    await perdure.send(to, "hello")
    await perdure.sleep(60)
    await note("after")


@workflow(name="kit.listener")
async def listener(seconds: float | None = None) -> Any:
    return await perdure.recv(timeout=seconds)


@workflow(name="kit.parent")
async def parent() -> list[str]:
    handles = [await sleeper.start(days) for days in (1, 2, 3)]
    return [await handle.result() for handle in handles]


@workflow(name="kit.sleeper")
async def sleeper(days: float) -> str:
    await perdure.sleep(timedelta(days=days))
    return await note(f"slept {days}")  # type: ignore[no-any-return]


@workflow(name="kit.limited", timeout=timedelta(hours=1))
async def limited() -> None:
    await perdure.recv()


@workflow(name="kit.broken", max_run_attempts=2)
async def broken() -> None:
    await note("tried")
    raise ValueError("broken")


@workflow(name="kit.racer")
async def racer() -> str:
    won = await perdure.select(late=perdure.sleep(timedelta(days=2)), early=note("early"))
    both = await perdure.gather(note("left"), sync_note("right"))
    return f"{won.name} {both}"


@workflow(name="kit.beside")
async def beside() -> tuple[Any, ...]:
    """Two steps and a long wait at once."""
    return await perdure.gather(note("left"), perdure.sleep(timedelta(days=1)), sync_note("right"))


@workflow(name="kit.publisher")
async def publisher() -> None:
    await perdure.sleep(timedelta(days=1))
    await perdure.set_event("progress", "half")
    await perdure.write_stream("lines", "one")
    await perdure.sleep(timedelta(days=1))


@step(name="kit.what_time")
async def what_time() -> datetime:
    return await perdure.now()


@workflow(name="kit.clocks")
async def clocks() -> list[datetime]:
    await perdure.sleep(timedelta(days=10))
    return [await perdure.now(), await what_time()]


@workflow(name="kit.long")
async def long() -> None:
    for _ in range(120):
        await perdure.now()


@step(name="kit.slow")
async def slow() -> None:
    await asyncio.Event().wait()


@workflow(name="kit.stuck")
async def stuck() -> None:
    await slow()


@workflow(name="kit.tick")
async def tick() -> str:
    seen = perdure.scheduled_tick()
    at = "" if seen is None else seen.tick.isoformat()
    return await note(at)  # type: ignore[no-any-return]


@step(name="kit.take_back")
async def take_back(what: str) -> None:
    done.append(f"not {what}")


@workflow(name="kit.saga", max_run_attempts=1)
async def saga() -> None:
    for what in ("one", "two"):
        await note(what).undo(take_back)
    await sync_note("three")


drawn: list[int] = []


@workflow(name="kit.careless", max_run_attempts=1)
async def careless() -> str:
    """Decides by what a replay does not see again."""
    drawn.append(1)
    await note("one")
    if len(drawn) % 2:
        await sync_note("another")
    return await note("two")  # type: ignore[no-any-return]
