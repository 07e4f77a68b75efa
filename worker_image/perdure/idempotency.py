"""Idempotency keys: what must not be done twice, across steps, runs and programs.

A step may run more than once. `perdure.current().step.idempotency_key` is the same on each attempt, for services that
know such keys. These helpers keep keys in Perdure's own database, for what has no such service:

* `once`: marks the key first. The body runs at most once; if it fails, or its process dies, it is not run again.
* `commit_on_success`: marks the key when the body has succeeded. It runs until it has succeeded once, one at a time.
* `remember`: as `commit_on_success`, and later callers get its result.
* `key`: a key made of values: the same in each run with the same input.

Inside a step they use the worker's connections, inside `perdure.transaction` the transaction itself; elsewhere `pool`,
or a connection of their own to the database that the environment names. Keys belong to a scope: the namespace of the
run, outside a run `PERDURE_NAMESPACE`, unless another one is given.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import inspect
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import asyncpg
from pydantic import BaseModel

from perdure.engine.codec import Decoder, encode
from perdure.engine.context import current_scope
from perdure.engine.serialization import PROCESS, written
from perdure.engine.signature import RESULT, hints_of
from perdure.engine.transaction import Connection, current_connection
from perdure.errors import KeyInProgress, KeyLost, StoreUnavailable
from perdure.store import idempotency as store
from perdure.store.idempotency import Key
from perdure.store.pool import ANSWER_SECONDS, STATEMENT_SECONDS, connection_errors, database_url, is_transient
from perdure.store.usersql import SqlPool, cut

__all__ = ["Connections", "Outcome", "commit_on_success", "key", "once", "remember"]

P = ParamSpec("P")
T = TypeVar("T")

KEY_MAX = 200
"""Longest key that is stored as it is, in bytes: readable in the table. Longer ones are stored as their hash."""

LEASE_SECONDS = 30.0
"""How long a holder may be silent before its key is free: that of a worker."""

WAIT_SECONDS = 60.0
"""How long another caller waits for the holder: twice the lease, so that it outlives one that has died."""

POLL_FIRST, POLL_LONGEST = 0.02, 1.0
"""Seconds between looks at a key that somebody holds."""

ANSWER = STATEMENT_SECONDS + ANSWER_SECONDS
"""Seconds for the answer to one statement; after it the line is taken to be cut, and the statement is sent again on
another: it may wait for a transaction that uses the key, which a body may hold open for long."""

RELEASE_SECONDS = 5.0
"""Longest time to free a key after a failure; then its lease frees it."""

HASHED = "sha256:"
"""How a key begins that is stored as its hash."""

SECONDS_MAX = 100 * 365 * 86400.0
"""Longest time to live: a century is for ever, and Postgres can add it to any instant."""


class Connections(Protocol):
    """Where connections come from: an `asyncpg.Pool` is one."""

    def acquire(self) -> AbstractAsyncContextManager[Any]:
        """A connection for a block."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a call came to. True where it ran the body, whose result is `value`; false where that had been done."""

    ran: bool
    value: T | None = None

    def __bool__(self) -> bool:
        return self.ran


def key(*parts: Any) -> str:
    """A key made of values: equal values, equal key, in every process and release. 64 hexadecimal digits.

    Values are those that a step takes; the order of keys in mappings and of elements in sets does not count. Begin
    with a literal that says what it is for: `key("charge", order_id)`. Raises `EncodingFailed`, `ValueError` without
    parts.
    """
    if not parts:
        raise ValueError("a key needs at least one part")
    return hashlib.sha256(_canonical(list(parts))).hexdigest()


async def once(
    key: str,
    body: Callable[[], Awaitable[T]],
    *,
    ttl: float | timedelta | None = None,
    scope: str | None = None,
    pool: Connections | None = None,
) -> Outcome[T]:
    """Run the body unless the key was taken before, by whomever. At most once: the key is taken first.

    A body that fails, or whose process dies, is not run again. `ttl`: seconds after which the key is free again, None
    for never. The mark is durable before the body begins. Raises what the body raises, `StoreUnavailable`.
    """
    async with _holder(key, scope, pool) as holder:
        if not await holder.call(store.mark, _seconds(ttl, "ttl")):
            return Outcome(False)
        return Outcome(True, await body())


