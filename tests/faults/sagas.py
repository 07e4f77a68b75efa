"""Interpreters of nodes whose child undoes what it has done: it fails, or is cancelled so. See `flows`."""

from __future__ import annotations

import asyncio
from typing import Any

import perdure

from tests.faults import managed, races
from tests.faults.effects import begun
from tests.faults.programs import Node, mixed


@perdure.step(name="f.back")
async def back(result: int, key: str) -> int:
    """Undoes the step of this key, which had this result."""
    await begun(key)
    return mixed(key, result)


async def undone(node: Node, value: int) -> int:
    """A child that fails for good."""
    child = await _child(node)
    try:
        await child.result()
    except ValueError:
        return mixed(node["key"], value)
    return -1


async def taken(node: Node, value: int) -> int:
    """A child that is cancelled once it has done all that it does; or while it is at a step that is to be undone and
    never succeeds."""
    child = await _child(node)
    await perdure.get_event(child.id, node["key"])
    await child.cancel("a program takes it back", mode=perdure.CancelMode.COMPENSATE)
    try:
        await child.result()
    except perdure.AwaitedWorkflowCancelled:
        return mixed(node["key"], value)
    return -1


async def does(node: Node, value: int) -> int:
    """The child."""
    if not node["steps"]:
        from tests.faults.flows import stubborn

        await perdure.set_event(node["key"], value)
        return await stubborn(node["key"]).undo(back, node["key"])
    for number in range(node["steps"]):
        key = f"{node['key']}.{number}"
        value = await races.plain(key, value, 0).undo(back, key)
    if node["ends"] == "undone":
        return await managed.interpreted("fail", node, value)
    await perdure.set_event(node["key"], value)
    await asyncio.get_running_loop().create_future()
    return -1


async def _child(node: Node) -> Any:
    return await managed.interpret().start({"nodes": [{**node, "kind": "does", "ends": node["kind"]}]})


INTERPRETERS = {"undone": undone, "taken": taken, "does": does}
