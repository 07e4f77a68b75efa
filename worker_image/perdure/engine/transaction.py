"""Steps whose outcome is committed with the SQL of their own body: both, or neither, however often a worker dies.

`Steps` calls `commit_with_step` once the start of the step is durable, which has also flushed everything the run wrote
before (rule R14) and costs no commit of its own, as the finish before it travels in the same statement. The body runs
in a transaction of its own; the last statement before COMMIT takes the run's row, tests the fence and writes the step.
Whoever finds the run not owned rolls back. Nothing of the user's rows can be there without the step, nor twice.

| what happens | then |
|---|---|
| the body raises, a constraint fails, also at COMMIT | rolled back; a failure of the step |
| 40001, 40P01, or the connection is lost before COMMIT | rolled back; all of it again, which is no failure |
| COMMIT was sent and no answer came | wait until that session is over, look at the step's row, believe it |
| the fence has moved | rolled back, ownership lost |
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import asyncpg

from perdure.engine.registry import Isolation, StepDefinition
from perdure.errors import OwnershipLost, TransactionAborted, TransactionMisused
from perdure.model.rows import OwnedFlags, StepWrite
from perdure.store import transaction as store
from perdure.store.pool import ANSWER_SECONDS, STATEMENT_SECONDS, connection_errors, database_url, is_transient
from perdure.store.transaction import Claim
from perdure.store.usersql import SqlPool, cut, is_gone

if TYPE_CHECKING:
    from perdure.engine.execute import Execution

Connection: TypeAlias = "asyncpg.Connection[Any]"
Transaction: TypeAlias = "asyncpg.transaction.Transaction"
T = TypeVar("T")

MAX_TRIES = 10
"""How often a transaction is tried that loses against others, or its connection, before that is the step's failure:
with the pauses between them some seconds, in which any rival of a sane size has ended."""

PAUSE_FIRST, PAUSE_LONGEST = 0.01, 1.0
"""Seconds between such tries, doubled and spread so that two rivals do not meet again."""

OPEN_LONGEST = 2.0
"""Longest pause between attempts to get a connection: a database that is back is found within it."""

ANSWER = STATEMENT_SECONDS + ANSWER_SECONDS
"""Seconds for the answer to a statement of ours; after it the line is taken to be cut."""

COMMIT_SECONDS = 60.0
"""Seconds for the answer to COMMIT: deferred constraints are checked in it."""

ROLLBACK_SECONDS = 3.0
"""Seconds to roll back in good order; after it the connection is cut, which does the same."""

logger = logging.getLogger(__name__)
_current: ContextVar[Connection | None] = ContextVar("perdure_transaction", default=None)


class Ledger(Protocol):
    """Where the transactions of one claim are run: the worker's connections for users' SQL, and under which ownership
    they write."""

    @property
    def claim(self) -> Claim:
        """What the last statement of each transaction tests."""
        ...

    @property
    def closed(self) -> bool:
        """Whether there will be no more connections: the registration is over."""
        ...

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for a block. Raises what connecting raises."""
        ...

    def committed(self, write: StepWrite, flags: OwnedFlags) -> None:
        """A step was committed here and not by the log; the flags came back with it."""
        ...

    def lost(self) -> None:
        """The fence has moved on."""
        ...


