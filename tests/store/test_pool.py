import asyncio
import os
import signal
import socket
from pathlib import Path

import asyncpg
import pytest
from perdure.errors import ConfigurationError
from perdure.store import pool
from perdure.store.pool import (
    connect,
    connection_errors,
    create_pool,
    database_url,
    is_bad_row,
    is_transient,
    migrate_url,
    transaction,
)
from perdure.store.usersql import CLIENT_KEEPALIVE, SqlPool

from tests.store.builders import Connection
from tests.support.pgwait import holding
from tests.support.postgres import PostgresServer

URL = "postgresql://u:p@db:5432/n"


def test_url_is_taken_from_the_environment_first(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(f"{URL}\n")

    assert database_url({"PERDURE_DATABASE_URL": f" {URL}"}) == URL
    assert database_url({"PERDURE_DATABASE_URL_FILE": str(file), "PERDURE_DATABASE_HOST": "other"}) == URL


def test_url_is_made_from_parts_with_their_quoting(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("p@ss/w:rd \n")
    parts = {
        "PERDURE_DATABASE_HOST": "db.example",
        "PERDURE_DATABASE_PORT": "6432",
        "PERDURE_DATABASE_NAME": "my runs",
        "PERDURE_DATABASE_USER": "me@home",
        "PERDURE_DATABASE_PASSWORD_FILE": str(file),
        "PERDURE_DATABASE_SSLMODE": "verify-full",
        "PERDURE_DATABASE_SSLROOTCERT": "/etc/ca.crt",
    }

    assert database_url(parts) == (
        "postgresql://me%40home:p%40ss%2Fw%3Ard@db.example:6432/my%20runs"
        "?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.crt"
    )
    assert database_url({"PERDURE_DATABASE_HOST": "::1"}) == "postgresql://perdure@[::1]:5432/perdure"


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({}, "set PERDURE_DATABASE_URL"),
        ({"PERDURE_DATABASE_URL": "mysql://u:secret@db/n"}, "not mysql"),
        ({"PERDURE_DATABASE_URL": "postgresql+asyncpg://u:secret@db/n"}, "not postgresql\\+asyncpg"),
        ({"PERDURE_DATABASE_URL": "host=db password=secret"}, "without a scheme"),
        ({"PERDURE_DATABASE_URL": "sqlite:///secret.db"}, "not sqlite"),
        ({"PERDURE_DATABASE_URL": "redis://:secret@cache:6379"}, "not redis"),
        ({"PERDURE_DATABASE_URL": "secret"}, "without a scheme"),
        ({"PERDURE_DATABASE_URL": "secret:db"}, "without a scheme"),
        ({"PERDURE_DATABASE_URL": "postgresql:secret@db"}, "must begin with postgresql://"),
        ({"PERDURE_DATABASE_URL": "postgresql://[secret"}, "not a URL"),
        ({"PERDURE_DATABASE_URL": "postgresql://"}, "names no host"),
        ({"PERDURE_DATABASE_URL": "postgresql://u:secret@/n"}, "names no host"),
        ({"PERDURE_DATABASE_URL": "postgresql://u:sec#secret@db/n"}, "has a #"),
        ({"PERDURE_DATABASE_URL": "postgresql://u:1/secret@db/n"}, "an @ behind the host"),
        ({"PERDURE_DATABASE_URL": "postgresql://u:secret@db:port/n"}, "host or port"),
        ({"PERDURE_DATABASE_URL": "postgresql://u:secret@db:70000/n"}, "host or port"),
        ({"PERDURE_DATABASE_URL": "postgresql://u:secret@a:1,b:x/n"}, "host or port"),
        ({"PERDURE_DATABASE_URL": "postgresql://u:secret@a,,b/n"}, "host or port"),
        ({"PERDURE_DATABASE_URL": "postgresql://u:secret@::1:5432/n"}, "host or port"),
        ({"PERDURE_DATABASE_URL": " "}, "set PERDURE_DATABASE_URL"),
        ({"PERDURE_DATABASE_HOST": "db", "PERDURE_DATABASE_PORT": "secret"}, "host or port"),
        ({"PERDURE_DATABASE_URL_FILE": "/no/such/file"}, "PERDURE_DATABASE_URL_FILE"),
    ],
)
def test_what_is_no_database_is_refused_without_showing_a_password(env: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        database_url(env)
    assert "secret" not in str(caught.value)


def test_migrations_have_a_way_of_their_own_past_a_pooler(tmp_path: Path) -> None:
    pooled = {"PERDURE_DATABASE_URL": URL, "PERDURE_DATABASE_POOLER": "transaction"}
    assert migrate_url(pooled) == database_url(pooled) == f"{URL}?pooler=transaction"
    file = tmp_path / "uri"
    file.write_text("postgresql://direct/n\n")
    given = {**pooled, "PERDURE_DATABASE_MIGRATE_URL_FILE": str(file)}
    assert migrate_url(given) == "postgresql://direct/n"
    assert migrate_url({**given, "PERDURE_DATABASE_MIGRATE_URL": "postgresql://other/n"}) == "postgresql://other/n"
    assert database_url(given) == database_url(pooled)
    with pytest.raises(ConfigurationError, match="PERDURE_DATABASE_MIGRATE_URL must be") as caught:
        migrate_url({"PERDURE_DATABASE_MIGRATE_URL": "mysql://u:secret@db/n"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "postgres://db/n",
        "postgresql://u:p%40ss%2Fw%3Ard%25@db/n",
        "postgresql://u:p@one:5432,two:5433,three/n?target_session_attrs=read-write",
        "postgresql://u:p@[::1]:5432/n",
        "postgresql://u:p@[::1]/n",
        "postgresql:///n?host=/run/postgresql",
        "postgresql://u@db",
    ],
)
def test_every_good_form_of_a_url_is_taken_as_it_is(url: str) -> None:
    assert database_url({"PERDURE_DATABASE_URL": url}) == url


async def test_a_password_with_escapes_and_a_second_host_lead_to_the_database(pg_url: str, conn: Connection) -> None:
    await conn.execute("CREATE ROLE odd LOGIN PASSWORD 'p@ss/w:rd%#?'")
    host = pg_url.partition("@")[2]
    url = database_url({"PERDURE_DATABASE_URL": f"postgresql://odd:p%40ss%2Fw%3Ard%25%23%3F@127.0.0.1:1,{host}"})
    session = await connect(url, application_name="x")
    assert await session.fetchval("SELECT current_user") == "odd"
    await session.close()
    await conn.execute("DROP ROLE odd")


async def test_every_session_has_its_limits(pg_url: str) -> None:
    connection = await connect(pg_url, application_name="w1", statement_timeout=4)
    wanted = {
        "application_name": "w1",
        "default_transaction_isolation": "read committed",
        "statement_timeout": "4s",
        "lock_timeout": "3s",
        "idle_in_transaction_session_timeout": "10s",
        "enable_seqscan": "off",
        "TimeZone": "UTC",
    }
    assert {name: await connection.fetchval(f"SHOW {name}") for name in wanted} == wanted
    await connection.close()

    sessions = await create_pool(pg_url, application_name="w2", min_size=1, max_size=2)
    async with sessions.acquire() as one, sessions.acquire() as two:
        assert await one.fetchval("SHOW application_name") == await two.fetchval("SHOW application_name") == "w2"
    await sessions.close()


async def test_a_migrating_session_has_no_statement_timeout(pg_url: str) -> None:
    connection = await connect(pg_url, application_name="m", statement_timeout=0)
    assert await connection.fetchval("SHOW statement_timeout") == "0"
    assert await connection.fetchval("SHOW lock_timeout") == "0"
    await connection.close()


async def test_a_lock_that_is_not_got_in_time_is_transient(pg_url: str, conn: Connection) -> None:
    await conn.execute("CREATE TABLE t (id integer); INSERT INTO t VALUES (1)")
    impatient = await connect(pg_url, application_name="x", statement_timeout=0.2)
    async with holding(pg_url, ("LOCK TABLE t",)):
        with pytest.raises(asyncpg.LockNotAvailableError) as caught:
            await impatient.execute("SELECT * FROM t")
    assert is_transient(caught.value)
    assert not is_bad_row(caught.value)
    await impatient.close()


async def test_a_server_that_is_away_is_transient(pg_server: PostgresServer, pg_url: str) -> None:
    open_session = await connect(pg_url, application_name="x")
    pg_server.stop()

    with pytest.raises(pool.connection_errors) as refused:
        await connect(pg_url, application_name="x", connect_timeout=1)
    with pytest.raises((asyncpg.PostgresError, *pool.connection_errors)) as cut:
        await open_session.fetchval("SELECT 1")

    assert is_transient(refused.value)
    assert is_transient(cut.value)


async def test_values_that_cannot_be_stored_are_told_from_lost_lines(conn: Connection) -> None:
    with pytest.raises(asyncpg.PostgresError) as nul:
        await conn.fetchval("SELECT $1::text", "\x00")
    with pytest.raises(asyncpg.PostgresError) as surrogate:
        await conn.fetchval("SELECT $1::text", "\ud800")
    with pytest.raises(asyncpg.PostgresError) as number:
        await conn.fetchval("SELECT $1::integer", 2**40)

    for each in (nul.value, surrogate.value, number.value):
        assert is_bad_row(each)
        assert not is_transient(each)


async def test_a_body_that_waits_for_a_server_that_has_vanished_does_not_wait_for_ever(pg_url: str) -> None:
    own = SqlPool(pg_url, application_name="w1", size=1)
    try:
        async with own.acquire() as connection:
            line = connection._transport.get_extra_info("socket")
            assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            for name, value in CLIENT_KEEPALIVE.items():
                if hasattr(socket, name):
                    assert line.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
            assert await connection.fetchval("SELECT 1") == 1
    finally:
        await own.close()


@pytest.mark.parametrize(
    ("error", "transient", "bad"),
    [
        (asyncpg.DeadlockDetectedError("x"), True, False),
        (asyncpg.SerializationError("x"), True, False),
        (asyncpg.TooManyConnectionsError("x"), True, False),
        (asyncpg.QueryCanceledError("x"), True, False),
        (asyncpg.AdminShutdownError("x"), True, False),
        (asyncpg.CannotConnectNowError("x"), True, False),
        (asyncpg.ReadOnlySQLTransactionError("x"), True, False),
        (asyncpg.ConnectionDoesNotExistError("x"), True, False),
        (asyncpg.InterfaceError("connection is closed"), True, False),
        (ConnectionResetError(), True, False),
        (TimeoutError(), True, False),
        (asyncpg.CheckViolationError("x"), False, True),
        (asyncpg.ProgramLimitExceededError("x"), False, True),
        (asyncpg.UndefinedTableError("x"), False, False),
        (asyncpg.InvalidPasswordError("x"), False, False),
        (ValueError("x"), False, False),
        (asyncio.CancelledError(), False, False),
    ],
)
def test_what_an_error_means(error: BaseException, transient: bool, bad: bool) -> None:
    assert (is_transient(error), is_bad_row(error)) == (transient, bad)


@pytest.mark.parametrize("how", ["the driver gives up", "the call is cancelled"])
async def test_a_transaction_whose_server_falls_silent_ends_with_its_statement(pg_url: str, how: str) -> None:
    """The driver's own would wait for ever: its rollback comes after the answer to the statement."""
    connection = await connect(pg_url, application_name="x")
    server, frozen = connection.get_server_pid(), asyncio.Event()

    async def silent() -> None:
        async with transaction(connection):
            await connection.fetchval("SELECT 1")
            os.kill(server, signal.SIGSTOP)
            frozen.set()
            await connection.fetchval("SELECT 2", timeout=0.1 if how == "the driver gives up" else None)

    asked = asyncio.ensure_future(silent())
    try:
        await frozen.wait()
        if how == "the call is cancelled":
            asked.cancel()
        with pytest.raises((asyncio.CancelledError, *connection_errors)):
            await asyncio.wait_for(asyncio.shield(asked), 30)
        assert asked.done()
        assert connection.is_closed()
    finally:
        os.kill(server, signal.SIGCONT)


async def test_an_error_in_a_transaction_undoes_it_and_leaves_the_session(pg_url: str) -> None:
    connection = await connect(pg_url, application_name="x")
    await connection.execute("CREATE TEMPORARY TABLE kept (number integer)")
    with pytest.raises(LookupError):
        async with transaction(connection):
            await connection.execute("INSERT INTO kept VALUES (1)")
            raise LookupError
    async with transaction(connection):
        await connection.execute("INSERT INTO kept VALUES (2)")
    assert [row["number"] for row in await connection.fetch("SELECT number FROM kept")] == [2]
    await connection.close()