async def commit_on_success(
    key: str,
    body: Callable[[], Awaitable[T]],
    *,
    ttl: float | timedelta | None = None,
    lease: float | timedelta = LEASE_SECONDS,
    wait: float | timedelta = WAIT_SECONDS,
    scope: str | None = None,
    pool: Connections | None = None,
) -> Outcome[T]:
    """Run the body until it has succeeded once; one caller at a time. At least once: it may have failed after the fact.

    Another caller waits for `wait` seconds (0: not at all) until the holder has ended: then it is done, or its turn.
    A holder that is not heard of for `lease` seconds has lost the key; while its body runs, the lease is renewed.
    That it is done is durable on return, and kept for `ttl` seconds, None for ever.
    Raises what the body raises, `KeyInProgress`, `KeyLost`, `StoreUnavailable`.
    """
    async with _holder(key, scope, pool) as holder:
        if await holder.hold(_positive(lease), _seconds(wait, "wait") or 0.0) is not None:
            return Outcome(False)
        return Outcome(True, await holder.carry_out(body, _unstored, _seconds(ttl, "ttl")))


async def remember(
    key: str,
    body: Callable[[], Awaitable[T]],
    *,
    ttl: float | timedelta | None = None,
    result: type[T] | None = None,
    lease: float | timedelta = LEASE_SECONDS,
    wait: float | timedelta = WAIT_SECONDS,
    scope: str | None = None,
    pool: Connections | None = None,
) -> T:
    """The result of the body, from the first call that succeeded; as `commit_on_success` else.

    The result is stored like that of a step, and read as the type that `body` is annotated to return, or `result`; the
    first caller gets it that way, too. One that cannot be stored frees the key: nothing is remembered. Raises also
    `EncodingFailed`, `PayloadTooLarge`, `DecodingFailed` when what is stored is of another type, and
    `UnknownSerialization`.
    """
    running, what = current_scope.get(), f"the value of key {key}"
    serializers = PROCESS if running is None else running.execution.registry.serializers
    encoding = PROCESS.encoding(None) if running is None else running.execution.encoding
    decoder = Decoder(_result_of(body) if result is None else result, "the value of an idempotency key")
    async with _holder(key, scope, pool) as holder:
        known = await holder.hold(_positive(lease), _seconds(wait, "wait") or 0.0)
        if known is not None:
            text = await serializers.fetch("null" if known.value is None else known.value, what)
            found: T = decoder.decode(text, what)
            return found

        async def encoded(value: T) -> tuple[str | None, T]:
            text, seen = decoder.round_trip(value, what, encoding)
            return await written(text, encoding, what), seen

        return await holder.carry_out(body, encoded, _seconds(ttl, "ttl"))


Connect = Callable[[], AbstractAsyncContextManager[Connection]]
Encoded = Callable[[T], Awaitable[tuple[str | None, T]]]


