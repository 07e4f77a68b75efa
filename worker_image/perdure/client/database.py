"""The client's connections: opened when first used, thrown away when in doubt, and errors in words of this project.

Used by client and watcher, each with connections of its own, so that a wait never stands behind a start.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
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
    create_pool,
    is_bad_row,
    is_transient,
)
from perdure.store.pooler import explain

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
        self._url = url
        self._size = size
        self._pool: asyncpg.Pool[Any] | None = None
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
        try:
            async with asyncio.timeout(CALL_SECONDS):
                pool = await self._opened()
                connection = await pool.acquire()
                try:
                    return await operation(connection, *args, **kwargs)
                except BaseException as error:
                    # A cancelled statement may go on at the server: the next one must not wait behind it.
                    if not isinstance(error, asyncpg.PostgresError) or is_transient(error):
                        # One that broke by itself is out of the pool already, and says so instead of the error.
                        with suppress(asyncpg.InterfaceError):
                            connection.terminate()
                    raise
                finally:
                    await pool.release(connection)
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
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await pool.close()
        except TimeoutError:
            pool.terminate()

    async def _opened(self) -> asyncpg.Pool[Any]:
        if self._closed:
            raise ClientClosed("the client was closed")
        if self._pool is None:
            # With none open at once there is nothing to wait for, so two callers cannot both be here.
            self._pool = await create_pool(
                self._url, application_name=APPLICATION_NAME, min_size=0, max_size=self._size
            )
        return self._pool


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
