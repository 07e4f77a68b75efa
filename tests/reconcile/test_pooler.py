"""The operator with its database behind a real pgbouncer in transaction mode: three sessions for all its services."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from perdure.model.outcome import Succeeded
from perdure.telemetry import names
from perdure.telemetry.prometheus import Metrics
from perdure_operator.control.database import Database

from tests.reconcile.harness import (
    POOL,
    Place,
    claim_one,
    condition,
    end,
    eventually,
    register,
    running,
    spawned,
)
from tests.support.pgbouncer import SERVERS, Bouncer
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy

FLOW = {"workflow": "flows.hello"}
KNOWS = ("workflow:flows.hello",)
RETRY_SOON = "server_login_retry = 1"
"""As the how-to says: by default pgbouncer tries a server that was away only after 15 s."""

LEADERS = "SELECT count(*) FROM perdure.leaders WHERE held_until > clock_timestamp()"
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perdure'"


@pytest.fixture
async def bouncer(place: Place) -> AsyncIterator[Bouncer]:
    with Bouncer(place.url, more=RETRY_SOON) as made:
        yield made


@pytest.fixture
def pooled(place: Place, bouncer: Bouncer) -> Place:
    """The same place, with the operator's way through the pooler."""
    return replace(place, url=bouncer.url)


def accepted(status: dict[str, Any]) -> bool:
    return condition(status, "Accepted").get("status") == "True"


async def test_a_run_is_taken_in_shown_ended_and_removed(pooled: Place, conn: asyncpg.Connection[Any]) -> None:
    """Intake, backlog, scaling, statuses, sweeps and the leader's row, all by the same three sessions."""
    async with running(pooled.settings(resync_seconds=1), pooled.url) as operator:
        worker = await register(conn, pooled, manifest=KNOWS)
        await pooled.apply("default", {**POOL, "scaling": {"max": 2}}, "WorkerPool")
        uids = [(await pooled.apply(f"run-{number}", FLOW))["metadata"]["uid"] for number in range(20)]
        for number in range(20):
            await pooled.until(f"run-{number}", accepted, "accepted")
        await pooled.until("default", lambda s: s.get("replicas") == 2, "pods for the backlog", "WorkerPool")
        run = await claim_one(conn, worker)
        await end(conn, worker, run, Succeeded('"done"'))
        await pooled.until(f"run-{uids.index(run.id)}", lambda s: s.get("output") == "done", "its output")
        await pooled.delete("run-19" if run.id != uids[19] else "run-18")

        async def one_less() -> bool:
            return bool(await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 19)

        await eventually(one_less, "the rows of the deleted one are removed")
        assert await conn.fetchval(LEADERS) == 1
        assert await conn.fetchval(SESSIONS) <= SERVERS
        assert operator.health.ready() is None and operator.health.alive() is None
        assert b"perdure_store_errors_total{" not in operator.metrics.exposition()


async def test_a_comparison_finds_the_run_whose_resource_is_gone(pooled: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(pooled.settings(), pooled.url):
        uid = (await pooled.apply("ghost", FLOW))["metadata"]["uid"]
        await pooled.until("ghost", accepted, "accepted")
    await pooled.delete("ghost")
    async with running(pooled.settings(), pooled.url):

        async def gone() -> bool:
            return not await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE id = $1", uid)

        await eventually(gone, "the run is cancelled and its rows removed")


async def test_a_second_operator_leads_after_the_first_ends(
    pooled: Place, conn: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    """A clean end gives the row back, so the successor need not wait until it runs out."""
    with spawned(pooled, tmp_path / "first.log") as first:
        await pooled.apply("one", FLOW)
        await pooled.until("one", accepted, "accepted", seconds=60)
        holder = await conn.fetchval("SELECT holder FROM perdure.leaders")
        async with running(pooled.settings(), pooled.url) as second:
            assert second.metrics.value(names.LEADER) == 0
            first.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(first.wait, 15) == 0
            await pooled.apply("two", FLOW)
            await pooled.until("two", accepted, "accepted by the second")
            assert await conn.fetchval("SELECT holder FROM perdure.leaders") != holder
    assert "error" not in (tmp_path / "first.log").read_text().lower()


async def test_the_pooler_is_restarted_and_the_operator_goes_on(pooled: Place, bouncer: Bouncer) -> None:
    async with running(pooled.settings(), pooled.url) as operator:
        for number in range(3):
            await asyncio.to_thread(bouncer.restart)
            await pooled.apply(f"run-{number}", FLOW)
            await pooled.until(f"run-{number}", accepted, "accepted")
        assert operator.health.alive() is None


async def test_postgres_goes_away_behind_the_pooler_and_comes_back(
    pooled: Place, conn: asyncpg.Connection[Any], pg_server: PostgresServer
) -> None:
    """The pooler lets its clients in and has them wait: statements hang, and leadership is lost in the middle."""
    async with running(pooled.settings(), pooled.url) as operator:
        await pooled.apply("before", FLOW)
        await pooled.until("before", accepted, "accepted")
        await conn.close()
        await asyncio.to_thread(pg_server.stop)
        await pooled.apply("during", FLOW)

        async def lost() -> bool:
            return operator.metrics.value(names.LEADER) == 0

        await eventually(lost, "it no longer leads")
        await asyncio.to_thread(pg_server.start)
        await pooled.until("during", accepted, "accepted")
        assert operator.health.ready() is None and operator.health.alive() is None


async def test_it_migrates_past_a_pooler_that_has_no_room_for_migrations(
    place: Place, empty_pg_url: str, tmp_path: Path
) -> None:
    """They need two sessions at once, and this pooler has one."""
    with Bouncer(empty_pg_url, servers=1) as bouncer:
        pooled = replace(place, url=bouncer.url)
        with spawned(pooled, tmp_path / "log", {"PERDURE_DATABASE_MIGRATE_URL": empty_pg_url}):
            await pooled.apply("run", FLOW)
            await pooled.until("run", accepted, "accepted", seconds=60)


async def test_migrations_of_another_database_are_told(place: Place, empty_pg_url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    elsewhere = replace(place, url=empty_pg_url)
    with spawned(elsewhere, log, {"PERDURE_DATABASE_MIGRATE_URL": place.url}):

        async def told() -> bool:
            return "both must lead to the same database" in log.read_text()

        await eventually(told, "the operator says it")


async def test_a_cancel_is_not_taken_for_an_outage_when_the_server_is_silent(pg_server: PostgresServer) -> None:
    """A service that swallowed it would go on beside its successor, and this operator never lead again."""
    metrics = Metrics(names.declared(names.Component.OPERATOR))
    async with Proxy(pg_server.port) as proxy:
        database = Database(proxy.through(pg_server.url()), metrics)
        async with database.connection("warm") as connection:
            await connection.fetchval("SELECT 1")

        async def ask() -> None:
            async with database.connection("ask") as connection:
                await connection.fetchval("SELECT 2")

        proxy.hold_answers()
        task = asyncio.create_task(ask())

        async def held() -> bool:
            return proxy.held_answers == 1

        await eventually(held, "the answer is held")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(task), 20)
        assert task.cancelled()
        await database.close()