class _Again(Exception):
    """Nothing was committed, and it is nobody's fault: all of it once more."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


class _Unknown(Exception):
    """COMMIT was sent, and what came of it is to be found out."""

    def __init__(self, cause: Exception, flags: OwnedFlags) -> None:
        super().__init__()
        self.cause = cause
        self.flags = flags


class _NotOwned(Exception):
    """The fence has moved on, or the step is final by another hand: nothing of this may stay."""


Body = Callable[[Connection], Awaitable[T]]
Record = Callable[[T], Awaitable[StepWrite]]


async def commit_with_step(ledger: Ledger, isolation: Isolation, body: Body[T], record: Record[T]) -> None:
    """Run the body in a transaction, write the step that `record` makes of its result in it, commit.

    Durable on return, all of it. Raises what the body and `record` raise, `TransactionMisused`, a constraint's error
    at COMMIT: then nothing of it is there. Raises `OwnershipLost` when the run has another owner; nothing is there.
    """
    for tries in count(1):
        try:
            write, flags = await _try(ledger, isolation, body, record)
        except _NotOwned:
            ledger.lost()
            raise OwnershipLost("the run has another owner") from None
        except _Again as again:
            if tries >= MAX_TRIES:
                raise again.cause from None
            logger.info("a transaction of run %s begins anew: %s", ledger.claim.run_id, again.cause)
            await asyncio.sleep(min(PAUSE_LONGEST, PAUSE_FIRST * 2**tries) * random.uniform(0.5, 1.5))  # noqa: S311
        else:
            ledger.committed(write, flags)
            return


async def _try(ledger: Ledger, isolation: Isolation, body: Body[T], record: Record[T]) -> tuple[StepWrite, OwnedFlags]:
    write: StepWrite | None = None
    try:
        async with _connection(ledger) as connection:
            transaction = connection.transaction(isolation=isolation)
            mark = secrets.token_hex(8)
            ours = True
            try:
                await _answered(transaction.start())
                await _answered(store.begin(connection, mark))
                ours = False
                value = await _run_body(connection, body)
                write = await record(value)
                ours = True
                flags = await _finish(connection, ledger.claim, write, mark)
            except BaseException as error:
                lost = is_gone(connection)
                await _roll_back(connection, transaction)
                if isinstance(error, Exception) and (lost or _contended(error) or (ours and is_transient(error))):
                    raise _Again(error) from error
                raise
            await _commit(connection, transaction, flags)
    except _Unknown as unknown:
        assert write is not None
        if not await _settled(ledger, write):
            raise _Again(unknown.cause) from unknown.cause
        return write, unknown.flags
    return write, flags


async def _run_body(connection: Connection, body: Body[T]) -> T:
    token = _current.set(connection)
    connection.guard(True)
    try:
        return await body(connection)
    finally:
        _current.reset(token)
        with suppress(asyncpg.InterfaceError):
            connection.guard(False)


async def _finish(connection: Connection, claim: Claim, write: StepWrite, mark: str) -> OwnedFlags:
    ended = TransactionMisused(
        "the body has ended its transaction itself: what it wrote before that is not undone, and the step is not "
        "recorded with it; leave BEGIN, COMMIT and ROLLBACK to the engine"
    )
    if not is_gone(connection) and not connection.is_in_transaction():
        raise ended
    try:
        finished = await _answered(store.finish(connection, claim, write, mark))
    except asyncpg.InFailedSQLTransactionError as error:
        raise TransactionAborted(
            "the body has passed over an error of its SQL, after which Postgres commits nothing of the transaction: "
            "put what may fail into `async with connection.transaction()`, or let the error end the step"
        ) from error
    if not finished.same:
        raise ended
    if finished.flags is None:
        raise _NotOwned
    return finished.flags


async def _commit(connection: Connection, transaction: Transaction, flags: OwnedFlags) -> None:
    """Raises `_Unknown` unless the server has said which."""
    try:
        async with asyncio.timeout(COMMIT_SECONDS):
            await transaction.commit()
    except asyncpg.PostgresError as error:
        if not is_gone(connection) and not is_transient(error):
            raise
        if _contended(error) and not is_gone(connection):
            raise _Again(error) from error
        cut(connection)
        raise _Unknown(error, flags) from error
    except Exception as error:
        cut(connection)
        raise _Unknown(error, flags) from error


async def _settled(ledger: Ledger, write: StepWrite) -> bool:
    """Whether it was committed. Asks until there is an answer: the run cannot go on without it."""
    for failures in count(1):
        try:
            async with _connection(ledger) as connection, asyncio.timeout(ANSWER):
                return await store.settled(connection, ledger.claim, write)
        except (asyncpg.PostgresError, *connection_errors) as error:
            if not is_transient(error):
                raise
            await asyncio.sleep(min(OPEN_LONGEST, PAUSE_FIRST * 2**failures))
    raise AssertionError


async def _roll_back(connection: Connection, transaction: Transaction) -> None:
    """Never raises but for a cancellation, which cuts the connection."""
    if is_gone(connection):
        return
    try:
        async with asyncio.timeout(ROLLBACK_SECONDS):
            await transaction.rollback()
    except BaseException as error:
        cut(connection)
        if not isinstance(error, Exception):
            raise


async def _answered(answer: Awaitable[T]) -> T:
    async with asyncio.timeout(ANSWER):
        return await answer


def _contended(error: BaseException) -> bool:
    """Whether Postgres chose this transaction as the one to give way, also where the body wraps that."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, asyncpg.SerializationError | asyncpg.DeadlockDetectedError):
            return True
        seen.add(id(cause))
        cause = cause.__cause__
    return False


@asynccontextmanager
async def _connection(ledger: Ledger) -> AsyncIterator[Connection]:
    """A connection, however long the database is away: that is no failure of the step."""
    async with AsyncExitStack() as stack:
        for failures in count(1):
            try:
                connection = await stack.enter_async_context(ledger.connection())
                break
            except (asyncpg.PostgresError, *connection_errors) as error:
                if ledger.closed:
                    raise OwnershipLost("this registration of the worker is over") from error
                if not is_transient(error):
                    raise
                if failures & (failures - 1) == 0:
                    logger.warning("no connection for a transaction of run %s: %s", ledger.claim.run_id, error)
                await asyncio.sleep(min(OPEN_LONGEST, PAUSE_FIRST * 2**failures))
        yield connection


async def run_plainly(
    execution: Execution | None, definition: StepDefinition, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """The body in a transaction that records nothing: outside a run, and as a part of another step.

    Inside another transaction it is a savepoint of that one.
    """
    assert definition.transaction is not None

    async def body(connection: Connection) -> Any:
        return await definition.function(connection, *args, **kwargs)

    outer = _current.get()
    if outer is not None:
        async with outer.transaction():
            return await body(outer)
    async with sql_connection(execution) as connection, connection.transaction(isolation=definition.transaction):
        return await _run_body(connection, body)


@asynccontextmanager
async def sql_connection(execution: Execution | None) -> AsyncIterator[Connection]:
    """A connection of the worker that executes the run; outside a run one of its own, to the database that the
    environment names. Raises `ConfigurationError` when it names none."""
    if execution is not None and execution.ledger is not None:
        async with execution.ledger.connection() as connection:
            yield connection
        return
    pool = SqlPool(database_url(), application_name="perdure-sql", size=1)
    try:
        async with pool.acquire() as connection:
            yield connection
    finally:
        await pool.close()


def current_connection() -> Connection | None:
    """The connection of the transaction in whose body this code runs."""
    return _current.get()
