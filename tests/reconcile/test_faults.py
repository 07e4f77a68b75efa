"""What the operator needs goes away, or the operator does: everything resumes, nothing is lost or made up."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from perdure.model.rows import WorkerRow
from perdure.model.states import RunStatus, WorkerState
from perdure.telemetry import names
from perdure_operator.control import discovery, resync
from perdure_operator.main import Operator

from tests.reconcile.harness import (
    POOL,
    Place,
    claim_one,
    condition,
    eventually,
    register,
    running,
    spawned,
)
from tests.reconcile.proxy import Proxy
from tests.support.postgres import PostgresServer

FLOW = {"workflow": "flows.hello"}
KNOWS = ("workflow:flows.hello",)


def accepted(status: dict[str, Any]) -> bool:
    return condition(status, "Accepted").get("status") == "True"


async def test_an_operator_killed_between_row_and_status_is_completed_by_the_next(
    place: Place, conn: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    log = tmp_path / "operator.log"
    with spawned(place, log) as process:
        await place.apply("warm-up", FLOW)
        await place.until("warm-up", accepted, "accepted", seconds=60)
        for number in range(20):
            name = f"run-{number}"
            uid = (await place.apply(name, FLOW))["metadata"]["uid"]
            await eventually(lambda uid=uid: _exists(conn, uid), "the row is committed")
            if not (await place.get(name)).get("status"):
                process.kill()
                break
        else:
            pytest.fail("the status was always quicker than the kill")
    assert not (await place.get(name)).get("status")
    assert await conn.fetchval("SELECT status_due_at IS NOT NULL FROM perdure.workflows WHERE id = $1", uid)
    async with running(place.settings(), place.url):
        await place.until(name, accepted, "accepted")
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE name = $1", name) == 1


async def test_two_that_both_believe_to_lead_do_no_harm(
    place: Place, conn: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = iter(["one", "two"])
    monkeypatch.setattr("perdure_operator.main.lock_name", lambda _: next(locks))
    async with running(place.settings(), place.url) as one, running(place.settings(), place.url) as two:
        await eventually(lambda: _both_lead(one, two), "both lead")
        await place.apply("default", {**POOL, "scaling": {"min": 1}}, "WorkerPool")
        for number in range(20):
            await place.apply(f"run-{number}", FLOW)
            await place.patch(f"run-{number}", {"spec": {"priority": number + 1}})
        for number in range(20):
            shown = await place.until(f"run-{number}", lambda s: s.get("observedGeneration") == 2, "generation 2")
            assert accepted(shown["status"])
        await place.delete("run-0")
        await eventually(lambda: _count(conn, 19), "the rows of the deleted one are removed")
        await place.until("default", lambda s: s.get("replicas") == 5, "pods for twenty runs", "WorkerPool")
    rows = await conn.fetch("SELECT name, priority, generation FROM perdure.workflows ORDER BY priority")
    assert [(row["name"], row["priority"], row["generation"]) for row in rows] == [
        (f"run-{number}", number + 1, 2) for number in range(1, 20)
    ]
    assert len(await place.deployments()) == 1


async def test_of_two_one_leads_and_the_other_takes_over(place: Place, tmp_path: Path) -> None:
    with spawned(place, tmp_path / "operator.log") as process:
        await place.apply("first", FLOW)
        await place.until("first", accepted, "accepted", seconds=60)
        async with running(place.settings(), place.url) as standby:
            await place.apply("second", FLOW)
            await place.until("second", accepted, "accepted")
            assert standby.metrics.value(names.LEADER) == 0
            process.kill()
            await place.apply("third", FLOW)
            await place.until("third", accepted, "accepted")
            assert standby.metrics.value(names.LEADER) == 1


async def test_the_api_server_goes_away_and_comes_back(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(place.settings(resync_seconds=1), place.url) as operator:
        await place.apply("default", {**POOL, "scaling": {"min": 2}}, "WorkerPool")
        await place.until("default", lambda s: s.get("replicas") == 2, "two pods", "WorkerPool")
        uid = (await place.apply("before", FLOW))["metadata"]["uid"]
        await place.until("before", accepted, "accepted")
        before = operator.metrics.value(names.API_REQUESTS, "GET", "0")
        await asyncio.to_thread(place.plane.stop_api_server)
        try:
            await eventually(
                lambda: _more(operator, names.API_REQUESTS, ("GET", "0"), before + 3), "the operator noticed"
            )
            # A change while the API server is away waits for its return.
            await conn.execute(
                "UPDATE perdure.workflows SET edits = edits + 1, status_due_at = now() WHERE id = $1", uid
            )
            assert operator.health.alive() is None
        finally:
            await asyncio.to_thread(place.plane.start_api_server)
        await place.apply("after", FLOW)
        await place.until("after", accepted, "accepted")
        await place.until("before", lambda s: s["revision"] >= 1, "the change is shown")
        row = await conn.fetchrow("SELECT deleted, cancel_mode, status FROM perdure.workflows WHERE id = $1", uid)
        assert row is not None
        assert (row["deleted"], row["cancel_mode"], row["status"]) == (False, None, RunStatus.ENQUEUED)
        (deployment,) = await place.deployments()
        assert deployment["spec"]["replicas"] == 2


async def test_postgres_goes_away_and_comes_back(
    place: Place, conn: asyncpg.Connection[Any], pg_server: PostgresServer
) -> None:
    async with running(place.settings(), place.url) as operator:
        await place.apply("default", {**POOL, "scaling": {"min": 2}}, "WorkerPool")
        await place.until("default", lambda s: s.get("replicas") == 2, "two pods", "WorkerPool")
        worker = await register(conn, place, manifest=KNOWS)
        await place.apply("before", FLOW)
        run = await claim_one(conn, worker)
        await conn.close()
        await asyncio.to_thread(pg_server.stop)
        created = await place.apply("during", FLOW)
        await eventually(lambda: _failed_statements(operator), "the operator noticed")
        assert operator.health.alive() is None
        assert operator.health.ready() is None
        (deployment,) = await place.deployments()
        assert deployment["spec"]["replicas"] == 2
        await asyncio.to_thread(pg_server.start)
        await place.until("during", accepted, "accepted")
        (deployment,) = await place.deployments()
        assert deployment["spec"]["replicas"] == 2
    again = await asyncpg.connect(place.url)
    assert await again.fetchval("SELECT status FROM perdure.workflows WHERE id = $1", run.id) == RunStatus.RUNNING
    assert await again.fetchval("SELECT state FROM perdure.workers WHERE id = $1", worker.id) == WorkerState.LIVE
    assert await _exists(again, created["metadata"]["uid"])
    await again.close()


async def test_the_operator_starts_before_postgres_does(place: Place, pg_server: PostgresServer) -> None:
    await asyncio.to_thread(pg_server.stop)
    async with running(place.settings(), place.url, ready=False) as operator:
        await place.apply("early", FLOW)
        assert "schema" in (operator.health.ready() or "")
        assert operator.health.alive() is None
        await asyncio.to_thread(pg_server.start)
        await place.until("early", accepted, "accepted")
        assert operator.health.ready() is None


async def test_the_operator_starts_before_its_database_is_made(place: Place, pg_server: PostgresServer) -> None:
    late = f"late_{place.namespace.replace('-', '_')}"
    elsewhere = replace(place, url=pg_server.url(late))
    async with running(elsewhere.settings(), elsewhere.url, ready=False) as operator:
        await place.apply("early", FLOW)
        await eventually(lambda: _is(operator.health.started), "it runs")
        assert "schema" in (operator.health.ready() or "")
        administrator = await asyncpg.connect(pg_server.url())
        await administrator.execute(f"CREATE DATABASE {late}")
        await place.until("early", accepted, "accepted")
    await administrator.execute(f"DROP DATABASE {late} WITH (FORCE)")
    await administrator.close()


async def test_a_workflow_deleted_while_nobody_watched_is_found(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(place.settings(), place.url):
        worker = await register(conn, place, manifest=KNOWS)
        kept = (await place.apply("kept", FLOW))["metadata"]["uid"]
        await place.until("kept", accepted, "accepted")
        run = await claim_one(conn, worker)
        lost = (await place.apply("lost", FLOW))["metadata"]["uid"]
        await place.until("lost", accepted, "accepted")
    await place.delete("lost")
    await place.delete("kept")
    again = (await place.apply("kept", FLOW))["metadata"]["uid"]
    async with running(place.settings(), place.url):
        await eventually(lambda: _gone(conn, lost), "the waiting run is removed")
        row = await place.until_row(conn, kept, lambda row: row["cancel_mode"], "the running one is told to end")
        assert (run.id, row["deleted"]) == (kept, True)
        row = await place.until_row(conn, again, lambda row: True, "the namesake is there")
        assert row["cancel_mode"] is None


async def test_a_cut_watch_is_resumed(place: Place) -> None:
    async with Proxy(place.plane.url).serve() as proxy, running(place.settings(kube_server=proxy.url), place.url):
        await place.apply("before", FLOW)
        await place.until("before", accepted, "accepted")
        for number in range(3):
            proxy.cut()
            await place.apply(f"after-{number}", FLOW)
            await place.until(f"after-{number}", accepted, "accepted")


async def test_a_watch_that_has_gone_deaf_is_found_by_the_comparison(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resync, "DEAF_SECONDS", 1.0)
    async with contextlib.AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy(place.plane.url).serve())
        settings = place.settings(kube_server=proxy.url, resync_seconds=2)
        operator = await stack.enter_async_context(running(settings, place.url))
        await place.apply("before", FLOW)
        await place.until("before", accepted, "accepted")
        proxy.deafen()
        await place.apply("missed", FLOW)
        # Its own requests go over the same deaf connections at first; they end by their limits.
        await place.until("missed", accepted, "accepted", seconds=60)
        lines = proxy.lines
        await eventually(lambda: _is(proxy.lines > lines), "the watch connects anew", seconds=60)
        assert operator.health.alive() is None


async def test_without_the_definitions_the_operator_waits_and_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = [True]
    real = discovery.Discovery._missing

    async def not_yet(self: discovery.Discovery) -> frozenset[str]:
        return frozenset({"workflows"}) if missing[0] else await real(self)

    monkeypatch.setattr(discovery.Discovery, "_missing", not_yet)
    async with running(place.settings(), place.url, ready=False) as operator:
        await eventually(lambda: _is(operator.health.migrated), "the schema is there")
        assert "perdure-crds" in (operator.health.ready() or "")
        assert operator.health.alive() is None
        missing[0] = False
        await place.apply("late", FLOW)
        await place.until("late", accepted, "accepted")
        assert operator.health.ready() is None


async def test_a_worker_whose_lease_ran_out_loses_its_runs(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with running(place.settings(lease_seconds=1), place.url) as operator:
        worker = await register(conn, place, manifest=KNOWS)
        await place.apply("orphan", FLOW)
        await place.until("orphan", accepted, "accepted")
        run = await claim_one(conn, worker)
        await _expire(conn, worker)
        await place.until_row(conn, run.id, lambda row: row["status"] == RunStatus.ENQUEUED, "ready again")
        assert operator.metrics.value(names.LEASE_EXPIRIES) == 1
        await eventually(lambda: _more(operator, names.RECOVERIES, ("requeued",), 0), "the move is counted")
        event = (await eventually(lambda: place.events("RunRecovered"), "an Event says so"))[0]
        assert event["involvedObject"]["name"] == "orphan"


async def _expire(conn: asyncpg.Connection[Any], worker: WorkerRow) -> None:
    await conn.execute(
        "UPDATE perdure.workers SET lease_until = clock_timestamp() - interval '1 minute' WHERE id = $1", worker.id
    )


async def _exists(conn: asyncpg.Connection[Any], uid: str) -> bool:
    return bool(await conn.fetchval("SELECT EXISTS (SELECT FROM perdure.workflows WHERE id = $1)", uid))


async def _gone(conn: asyncpg.Connection[Any], uid: str) -> bool:
    return not await _exists(conn, uid)


async def _count(conn: asyncpg.Connection[Any], rows: int) -> bool:
    return bool(await conn.fetchval("SELECT count(*) FROM perdure.workflows") == rows)


async def _both_lead(*operators: Operator) -> bool:
    return all(operator.metrics.value(names.LEADER) == 1 for operator in operators)


async def _more(operator: Operator, metric: names.Metric, labels: tuple[str, ...], than: float) -> bool:
    return operator.metrics.value(metric, *labels) > than


async def _failed_statements(operator: Operator) -> bool:
    return b"perdure_store_errors_total{" in operator.metrics.exposition()


async def _is(value: bool) -> bool:
    return value
