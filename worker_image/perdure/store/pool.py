"""Connections: where the database is, how a session is set up, what an error says about it.

Everything that talks to Postgres comes through here, so that no session lacks the limits which keep a stuck
statement or a half-open connection from outliving a lease.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

import asyncpg

from perdure.errors import ConfigurationError, PoolerInTheWay
from perdure.model.variables import Variable
from perdure.store import address, pooler

CONNECT_SECONDS = 10.0
"""Longest attempt to connect: above any healthy handshake, below a third of the default lease of 30 s."""

STATEMENT_SECONDS = 8.0
"""Longest statement: below a third of the default lease, so that a beat behind one statement is not late."""

LOCK_FRACTION = 0.75
"""Share of the statement's time that may pass waiting for locks: the error then names the lock."""

IDLE_TRANSACTION_SECONDS = 10.0
"""A session that holds locks and says nothing for so long is dead: its locks must not block a reclaim."""

ANSWER_SECONDS = 4.0
"""How much later than the server's own timeout the client gives up: then the line is cut, not the server slow."""

KEEPALIVE = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
"""The server notices a dead client within 25 s and gives up its locks."""

TCP_USER_TIMEOUT_MS = "20000"
"""The server gives up on a client that acknowledges nothing: within one default lease."""

DATABASE_VARIABLES = (
    Variable("PERDURE_DATABASE_URL", "`postgresql://user:password@host:5432/name`; wins over all the others."),
    Variable("PERDURE_DATABASE_URL_FILE", "File with such a URL, as a Secret is mounted; wins over the parts below."),
    Variable("PERDURE_DATABASE_HOST", "Host, where there is no URL."),
    Variable("PERDURE_DATABASE_PORT", "Port.", "5432"),
    Variable("PERDURE_DATABASE_NAME", "Database.", "perdure"),
    Variable("PERDURE_DATABASE_USER", "User.", "perdure"),
    Variable("PERDURE_DATABASE_PASSWORD", "Password, as it is: nothing in it needs an escape."),
    Variable("PERDURE_DATABASE_PASSWORD_FILE", "File with the password."),
    Variable("PERDURE_DATABASE_SSLMODE", "`sslmode` of libpq, for example `verify-full`."),
    Variable("PERDURE_DATABASE_SSLROOTCERT", "File with the certificates of the authorities to trust."),
    Variable(
        pooler.VARIABLE,
        "`transaction` when a connection pooler in transaction mode (pgbouncer) stands before Postgres: no feature of "
        "a session is used then. `?pooler=transaction` in a URL says the same.",
        "none",
    ),
    Variable(
        "PERDURE_DATABASE_MIGRATE_URL",
        "URL for migrations alone, in the operator and `perdure migrate`: Postgres itself, past a pooler. "
        "`PERDURE_DATABASE_POOLER` is not about it. Default: as everything else.",
    ),
    Variable("PERDURE_DATABASE_MIGRATE_URL_FILE", "File with that URL."),
)
"""Where the database is: what `database_url` and `migrate_url` read. Worker, operator and command line alike."""

connection_errors: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""Exceptions after which nothing is known about what was asked."""

_TRANSIENT_CLASSES = ("08", "53", "57")
_TRANSIENT_STATES = frozenset({"40001", "40P01", "55P03", "25006", "25P03", "25P04"})
_BAD_ROW_CLASSES = ("22", "23", "54")


def is_transient(error: BaseException) -> bool:
    """Whether trying again unchanged can succeed: no answer, no resources, an operator's hand, a deadlock, a lock
    not got in time, a standby that is not the primary yet."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT_STATES
    return isinstance(error, connection_errors)


def is_bad_row(error: BaseException) -> bool:
    """Whether a value in the statement is at fault (NUL, lone surrogate, constraint, size): a batch is to be split
    until the row that cannot be stored stands alone."""
    # What the client itself cannot encode has class 22, too.
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "")[:2] in _BAD_ROW_CLASSES


