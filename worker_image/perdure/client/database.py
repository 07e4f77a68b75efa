"""The client's connections: opened when first used, thrown away when in doubt, and errors in words of this project.

Used by client and watcher, each with connections of its own, so that a wait never stands behind a start.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import asyncpg

from perdure.engine.context import outside_of_bodies
from perdure.errors import (
    ClientClosed,
    InvalidArgument,
    PerdureError,
    PoolerInTheWay,
    SchemaOutOfRange,
    StoreUnavailable,
)
from perdure.store.pool import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    STATEMENT_SECONDS,
    connection_errors,
    is_bad_row,
)
from perdure.store.pooler import explain
from perdure.store.sessions import Sessions

P = ParamSpec("P")
T = TypeVar("T")

Connection: TypeAlias = "asyncpg.Connection[Any]"

APPLICATION_NAME = "perdure-client"

CALL_SECONDS = CONNECT_SECONDS + STATEMENT_SECONDS + ANSWER_SECONDS
"""Longest call with everything: waiting for a free connection, opening one, the statement and its answer."""

RETRY_SECONDS = 10.0
"""No further attempt begins when so much time has passed: longer than a server's restart, short for a caller."""

RETRY_FIRST, RETRY_LONGEST = 0.05, 2.0
"""First and longest pause between attempts: a connection that was cut can be had again at once."""

CLOSE_SECONDS = 2.0
"""How long calls under way may take to end when the client closes."""

_NO_SCHEMA = frozenset({"42P01", "42703", "3F000"})
"""SQLSTATEs of a table, column or schema that is not there."""


class Database:
    """At most `size` connections to one database."""

    def __init__(self, url: str, *, size: int) -> None:
        self._sessions = Sessions(url, application_name=APPLICATION_NAME, size=size)
        self._closed = False
        self.gate: Callable[[str], None] = outside_of_bodies
        """Asked before each call whether it may be made here; raises what it is refused with."""

    async def call(
        self,
        operation: Callable[Concatenate[asyncpg.Connection[Any], P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run the operation once, on a connection of its own.

        Raises `StoreUnavailable` when nothing is known about what was asked, `SchemaOutOfRange`, `ClientClosed`,
        `InsideWorkflow` in the body of a run.
        """
        self.gate("a client asked the database")
        if self._closed:
            raise ClientClosed("the client was closed")
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self._sessions.run(operation, *args, **kwargs)
        except (asyncpg.PostgresError, *connection_errors) as error:
            if self._closed:
                raise ClientClosed("the client was closed") from error
            raise translated(error) from error

    async def persist(
        self,
        operation: Callable[Concatenate[asyncpg.Connection[Any], P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """As `call`, and again for some seconds while the database is away: for what does no harm when done twice."""
        give_up_at = time.monotonic() + RETRY_SECONDS
        pause = RETRY_FIRST
        while True:
            try:
                return await self.call(operation, *args, **kwargs)
            except StoreUnavailable:
                if time.monotonic() + pause > give_up_at:
                    raise
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, keeps no secret
            pause = min(RETRY_LONGEST, pause * 2)

    async def close(self) -> None:
        """Close all connections, those of calls under way after `CLOSE_SECONDS`."""
        if not self._closed:
            self._closed = True
            await self._sessions.close(CLOSE_SECONDS)


def translated(error: BaseException) -> PerdureError:
    """The error of a database call in words of this project; Postgres' own are in it. The URL is not."""
    state = getattr(error, "sqlstate", None) or ""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if (advice := explain(error)) is not None:
        return PoolerInTheWay(advice)
    if state in _NO_SCHEMA:
        return SchemaOutOfRange(f"the database's schema does not fit this program, run `perdure migrate`: {said}")
    if is_bad_row(error):
        return InvalidArgument(f"Postgres refuses a value: {said}")
    return StoreUnavailable(f"the database did not do what was asked: {said}")
