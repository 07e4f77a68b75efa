"""The process: what it says when it cannot start, what its probes tell, what its logs hold."""

import asyncio
import json
import signal
import urllib.error
import urllib.request
from typing import Any

import perdure
import pytest
from perdure.model.rows import DECLARED_WORKFLOW, step_requirement, workflow_requirement
from perdure.model.states import RunStatus
from perdure.store.migrate import migrate
from perdure.worker.link import Connection
from perdure_operator.plan.connections import WORKER_CONNECTIONS

from tests.support.pgwait import eventually
from tests.support.postgres import PostgresServer
from tests.support.workerproc import WorkerProcess, effects, enqueue, finished, open_gate, until_effect


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def answers(port: int, path: str, status: int, seconds: float = 20.0) -> str:
    async def as_wanted() -> bool:
        return get(port, path)[0] == status

    await eventually(as_wanted, f"{path} answers {status}", seconds)
    return get(port, path)[1]


async def ports(worker: WorkerProcess) -> tuple[int, int]:
    line = await worker.says("listening")
    return line["probes"], line["metrics"]


@pytest.mark.parametrize(
    ("changes", "environment", "code", "said"),
    [
        ({"modules": "tests.worker.nowhere"}, {}, "PRD-101", "there is no module tests.worker.nowhere"),
        ({"modules": "tests.worker.broken_module"}, {}, "PRD-101", "RuntimeError: no licence key"),
        ({"modules": "tests.worker.duplicate_names"}, {}, "PRD-102", "are registered as workflow t.twice"),
        ({"modules": ""}, {}, "PRD-101", "PERDURE_MODULES is empty"),
        ({"slots": "many"}, {}, "PRD-101", "PERDURE_SLOTS='many'"),
        ({}, {"PERDURE_DATABASE_URL": "mysql://u:secret@h/d"}, "PRD-101", "must be a postgresql:// URL"),
        ({}, {"PERDURE_DATABASE_URL": "postgresql://u:1/secret@h/d"}, "PRD-101", "an @ behind the host"),
    ],
)
async def test_what_cannot_start_says_why(
    pg_url: str, changes: dict[str, Any], environment: dict[str, str], code: str, said: str
) -> None:
    with WorkerProcess(pg_url, environment=environment, **changes) as worker:
        assert await worker.ended() == 1
        (line,) = worker.said("the worker cannot start")
    assert line["code"] == code
    assert said in line["error"]
    assert ("broken_module.py" in line.get("exception", "")) == ("licence" in said)
    assert "secret" not in str(line)


async def test_a_port_that_is_taken_is_said(db: str) -> None:
    with WorkerProcess(db) as first:
        probes, _ = await ports(first)
        with WorkerProcess(db, probe_port=probes) as second:
            assert await second.ended() == 1
            assert f"cannot listen on port {probes}" in second.said("the worker cannot start")[0]["error"]


async def test_a_number_out_of_range_is_corrected_and_said(db: str) -> None:
    with WorkerProcess(db, slots=0) as worker:
        assert "PERDURE_SLOTS=0" in (await worker.says("a setting is not used as it is given"))["setting"]
        assert (await worker.says("registered"))["slots"] == 1


