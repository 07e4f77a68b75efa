"""Calls inside a step: part of the step and made again with it, nothing is recorded of them, and yet they are under the
fence: a body that is left behind has no effect any more.

Used by the kinds that may be called there. An outage of the database is waited for, as at a checkpoint: it is no
failure of the step. Also for code that runs in an event loop of its own, in the thread of a sync step.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.engine.context import Scope
from perdure.engine.encoding import Encoding
from perdure.engine.transaction import current_connection
from perdure.errors import InsideStep, NonExistentWorkflow, OwnershipLost
from perdure.model.calls import PlainSend
from perdure.store.pool import is_transient

if TYPE_CHECKING:
    from perdure.engine.execute import Execution

T = TypeVar("T")

PAUSE_FIRST, PAUSE_LONGEST = 0.02, 1.0
"""Seconds between looks at an event, and between questions to a database that does not answer: as clients do it."""


def send(scope: Scope, message: PlainSend, encoding: Encoding) -> Coroutine[Any, Any, None]:
    """Send a message, of which the value is written as far as `encoding` has begun. With an empty key each call sends
    one, however often it is tried.

    Raises `InsideStep` in a transaction.
    """
    if current_connection() is not None:
        raise InsideStep(
            f"perdure.send was called in transaction {scope.name}: a message is not taken back when that is rolled "
            "back; send it from the workflow"
        )
    execution = scope.execution
    own = message.key or f"step:{execution.claimed.id}/{scope.index}/{secrets.token_hex(8)}"
    return beside(execution, _send(execution, replace(message, key=own), encoding))


def get_event(scope: Scope, run_id: str, event: str, timeout: float | None) -> Coroutine[Any, Any, str | None]:
    """The JSON of an event's value, None when it is not set in time. It is looked at every now and then, as a step
    keeps its slot anyway. Where this process cannot read the value, the run is kept for another."""
    return beside(scope.execution, _look_for(scope.execution, run_id, event, timeout))


async def _send(execution: Execution, message: PlainSend, encoding: Encoding) -> None:
    message = replace(message, value=await execution.values.finish(message.value, encoding, "the message"))

    async def carry_out() -> bool:
        await execution.log.flush()
        return await execution.log.plainly(message)

    if not await answer(execution, carry_out):
        raise NonExistentWorkflow(f"there is no run {message.to} to send a message to")


async def _look_for(execution: Execution, run_id: str, event: str, timeout: float | None) -> str | None:  # noqa: ASYNC109
    clock = asyncio.get_running_loop().time
    until = None if timeout is None else clock() + timeout
    pause = PAUSE_FIRST
    while True:
        found = await answer(execution, lambda: execution.log.look_at_event(run_id, event))
        left = None if until is None else until - clock()
        if found.value is not None:
            return await execution.values.read(found.value, f"event {event} of run {run_id}")
        if left is not None and left <= 0:
            return None
        await asyncio.sleep(pause if left is None else min(pause, left))
        pause = min(PAUSE_LONGEST, pause * 1.5)


async def answer(execution: Execution, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The answer, however long the database is away. Raises the signal when the body is not wanted any more."""
    pause = PAUSE_FIRST
    while True:
        if execution.dropping:
            raise execution.signal()
        if execution.log.admitted():
            try:
                return await ask()
            except OwnershipLost as signal:
                execution.interrupt(signal)
                raise execution.signal() from None
            except Exception as error:
                if not is_transient(error):
                    raise
        await asyncio.sleep(pause)
        pause = min(PAUSE_LONGEST, pause * 2)


async def beside(execution: Execution, call: Coroutine[Any, Any, T]) -> T:
    """The result of a call that is made on the loop of the run, wherever this is."""
    if asyncio.get_running_loop() is execution.loop:
        return await call
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, execution.loop))