class _Holder:
    """One caller of one key. `connect` gives connections; in `transaction` there is but one, and no trying again."""

    def __init__(self, key: Key, connect: Connect, *, transaction: bool = False) -> None:
        self._key = key
        self._connect = connect
        self._transaction = transaction
        self._lease = LEASE_SECONDS

    async def call(
        self, operation: Callable[Concatenate[Connection, Key, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run one statement; again, for the time of a lease, while the database does not answer."""
        until = time.monotonic() + self._lease
        for failures in count():
            try:
                async with self._connect() as connection:
                    return await self._answered(connection, operation(connection, self._key, *args, **kwargs))
            except (asyncpg.PostgresError, *connection_errors) as error:
                if self._transaction or not is_transient(error):
                    raise
                if time.monotonic() > until:
                    raise StoreUnavailable(f"the idempotency keys cannot be reached: {error}") from error
                await asyncio.sleep(min(POLL_LONGEST, POLL_FIRST * 2**failures))
        raise AssertionError

    async def _answered(self, connection: Connection, answer: Awaitable[T]) -> T:
        """In a transaction, how long a statement may take is the transaction's to say."""
        if self._transaction:
            return await answer
        try:
            async with asyncio.timeout(ANSWER):
                return await answer
        except TimeoutError as error:
            cut(connection)
            raise TimeoutError(f"no answer within {ANSWER:g} s") from error

    async def hold(self, lease: float, wait: float) -> store.Known | None:
        """Hold the key: None; what is known of it, when it is done. Raises `KeyInProgress` after `wait` seconds."""
        self._lease = lease
        until = time.monotonic() + wait
        for looks in count():
            if await self.call(store.claim, lease):
                return None
            known = await self.call(store.read)
            if known is None:
                continue
            if known.done:
                return known
            left = until - time.monotonic()
            if left <= 0:
                raise KeyInProgress(
                    f"somebody else is at what key {self._key.key} stands for"
                    + (f", and has not ended within {wait:g} s" if wait else "")
                )
            pause = min(left, POLL_LONGEST, POLL_FIRST * 2 ** min(looks, 10))
            if known.expires_in is not None:
                pause = min(pause, max(known.expires_in, POLL_FIRST))
            await asyncio.sleep(pause)
        raise AssertionError

    async def carry_out(self, body: Callable[[], Awaitable[T]], encoded: Encoded[T], ttl: float | None) -> T:
        """Run the body while the lease is renewed; then keep the text that `encoded` makes of its result."""
        renewing = None if self._transaction else asyncio.create_task(self._renew())
        try:
            text, seen = await encoded(await body())
            kept = await self.call(store.finish, text, ttl)
        except BaseException:
            if not self._transaction:
                await self._release()
            raise
        finally:
            if renewing is not None:
                renewing.cancel()
                await asyncio.gather(renewing, return_exceptions=True)
        if not kept:
            raise KeyLost(
                f"the holder of key {self._key.key} was not heard of for {self._lease:g} s, and somebody else took it"
            )
        return seen

    async def _renew(self) -> None:
        kept = True
        while kept:
            await asyncio.sleep(self._lease / 3)
            with suppress(StoreUnavailable):
                kept = await self.call(store.renew, self._lease)

    async def _release(self) -> None:
        """Where this fails the lease frees the key."""
        with suppress(StoreUnavailable, asyncpg.PostgresError, *connection_errors):
            async with asyncio.timeout(RELEASE_SECONDS):
                await self.call(store.release)


@asynccontextmanager
async def _holder(key: str, scope: str | None, pool: Connections | None) -> AsyncIterator[_Holder]:
    """In the body of a transaction it is a savepoint of that one: a failure that is caught leaves no key behind."""
    running = current_scope.get()
    if running is not None and running.index is None:
        raise RuntimeError("the body of a workflow runs again in a replay: use idempotency keys in a step")
    if scope is None:
        scope = os.environ.get("PERDURE_NAMESPACE") or "default"
        scope = scope if running is None else running.execution.claimed.namespace
    stored = Key(_storable(scope), _storable(key), secrets.token_hex(16))
    inside = current_connection() if pool is None else None
    ledger = None if running is None else running.execution.ledger
    if inside is not None:
        async with inside.transaction():
            yield _Holder(stored, lambda: nullcontext(inside), transaction=True)
    elif pool is not None:
        yield _Holder(stored, pool.acquire)
    elif ledger is not None:
        yield _Holder(stored, ledger.connection)
    else:
        own = SqlPool(database_url(), application_name="perdure-idempotency", size=1)
        try:
            yield _Holder(stored, own.acquire)
        finally:
            await own.close()


async def _unstored(value: T) -> tuple[str | None, T]:
    return None, value


def _storable(text: str) -> str:
    """As Postgres can store it, and short: else its hash. What looks like a hash is hashed, so that none is taken for
    one."""
    if not isinstance(text, str):
        raise TypeError(f"a key is a text, not {type(text).__name__}: make one of values with idempotency.key(...)")
    if not text:
        raise ValueError("a key must not be empty")
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= KEY_MAX and text.isprintable() and not text.startswith(HASHED):
        return text
    return HASHED + hashlib.sha256(raw).hexdigest()


def _seconds(value: float | timedelta | None, name: str) -> float | None:
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not 0 <= seconds <= SECONDS_MAX:
        raise ValueError(f"{name} must be 0 to {SECONDS_MAX:.0f} seconds, not {value}")
    return seconds


def _positive(lease: float | timedelta) -> float:
    seconds = _seconds(lease, "lease")
    if not seconds:
        raise ValueError("the lease must be longer than nothing")
    return seconds


def _canonical(value: Any) -> bytes:
    """JSON of a value, the same for equal values: objects by key, sets by element."""
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        pairs = sorted(encode({name: None}, "a part of a key").encode() + _canonical(value[name]) for name in value)
        return b"{" + b",".join(pairs) + b"}"
    if isinstance(value, set | frozenset):
        return b"[" + b",".join(sorted(map(_canonical, value))) + b"]"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(map(_canonical, value)) + b"]"
    return encode(value, "a part of a key").encode()


def _result_of(body: Callable[..., Any]) -> Any:
    """The type that the body is annotated to return, anything where it is not."""
    while isinstance(body, partial):
        body = body.func
    function = body if inspect.isfunction(body) or inspect.ismethod(body) else type(body).__call__
    hints = hints_of(function, (RESULT,)) if inspect.isroutine(function) else {}
    return hints.get(RESULT, Any)
