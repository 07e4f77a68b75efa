"""What the one workflow of the faults does with `select`, with time, with chance and in steps. Used by `flows`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import perdure

from tests.faults.effects import begun
from tests.faults.programs import FOREVER, Node, mixed


@perdure.step(name="f.step")
async def plain(key: str, value: int, ms: int) -> int:
    await begun(key)
    if ms:
        await asyncio.sleep(ms / 1000)
    return mixed(key, value)


@perdure.step(name="f.noted")
async def noted(key: str, value: int, at: str, drawn: str) -> int:
    """Its arguments are compared at a replay."""
    await begun(key)
    return mixed(key, value)


async def race(node: Node, value: int) -> int:
    """What never ends loses: a topic, an event, a sleep, a body."""
    key, me = node["key"], perdure.current().run_id
    winner = node["branches"][node["wins"]]
    if winner == "recv":
        await perdure.send(me, value, key)
    never: dict[str, Callable[[], perdure.PendingCall[Any]]] = {
        "recv": lambda: perdure.recv(f"{key}-never"),
        "event": lambda: perdure.get_event(me, f"{key}-never"),
        "sleep": lambda: perdure.sleep(FOREVER),
        "work": lambda: plain(key, value, int(FOREVER * 1000)),
    }
    wins: dict[str, Callable[[], perdure.PendingCall[Any]]] = {
        "step": lambda: plain(key, value, node["ms"]),
        "recv": lambda: perdure.recv(key),
        "sleep": lambda: perdure.sleep(node["seconds"]),
    }
    calls = [(wins if place == node["wins"] else never)[each]() for place, each in enumerate(node["branches"])]
    won = await perdure.select(*calls)
    return mixed(key, value + won.index)


async def chance(node: Node, value: int) -> int:
    at = await perdure.now()
    return await noted(node["key"], value, at.isoformat(), f"{perdure.uuid4()} {perdure.random().random()}")


async def changed(node: Node, value: int) -> int:
    """A place at which the body was changed, before any of these runs came there, and one that needs no marker."""
    new = await perdure.patch(node["key"])
    result = await plain(node["key"], value, 0)
    return result if new and await perdure.deprecate_patch(f"{node['key']}-before") else -1


async def told(node: Node, value: int) -> int:
    """A step that is written where it is called sends its own run a message, each time that it is tried."""
    key, me = node["key"], perdure.current().run_id

    async def tell(value: int) -> int:
        await begun(key)
        await perdure.send(me, value, key, key=key)
        return mixed(key, value)

    result = await perdure.run_step("f.tells", tell, value)
    heard = await perdure.recv(key)
    return result if heard == value and await perdure.recv(key, timeout=0) is None else -1
