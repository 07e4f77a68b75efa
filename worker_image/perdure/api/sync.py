"""`run_sync`: calls that have to be awaited, from the thread of a sync step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def run_sync(call: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Make a call and wait for its result, in the thread of a sync step: `perdure.run_sync(perdure.send, to, value)`.

    The call is what it is in an async step: part of the step, made again with it. Raises what the call raises, and
    `RuntimeError` where an event loop runs in this thread: there, `await` it.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("run_sync is for the thread of a sync step; here an event loop runs: await the call")

    async def make() -> R:
        return await call(*args, **kwargs)

    return asyncio.run(make())
