"""Interpreters of nodes that do something with a run of their own: a fork of it, its cancel. See `flows`."""

from __future__ import annotations

from typing import Any

import perdure
from perdure.model.states import CancelMode

from tests.faults.programs import Node, mixed


async def copied(node: Node, value: int) -> int:
    """A child, and a fork of it that does all of it again under an id of its own."""
    child = await interpret().start({"nodes": node["nodes"]})
    first = await child.result()
    fork = await child.fork()
    return mixed(node["key"], first + await fork.result() + value)


async def resumed(node: Node, value: int) -> int:
    """A child that fails, and is taken up again where it has failed: only to fail once more."""
    child = await interpret().start({"nodes": node["nodes"]})
    for again in (True, False):
        try:
            await child.result()
        except ValueError:
            value = mixed(node["key"], value)
        if again:
            await child.resume()
    return value


async def rewound(node: Node, value: int) -> int:
    """A child that has ended well, and does all of it once more."""
    child = await interpret().start({"nodes": node["nodes"]})
    first = await child.result()
    await child.rewind(0)
    return mixed(node["key"], first + await child.result() + value)


async def deleted(node: Node, value: int) -> int:
    """A child that never ends by itself, and is removed with all that it has recorded."""
    child = await interpret().start({"nodes": node["nodes"]})
    await child.delete()
    return mixed(node["key"], value)


async def stopped(node: Node, value: int) -> int:
    """A child that never ends by itself, and is cancelled."""
    child = await interpret().start({"nodes": node["nodes"]})
    await child.cancel("a program cancelled it", mode=CancelMode.IMMEDIATE)
    try:
        await child.result()
    except perdure.AwaitedWorkflowCancelled:
        return mixed(node["key"], value)
    return -1


def interpret() -> Any:
    """The workflow that interprets programs, these nodes among it."""
    from tests.faults.flows import interpret

    return interpret


async def interpreted(kind: str, node: Node, value: int) -> int:
    """What becomes of the node as if it were of this kind."""
    from tests.faults.flows import INTERPRETERS

    return await INTERPRETERS[kind](node, value)


INTERPRETERS = {"copied": copied, "resumed": resumed, "rewound": rewound, "deleted": deleted, "stopped": stopped}
