"""Leaves a trace of each execution of a step's body, from within it: a row of `faults.effects`.

Written on a connection of its own, in a thread of its own, past every proxy, and again until it is there; the row's
id makes a repetition harmless. With it goes what the database said at that moment about the run and the step.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from functools import cache
from typing import Any
from uuid import uuid4

import asyncpg
from perdure.engine.context import current_scope
from perdure.store.pool import connection_errors

from tests.faults import numbered
from tests.faults.sql import text

assert numbered.writer  # whose import has registered its serializer

RETRY_SECONDS = 0.05


async def begun(key: str) -> None:
    """The body of the step that runs now begins. Returns once that is on record."""
    await asyncio.wrap_future(_record(key))


def begun_sync(key: str) -> None:
    """The same from a thread."""
    _record(key).result()


def run_attempts() -> int:
    """How often the body of this run has failed."""
    scope = current_scope.get()
    assert scope is not None
    return scope.execution.claimed.run_attempts


def _record(key: str) -> Any:
    scope = current_scope.get()
    assert scope is not None and scope.index is not None
    run = scope.execution.claimed
    # Not the time of day, which may be wrong here on purpose: this clock is the same in all processes of a machine.
    asked = time.monotonic()
    row = (uuid4(), run.id, scope.index, key, run.fence, scope.attempt, os.environ["PERDURE_POD_NAME"], asked)
    return asyncio.run_coroutine_threadsafe(_writer().write("effect", row), _writer().loop)


async def noted(key: str, how: str, phase: str, token: str = "") -> None:
    """What the step that runs now comes to under an idempotency key. Returns once that is on record."""
    scope = current_scope.get()
    assert scope is not None and scope.index is not None
    run = scope.execution.claimed
    row = (uuid4(), run.id, scope.index, run.namespace, key, how, phase, token, run.fence)
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_writer().write("note", row), _writer().loop))


class _Writer:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._turn = asyncio.Lock()
        self._connection: asyncpg.Connection[Any] | None = None
        threading.Thread(target=self.loop.run_forever, name="effects", daemon=True).start()

    async def write(self, statement: str, row: tuple[Any, ...]) -> None:
        async with self._turn:
            while True:
                try:
                    if self._connection is None or self._connection.is_closed():
                        self._connection = await asyncpg.connect(
                            os.environ["FAULTS_DATABASE_URL"],
                            timeout=5,
                            server_settings={"application_name": "effects"},
                        )
                    await self._connection.execute(text(statement), *row, timeout=10)
                except (asyncpg.PostgresError, *connection_errors):
                    if self._connection is not None:
                        self._connection.terminate()
                        self._connection = None
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    return


@cache
def _writer() -> _Writer:
    return _Writer()