def database_url(env: Mapping[str, str] | None = None) -> str:
    """Where the database is: `PERDURE_DATABASE_URL`, else the file `PERDURE_DATABASE_URL_FILE`, else parts
    `PERDURE_DATABASE_{HOST,PORT,NAME,USER,PASSWORD|PASSWORD_FILE,SSLMODE,SSLROOTCERT}`.

    Raises `ConfigurationError` when none is set, a file cannot be read, or it is no Postgres. The message never
    holds the URL, because of its password.
    """
    env = os.environ if env is None else env
    url, source = _given(env, "PERDURE_DATABASE_URL")
    if not url and env.get("PERDURE_DATABASE_HOST"):
        source = "PERDURE_DATABASE_HOST and its fellows"
        url = _from_parts(env)
    if not url:
        raise ConfigurationError(
            "no database: set PERDURE_DATABASE_URL (postgresql://user:password@host:5432/name), "
            "PERDURE_DATABASE_URL_FILE, or PERDURE_DATABASE_HOST with NAME, USER and PASSWORD"
        )
    return pooler.with_pooler(checked_url(url, source), env.get(pooler.VARIABLE, ""))


def migrate_url(env: Mapping[str, str] | None = None) -> str:
    """Where migrations are made: `PERDURE_DATABASE_MIGRATE_URL`, else the file `PERDURE_DATABASE_MIGRATE_URL_FILE`,
    else `database_url`. A pooler on that way has to be said in the URL itself. Raises as `database_url` does."""
    env = os.environ if env is None else env
    url, source = _given(env, "PERDURE_DATABASE_MIGRATE_URL")
    return pooler.with_pooler(checked_url(url, source), "") if url else database_url(env)


async def connect(
    url: str,
    *,
    application_name: str,
    statement_timeout: float = STATEMENT_SECONDS,
    lock_timeout: float | None = None,
    connect_timeout: float = CONNECT_SECONDS,
) -> asyncpg.Connection[Any]:
    """A session with limits. Times in seconds; `statement_timeout` 0 = none (migrations). `lock_timeout` None: a
    share of it.

    `application_name` is the worker's id where there is one, so that a dead worker's sessions can be ended.
    Raises `PoolerInTheWay` when a pooler refuses the session's settings.
    """
    try:
        return await asyncpg.connect(
            timeout=connect_timeout, **_session(url, application_name, statement_timeout, lock_timeout)
        )
    except asyncpg.PostgresError as error:
        raise _explained(error) from error


@asynccontextmanager
async def transaction(
    connection: asyncpg.Connection[Any],
    *,
    isolation: Literal["read_committed", "repeatable_read", "serializable"] = "read_committed",
    readonly: bool = False,
) -> AsyncIterator[None]:
    """A transaction of one of our own sessions: committed at the end of the block, rolled back by an error in it.

    Where nothing is known of the server, or the block is cancelled, the session is ended instead: the driver's rollback
    first waits for the answer to the statement before, without any limit, also when the line is long cut.
    """
    begun = connection.transaction(isolation=isolation, readonly=readonly)
    await begun.start()
    try:
        yield
    except BaseException as error:
        if isinstance(error, (asyncio.CancelledError, *connection_errors)):
            connection.terminate()
        else:
            await begun.rollback()
        raise
    await begun.commit()


async def create_pool(
    url: str,
    *,
    application_name: str,
    min_size: int,
    max_size: int,
    statement_timeout: float = STATEMENT_SECONDS,
) -> asyncpg.Pool[Any]:
    """A pool of such sessions. `min_size` of them are open when this returns."""
    pool = asyncpg.create_pool(
        connect=_connect,
        min_size=min_size,
        max_size=max_size,
        timeout=CONNECT_SECONDS,
        # Nothing here leaves state in a session, so the round trip that cleans it is not needed.
        reset=_nothing_to_reset,
        **_session(url, application_name, statement_timeout),
    )
    return await pool


