"""Everything in the store works through pgbouncer in transaction mode, and a pooler that nobody told us of is named."""

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest
from perdure.errors import ConfigurationError, PoolerInTheWay
from perdure.model.outcome import Succeeded
from perdure.store import claims, journal, migrate, role_settings, runs
from perdure.store.journal import RunWrites
from perdure.store.leadership import HELD_SECONDS, Leadership
from perdure.store.pool import connect, create_pool, database_url, session_settings
from perdure.store.pooler import PASSED_ON, plain, pooled, with_pooler
from perdure.worker.link import Link

from tests.store.builders import MANIFEST, Connection, add_worker, finish, new_run
from tests.support.pgbouncer import SERVERS, Bouncer, statements_of

IGNORE = "ignore_startup_parameters = " + ",".join(sorted(session_settings().keys() - PASSED_ON))


@pytest.fixture
def bouncer(pg_url: str) -> Iterator[Bouncer]:
    with Bouncer(pg_url) as made:
        yield made


@pytest.mark.parametrize(
    ("url", "value", "there"),
    [
        ("postgresql://h/d", "", "postgresql://h/d"),
        ("postgresql://h/d", "none", "postgresql://h/d"),
        ("postgresql://h/d", "Transaction", "postgresql://h/d?pooler=transaction"),
        ("postgresql://h/d?sslmode=require", "transaction", "postgresql://h/d?sslmode=require&pooler=transaction"),
        ("postgresql://h/d?pooler=none", "transaction", "postgresql://h/d?pooler=none"),
        ("postgresql:///d?host=/run/pg", "transaction", "postgresql:///d?host=/run/pg&pooler=transaction"),
    ],
)
def test_the_setting_becomes_part_of_the_url_and_no_part_of_the_drivers(url: str, value: str, there: str) -> None:
    assert with_pooler(url, value) == there
    assert pooled(there) == ("pooler=transaction" in there)
    assert plain(there) == url.replace("?pooler=none", "")
    assert database_url({"PERDURE_DATABASE_URL": url, "PERDURE_DATABASE_POOLER": value}) == there


@pytest.mark.parametrize(("url", "value"), [("postgresql://h/d", "session"), ("postgresql://h/d?pooler=yes", "")])
def test_an_unknown_kind_of_pooler_is_refused(url: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match="transaction"):
        with_pooler(url, value)


async def test_a_pooler_that_nobody_told_us_of_is_named(bouncer: Bouncer) -> None:
    with pytest.raises(PoolerInTheWay, match="PERDURE_DATABASE_POOLER=transaction"):
        await connect(bouncer.plain_url, application_name="unaware")
    with pytest.raises(PoolerInTheWay, match="PERDURE_DATABASE_POOLER=transaction"):
        await create_pool(bouncer.plain_url, application_name="unaware", min_size=1, max_size=1)


async def test_a_pooler_that_swallows_our_settings_is_named_when_a_statement_is_missing(pg_url: str) -> None:
    with Bouncer(pg_url, more=f"{IGNORE}\n{statements_of(0)}", servers=2) as bouncer:
        link = Link(bouncer.plain_url, application_name="unaware", statement_timeout=5.0)
        await link.call(runs.get_status, "nobody")
        other = await asyncpg.connect(bouncer.plain_url, statement_cache_size=0)
        # It gets the session in which the statement is prepared, and keeps it.
        await other.execute("BEGIN")
        with pytest.raises(PoolerInTheWay, match="PERDURE_DATABASE_POOLER=transaction"):
            await link.call(runs.get_status, "nobody")
        link.drop()
        other.terminate()


async def test_twenty_clients_on_three_sessions_run_everything_once(bouncer: Bouncer, conn: Connection) -> None:
    """Claims and checkpoints of twenty workers, all at once."""
    clients, each = 20, 10
    for n in range(clients * each):
        await runs.upsert(conn, new_run(f"r{n:03}"))
    taken: list[str] = []

    async def work(name: str) -> None:
        session = await connect(bouncer.url, application_name=name)
        try:
            await add_worker(session, name)
            scope = claims.Scope(name, "ns", "default", "default", MANIFEST, "v1")
            while (found := await claims.look(session, scope, "")).ranges:
                got = await claims.take(session, scope, list(found.ranges.items()), 3)
                taken.extend(run.id for run in got.runs)
                writes = [RunWrites(run.id, run.fence, (finish(),), Succeeded("1")) for run in got.runs]
                acks = await journal.commit(session, name, writes)
                assert all(ack.owned for ack in acks.values())
        finally:
            await session.close()

    await asyncio.gather(*(work(f"w{n:02}") for n in range(clients)))

    assert sorted(taken) == [f"r{n:03}" for n in range(clients * each)]
    ended = await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE status = 50")
    sessions = await conn.fetchval("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perdure'")
    assert (ended, sessions <= SERVERS) == (clients * each, True)


async def test_migrations_run_through_a_pooler_one_process_at_a_time(empty_pg_url: str) -> None:
    with Bouncer(empty_pg_url, servers=6) as bouncer:
        results = await asyncio.gather(*(migrate.migrate(bouncer.url) for _ in range(3)))
    assert sorted(results) == [[], [], [each.name for each in migrate.migrations()]]


async def test_the_limits_are_put_on_the_role(bouncer: Bouncer, conn: Connection) -> None:
    session = await connect(bouncer.url, application_name="pooled")
    missing = await role_settings.missing(session)
    assert {"statement_timeout", "lock_timeout", "enable_seqscan", "plan_cache_mode"} <= missing.keys()
    assert await role_settings.missing(conn) == {}
    await session.close()
    for statement in missing.values():
        await conn.execute(statement)
    bouncer.restart()
    session = await connect(bouncer.url, application_name="pooled")
    assert await role_settings.missing(session) == {}
    assert await session.fetchval("SHOW statement_timeout") == "8s"
    await session.close()


async def test_one_leads_through_a_pooler_and_its_successor_after_it(bouncer: Bouncer, conn: Connection) -> None:
    async with Leadership(bouncer.url, "n") as first, Leadership(bouncer.url, "n") as second:
        assert await first.acquire()
        assert not await second.acquire()
        assert await first.held()
        async with Leadership(bouncer.url, "other") as third:
            assert await third.acquire()
        # The first one is cut off for longer than its row counts.
        await conn.execute(
            "UPDATE perdure.leaders SET held_until = held_until - make_interval(secs => $1)", HELD_SECONDS
        )
        assert await second.acquire()
        assert not await first.held()
        assert await second.held()


async def test_who_ends_well_gives_the_leadership_back_at_once(bouncer: Bouncer) -> None:
    async with Leadership(bouncer.url, "n") as first:
        assert await first.acquire()
    async with Leadership(bouncer.url, "n") as second:
        assert await second.acquire()
