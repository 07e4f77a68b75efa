"""Workflows that make every kind of durable call, of which histories are kept for ever: `make histories` runs them.

Never change what a body here does: the histories of earlier releases are replayed against it. A new kind of call gets a
new workflow, or a new step behind everything that a workflow does.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import asyncpg
import perdure
from perdure import Cut
from perdure.codecs import Compression, Encryption
from pydantic import BaseModel

IDEMPOTENT = "kept-"


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Item:
    name: str
    price: Decimal
    size: Size


class Parcel(BaseModel):
    items: list[Item]
    at: datetime
    tags: set[str]


class Refused(Exception):
    def __init__(self, message: str, cents: int) -> None:
        super().__init__(message, cents)
        self.cents = cents


@perdure.step(name="kept.add")
async def add(n: int) -> int:
    return n + 1


@perdure.step(name="kept.slow")
async def slow(n: int) -> int:
    await asyncio.sleep(60)
    return n


@perdure.step(name="kept.sync")
def in_thread(n: int, times: int = 2) -> int:
    return n * times


@perdure.step(name="kept.pack")
async def pack(item: Item, at: datetime) -> Parcel:
    return Parcel(items=[item], at=at, tags={"b", "a", "c"})


@perdure.step(name="kept.turn")
async def turn(mark: bytes, number: UUID, lasts: timedelta) -> tuple[bytes, UUID, timedelta]:
    return mark[::-1], number, 2 * lasts


@perdure.step(name="kept.refuse")
async def refuse(cents: int) -> None:
    raise Refused("no", cents)


@perdure.step(name="kept.flaky", max_attempts=3, interval=0.01)
async def flaky(n: int) -> int:
    step = perdure.current().step
    assert step is not None
    if step.attempt < 3:
        raise ConnectionError(f"attempt {step.attempt}")
    return n


@perdure.step(name="kept.hopeless", max_attempts=2, interval=0.01)
async def hopeless() -> None:
    raise ConnectionError("never")


@perdure.step(name="kept.limited", timeout=0.05)
async def limited() -> None:
    await asyncio.sleep(60)


@perdure.transaction(name="kept.sql")
async def sql(connection: asyncpg.Connection[Any], n: int) -> int:
    return int(await connection.fetchval("SELECT $1::integer + 1", n))


@perdure.workflow(name="kept.steps")
async def steps(item: Item) -> list[Any]:
    """Steps of every make, values of every type, failures of every kind."""
    parcel = await pack(item, datetime(2026, 3, 1, 12, tzinfo=UTC))
    told: list[Any] = [len(parcel.tags), await in_thread(3), await in_thread(3, times=4)]
    mark, number, lasts = await turn(b"\x00\xff", UUID(int=9), timedelta(hours=3))
    told += [mark.hex(), str(number), lasts.total_seconds(), await flaky(7)]
    for call in (refuse(99), hopeless(), limited().map_error(lambda error: ValueError(type(error).__name__))):
        try:
            await call
        except Refused as error:
            told.append(error.cents)
        except perdure.MaxStepRetriesExceeded as error:
            told.append([str(each) for each in error.errors])
        except ValueError as error:
            told.append(str(error))
    told.append(await sql(1))
    told.append(await perdure.run_step("kept.closure", lambda n: n + told[0], 5))
    told.append(sum(await perdure.gather(*(add(n) for n in range(20)))))
    return told


@perdure.workflow(name="kept.values")
async def values() -> list[str]:
    """Time and chance."""
    now = await perdure.now()
    drawn = [perdure.random().randrange(10) for _ in range(5)]
    return [now.isoformat(), str(perdure.uuid4()), *map(str, drawn), str(await add(drawn[0]))]


@perdure.workflow(name="kept.talks")
async def talks() -> list[Any]:
    """Messages, events and streams, all of its own."""
    me = perdure.current().run_id
    await perdure.send(me, {"n": 1}, topic="own", key="k")
    told = [await perdure.recv("own"), await perdure.recv("none", timeout=0.01)]
    await perdure.set_event("state", "ready")
    told += [await perdure.get_event(me, "state"), await perdure.get_event(me, "other", timeout=0.01)]
    await perdure.write_stream("s", 1)
    await perdure.write_stream("s", UUID(int=7))
    await perdure.close_stream("s")
    told += [await perdure.read_stream(me, "s", 1)]
    try:
        await perdure.read_stream(me, "s", 2, timeout=0.01)
    except perdure.StreamTimeout:
        told.append("ended")
    try:
        await perdure.send("nobody", 1)
    except perdure.NonExistentWorkflow:
        told.append("nobody")
    await perdure.sleep(timedelta(milliseconds=5))
    return told


@perdure.workflow(name="kept.child")
async def child(n: int) -> int:
    if n < 0:
        raise Refused("negative", n)
    return await add(n)


@perdure.workflow(name="kept.parent")
async def parent() -> list[Any]:
    """Children and other runs."""
    handles = [await child.start(n) for n in range(3)]
    told: list[Any] = [await handles[0].result(), (await handles[0].status()).name]
    told.append(list(await perdure.join_workflows(*handles)))
    await perdure.join_workflows(*(handle.id for handle in handles))
    told.append(await perdure.select_workflow(handles[2].id, handles[1].id) == handles[2].id)
    try:
        await child.run(-1)
    except Refused as error:
        told.append(error.cents)
    await perdure.debounce(child.prepare(5), key=perdure.current().run_id, delay=3600)
    return told


@perdure.workflow(name="kept.races")
async def races() -> list[Any]:
    """Races of durable calls."""
    first = await perdure.select(late=perdure.sleep(3600), quick=add(1))
    second = await perdure.select(perdure.recv("none"), perdure.sleep(0.005), slow(1))
    third: Any = None
    try:
        await perdure.select(refuse(1), perdure.sleep(3600))
    except Refused as error:
        third = error.cents
    return [first.name, first.value, second.index, third, await add(9)]


@perdure.workflow(name="kept.manages")
async def manages(failed: str) -> list[Any]:
    """What is done with runs that are there; `failed` is one of `kept.child` that has failed."""
    told: list[Any] = [(await perdure.get_workflow(failed)).workflow]
    told.append([step.name for step in await perdure.list_steps(failed)])
    told.append([run.id == failed for run in (await perdure.list_workflows(ids=[failed])).runs])
    await perdure.set_attributes(failed, {"seen": True})
    for again in (
        lambda: perdure.resume(failed, child),
        lambda: perdure.fork(failed, workflow=child),
        lambda: perdure.rewind(failed, Cut.BEGINNING, child),
    ):
        handle = await again()
        try:
            await handle.result()
        except Refused as error:
            told.append(error.cents)
    waiting = await child.options(delay=3600).start(1)
    await perdure.set_delay(waiting.id, 7200)
    told.append((await perdure.cancel(waiting.id)).name)
    await perdure.delete(waiting.id)
    return told


@perdure.workflow(name="kept.patched")
async def patched() -> list[Any]:
    """Changes of a body."""
    told: list[Any] = []
    if await perdure.patch("new-way"):
        told.append(await add(1))
    await perdure.deprecate_patch("older-way")
    return [*told, await add(2)]


@perdure.step(name="kept.take_back")
async def take_back(n: int, why: str) -> str:
    return f"{n} {why}"


@perdure.workflow(name="kept.undone")
async def undone() -> None:
    """Fails, and its steps are undone."""
    await add(1).undo(take_back, "first")
    await add(2).undo(take_back, "second")
    await refuse(7)


@perdure.workflow(name="kept.portable", serialization="portable")
async def in_portable(name: str) -> list[Any]:
    """Values as other languages write them, and a failure."""
    told: list[Any] = [name, await add(3)]
    try:
        await refuse(8)
    except Refused as error:
        told.append(error.cents)
    await perdure.set_event("told", {"n": told}, serialization="native")
    return told


class Wrapped:
    """A serializer whose texts show at once that they are none of JSON."""

    name = "kept.wrapped"

    def serialize(self, value: Any, /) -> str:
        return "<" + json.dumps(value) + ">"

    def deserialize(self, text: str, /) -> Any:
        return json.loads(text[1:-1])


perdure.register_serializer(Wrapped())


@perdure.workflow(name="kept.coded")
async def coded(items: list[int]) -> list[int]:
    """Values of a serializer of one's own: recorded by a worker that has it configured."""
    return [await add(each) for each in items]


perdure.register_codec(Compression())
perdure.register_codec(Encryption({"kept": "a2VwdCBmb3IgZXZlciwgYW5kIG5vIHNlY3JldCBhdCA="}))


@perdure.step(name="kept.repeat")
async def repeat(text: str, times: int) -> str:
    return text * times


@perdure.workflow(name="kept.packed")
async def packed(text: str) -> str:
    """Values that are compressed, then encrypted."""
    return (await repeat(text, 500))[:100] + await repeat(text, 2)


@perdure.workflow(name="kept.fails")
async def fails() -> None:
    """Ends with the failure of a step."""
    await add(1)
    await refuse(5)


@perdure.workflow(name="kept.waits")
async def waits() -> None:
    """Never ends: a message, a time and a step that is tried again are waited for."""
    await add(1)
    await perdure.gather(perdure.recv("never"), perdure.sleep(timedelta(days=30)), waits_for_attempt())


@perdure.step(name="kept.waits_for_attempt", max_attempts=5, interval=3600)
async def waits_for_attempt() -> None:
    raise ConnectionError("later")