async def _connect(*arguments: Any, **options: Any) -> asyncpg.Connection[Any]:
    try:
        return await asyncpg.connect(*arguments, **options)
    except asyncpg.PostgresError as error:
        raise _explained(error) from error


def _explained(error: asyncpg.PostgresError) -> Exception:
    advice = pooler.explain(error)
    return error if advice is None else PoolerInTheWay(advice)


def driver_options(url: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of asyncpg for a session with these settings. Through a pooler in transaction mode only those that it
    keeps for each client, and no prepared statement; the others have to be the role's."""
    if not pooler.pooled(url):
        return {"dsn": url, "server_settings": dict(settings)}
    kept = {name: value for name, value in settings.items() if name in pooler.PASSED_ON}
    return {
        "dsn": pooler.plain(url),
        "server_settings": {**kept, "application_name": pooler.APPLICATION_NAME},
        "statement_cache_size": 0,
    }


async def _nothing_to_reset(_connection: object) -> None:
    return None


def session_settings(statement_timeout: float = STATEMENT_SECONDS, lock_timeout: float | None = None) -> dict[str, str]:
    """Settings of every session of the engine, but its name: limits, and what keeps plans as they were tested."""
    return {
        "default_transaction_isolation": "read committed",
        "statement_timeout": _milliseconds(statement_timeout),
        "lock_timeout": _milliseconds(statement_timeout * LOCK_FRACTION if lock_timeout is None else lock_timeout),
        "idle_in_transaction_session_timeout": _milliseconds(IDLE_TRANSACTION_SECONDS),
        "tcp_user_timeout": TCP_USER_TIMEOUT_MS,
        "timezone": "UTC",
        # Statements here are short; compiling one would take longer than running it.
        "jit": "off",
        # Every statement has its index. A plan made while a table was small, and kept while it grows faster than
        # statistics are gathered, must not be a scan: a claim then took a hundred times as long.
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        # Planning anew for each value costs a millisecond where a statement takes a tenth, and finds the same plan.
        "plan_cache_mode": "force_generic_plan",
        **KEEPALIVE,
    }


def _session(
    url: str, application_name: str, statement_timeout: float, lock_timeout: float | None = None
) -> dict[str, Any]:
    settings = {"application_name": application_name, **session_settings(statement_timeout, lock_timeout)}
    command_timeout = statement_timeout + ANSWER_SECONDS if statement_timeout else None
    return {**driver_options(url, settings), "command_timeout": command_timeout}


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))


def checked_url(url: str, source: str) -> str:
    """The URL. Raises `ConfigurationError` unless it is Postgres'; `source` says where it came from."""
    if (problem := address.problem(url)) is not None:
        raise ConfigurationError(f"{source} {problem}")
    return url


def _given(env: Mapping[str, str], name: str) -> tuple[str, str]:
    """The URL in this variable, else in the file that `…_FILE` names, else nothing; and which of both it was."""
    url, file = env.get(name, "").strip(), f"{name}_FILE"
    return (_read(env, file), file) if not url and env.get(file) else (url, name)


def _from_parts(env: Mapping[str, str]) -> str:
    def part(name: str, default: str = "") -> str:
        return env.get(f"PERDURE_DATABASE_{name}", "") or default

    password = part("PASSWORD") or (_read(env, "PERDURE_DATABASE_PASSWORD_FILE") if part("PASSWORD_FILE") else "")
    user = quote(part("USER", "perdure"), safe="")
    login = f"{user}:{quote(password, safe='')}" if password else user
    host = part("HOST")
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    options = {name.lower(): part(name) for name in ("SSLMODE", "SSLROOTCERT") if part(name)}
    query = f"?{urlencode(options)}" if options else ""
    return f"postgresql://{login}@{host}:{part('PORT', '5432')}/{quote(part('NAME', 'perdure'), safe='')}{query}"


def _read(env: Mapping[str, str], name: str) -> str:
    try:
        return Path(env[name]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{name} names a file that cannot be read: {error}") from None
