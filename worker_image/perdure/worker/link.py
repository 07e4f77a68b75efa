"""One database connection that is opened when first used and again after it broke.

Every service of the worker has one of its own, so that no statement waits behind another's. Keeps the promise that
nothing hangs: every call has a limit, and a connection whose fate is unknown is thrown away, never used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import asyncpg

from perdure.errors import PoolerInTheWay
from perdure.store import pooler
from perdure.store.pool import STATEMENT_SECONDS, connect, connection_errors, is_bad_row

P = ParamSpec("P")
T = TypeVar("T")

Connection: TypeAlias = "asyncpg.Connection[Any]"

CALL_MARGIN = 5.0
"""Seconds over the statement's own timeout for connecting and for the answer to travel."""


class Link:
    """A connection that heals. Calls run one after the other."""

    def __init__(
        self, url: str, *, application_name: str, statement_timeout: float, lock_timeout: float | None = None
    ) -> None:
        """Times in seconds. `lock_timeout` None: a share of the statement's; through a pooler it is the role's."""
        self._url = url
        self._application_name = application_name
        self._statement_timeout = statement_timeout
        self._lock_timeout = lock_timeout
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()

    @property
    def pooled(self) -> bool:
        """Whether sessions are shared with others: nothing may be kept in one, nor be known by its name."""
        return pooler.pooled(self._url)

    @property
    def open(self) -> bool:
        """Whether the connection stands, as far as this side knows."""
        return self._connection is not None and not self._connection.is_closed()

    async def call(
        self, operation: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `operation` on the connection with these arguments, opening it first if need be.

        Raises what the operation raises; after an error that leaves the connection in doubt it is thrown away.
        """
        async with self._turn:
            try:
                async with asyncio.timeout(self._statement_timeout + CALL_MARGIN):
                    return await operation(await self._opened(), *args, **kwargs)
            except BaseException as error:
                # A cancelled call may leave its statement running: the next one must not wait behind it.
                if _in_doubt(error):
                    self.drop()
                if (advice := pooler.explain(error)) is not None:
                    raise PoolerInTheWay(advice) from error
                raise

    def drop(self) -> None:
        """Throw the connection away without a word to the server."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        """Close in good order, within a second."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await connection.close(timeout=1.0)
        except (*connection_errors, asyncpg.PostgresError):
            connection.terminate()

    async def _opened(self) -> Connection:
        if not self.open:
            self._connection = await connect(
                self._url,
                application_name=self._application_name,
                statement_timeout=self._statement_timeout,
                lock_timeout=self._lock_timeout,
            )
        assert self._connection is not None
        return self._connection


def statement_limit(lease_seconds: float) -> float:
    """Longest statement of a worker: below a third of its lease, so that what waits behind one is not late."""
    return min(lease_seconds / 3, STATEMENT_SECONDS)


def error_class(error: BaseException) -> str:
    """SQLSTATE class of an error, `connection` when there was no answer: the label of a metric."""
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return state[:2]
    return "connection" if isinstance(error, connection_errors) else "other"


def _in_doubt(error: BaseException) -> bool:
    if isinstance(error, asyncpg.PostgresError):
        # A server that says why it refused has kept the session, unless it says that it closes it.
        return (error.sqlstate or "")[:2] in {"08", "57"} and not isinstance(error, asyncpg.QueryCanceledError)
    if isinstance(error, asyncio.CancelledError):
        return True
    return isinstance(error, connection_errors) and not is_bad_row(error)