async def test_probes_and_metrics_of_a_healthy_worker(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.notes", ["a"], run_id="r1")
    with WorkerProcess(db) as worker:
        await worker.works()
        probes, metrics = await ports(worker)
        for path in ("/startupz", "/readyz", "/livez"):
            assert get(probes, path) == (200, "ok\n")
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED

        async def counted() -> bool:
            return (
                'perdure_runs_finished_total{namespace="ns",outcome="succeeded",workflow="t.notes"} 1.0'
                in get(metrics, "/metrics")[1]
            )

        await eventually(counted, "the run is counted")
        text = get(metrics, "/metrics")[1]
        assert 'perdure_build_info{component="worker",version="' in text
        assert "perdure_heartbeat_age_seconds" in text


async def test_probes_while_modules_are_imported(db: str) -> None:
    with WorkerProcess(db, modules="tests.worker.slow_import") as worker:
        probes, _ = await ports(worker)
        assert get(probes, "/startupz") == (503, "importing tests.worker.slow_import\n")
        assert get(probes, "/readyz")[0] == 503
        assert get(probes, "/livez")[0] == 200


async def test_a_worker_waits_for_its_schema_and_says_so(empty_pg_url: str) -> None:
    with WorkerProcess(empty_pg_url) as worker:
        probes, _ = await ports(worker)
        assert "schema version 0" in (await worker.says("waiting for the database"))["why"]
        status, text = get(probes, "/readyz")
        assert status == 503
        assert "schema version 0" in text
        assert get(probes, "/livez")[0] == 200
        await migrate(empty_pg_url)
        await answers(probes, "/readyz", 200)
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0


async def test_a_signal_while_it_waits_for_the_database_ends_it(empty_pg_url: str) -> None:
    with WorkerProcess(empty_pg_url) as worker:
        await worker.says("waiting for the database")
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0


async def test_a_database_that_is_away_makes_no_worker_dead(db: str, pg_server: PostgresServer) -> None:
    with WorkerProcess(db) as worker:
        await worker.works()
        probes, _ = await ports(worker)
        await asyncio.to_thread(pg_server.stop)
        await worker.says("a beat failed")
        assert get(probes, "/livez")[0] == 200
        await asyncio.to_thread(pg_server.start)
        assert get(probes, "/livez")[0] == 200


async def test_a_blocked_loop_is_not_live_and_a_drained_one_not_ready(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.stuck", "let go", run_id="stuck")
    await enqueue(conn, "t.gated", "g", run_id="held")
    with WorkerProcess(db, lease_seconds=3.0) as worker:
        await worker.works()
        probes, _ = await ports(worker)
        assert "the event loop has not answered" in await answers(probes, "/livez", 503)
        assert "blocked_until_open(name)" in (await worker.says("the event loop is blocked"))["stack"]
        await open_gate(conn, "let go")
        await answers(probes, "/livez", 200)
        await until_effect(conn, "held", "at", "begun")
        worker.send(signal.SIGTERM)
        assert "draining" in await answers(probes, "/readyz", 503)
        assert get(probes, "/livez")[0] == 200
        await open_gate(conn, "g")
        assert await worker.ended() == 0


async def test_logs_hold_neither_payloads_nor_passwords(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.fails", "card 4111-1111", run_id="r1")
    url = db.replace("postgres@", "postgres:hunter2@")
    with WorkerProcess(url, log_level="DEBUG") as worker:
        await worker.works()
        assert await finished(conn, "r1") is RunStatus.FAILED
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
        text = worker.text()
    assert "hunter2" not in text
    assert "4111-1111" not in text
    assert all(line.startswith("{") for line in text.splitlines())


async def test_declared_steps_run_in_any_worker_that_has_their_tasks(db: str, conn: Connection) -> None:
    steps = [
        {"name": "first", "task": "note", "with": {"label": "a"}},
        {"name": "second", "task": "note", "with": {"label": "b"}, "needs": []},
        {"name": "last", "task": "note", "with": {"label": "c"}, "needs": ["first", "second"]},
    ]
    await enqueue(
        conn,
        DECLARED_WORKFLOW,
        run_id="r1",
        requires=(workflow_requirement(DECLARED_WORKFLOW), step_requirement("note")),
        input="{}",
        definition=json.dumps({"steps": steps}),
    )
    with WorkerProcess(db) as worker:
        await worker.works()
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
    done = await effects(conn, "r1")
    assert sorted(done[:2]) == [("a", "done"), ("b", "done")]
    assert done[2:] == [("c", "done")]


async def test_annotations_that_cannot_be_used_are_said(db: str) -> None:
    with WorkerProcess(db, modules="tests.worker.bad_annotation") as worker:
        assert await worker.ended() == 1
        assert worker.said("the worker cannot start")[0]["code"] == "PRD-103"


async def test_a_worker_opens_no_more_connections_than_the_operator_counts(db: str, conn: Connection) -> None:
    """All but the one for reports, which only a pod has."""
    names = (
        "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    for number in range(20):
        await enqueue(conn, "t.slow_retry", run_id=f"r{number}")
    with WorkerProcess(db, slots=20) as worker:
        await worker.works()
        seen: set[tuple[str, ...]] = set()
        for number in range(20):
            assert await finished(conn, f"r{number}") is RunStatus.SUCCEEDED
            open_now = sorted(row["application_name"] for row in await conn.fetch(names))
            seen.add(tuple(each for each in open_now if each not in {"effects", "test"}))
    assert max(map(len, seen)) + 1 <= WORKER_CONNECTIONS, seen
    assert max(map(len, seen)) + 3 >= WORKER_CONNECTIONS, seen


async def test_a_worker_that_has_begun_takes_no_further_workflow(db: str) -> None:
    with WorkerProcess(db, modules="tests.worker.lateflows") as process:
        async with perdure.Client(db, "ns") as client:
            await process.works()
            said = await (await client.start_by_name("late.flow")).result(60)
    assert "workflow late.late cannot be registered any more: the worker has begun" in said
