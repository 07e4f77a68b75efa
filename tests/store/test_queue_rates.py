"""Runs of a queue begin no faster than its rate, by the clock of the database."""

from perdure.model.outcome import Released
from perdure.model.queues import RateLimit

from tests.store.builders import Connection, add_worker, claim, let_time_pass, write
from tests.store.queuebuilders import add_runs, ids, limit


async def let_bucket_fill(conn: Connection, seconds: float) -> None:
    await conn.execute("UPDATE perdure.queues SET tokens_at = tokens_at - make_interval(secs => $1)", seconds)


async def test_a_rate_is_a_bucket_that_fills_by_the_clock_of_the_database(conn: Connection) -> None:
    await add_worker(conn)
    await limit(conn, rate=RateLimit(3, 60))
    await add_runs(conn, 12)

    assert await ids(claim(conn, limit=2)) == ["r00", "r01"]
    assert await ids(claim(conn)) == ["r02"]
    assert await ids(claim(conn)) == []
    await let_bucket_fill(conn, 19)
    assert await ids(claim(conn)) == []
    await let_bucket_fill(conn, 2)
    assert await ids(claim(conn)) == ["r03"]
    await let_bucket_fill(conn, 86_400)
    assert len(await claim(conn)) == 3
    assert len(await claim(conn)) == 0


async def test_what_has_begun_goes_on_whatever_the_rate(conn: Connection) -> None:
    await add_worker(conn)
    await limit(conn, rate=RateLimit(1, 3600))
    await add_runs(conn, 2)
    [run] = await claim(conn)
    await write(conn, run, ending=Released("drain"))

    assert await ids(claim(conn)) == ["r00"]


async def test_a_rate_is_for_what_begins_and_not_for_what_is_taken_beside_it(conn: Connection) -> None:
    """Of two ranges one is of runs that have begun."""
    await add_worker(conn)
    await limit(conn, rate=RateLimit(4, 3600))
    await add_runs(conn, 2, prefix="begun")
    for run in await claim(conn):
        await write(conn, run, ending=Released("drain"))
    await add_runs(conn, 6, prefix="new", priority=1)

    assert sorted(await ids(claim(conn))) == ["begun00", "begun01", "new00", "new01"]


async def test_a_run_that_is_past_its_deadline_costs_no_rate(conn: Connection) -> None:
    await add_worker(conn)
    await limit(conn, rate=RateLimit(2, 3600))
    await add_runs(conn, 4)
    await conn.execute("UPDATE perdure.workflows SET deadline_at = now() WHERE id < 'r02'")
    await let_time_pass(conn, "deadline_at", 10, "r00")
    await let_time_pass(conn, "deadline_at", 10, "r01")

    assert await ids(claim(conn)) == []
    assert await ids(claim(conn)) == ["r02", "r03"]


async def test_saying_a_rate_again_lets_nothing_more_begin(conn: Connection) -> None:
    await add_worker(conn)
    await limit(conn, rate=RateLimit(2, 3600))
    await add_runs(conn, 8)
    assert len(await claim(conn)) == 2

    await limit(conn, rate=RateLimit(2, 3600))
    assert await claim(conn) == []
    await limit(conn, rate=RateLimit(100, 3600))
    assert await claim(conn) == []
    await limit(conn)
    assert len(await claim(conn, limit=1)) == 1
    await limit(conn, rate=RateLimit(3, 3600))
    assert len(await claim(conn)) == 3
