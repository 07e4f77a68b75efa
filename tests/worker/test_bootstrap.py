"""The application's own start-up: seen by every step, before the first claim; and what its mistakes do."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from perdure.model.states import RunStatus
from perdure.store import runs
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import WorkerProcess, enqueue, finished
from tests.worker.test_process import answers, get, ports

HOOKS = "tests.worker.hooks"
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def hooked(url: str, hook: str, **changes: Any) -> WorkerProcess:
    return WorkerProcess(url, modules=HOOKS, bootstrap=f"{HOOKS}:{hook}", **changes)


async def output(conn: Connection, run_id: str) -> object:
    assert await finished(conn, run_id) is RunStatus.SUCCEEDED
    found = await runs.result(conn, run_id)
    assert found is not None and found.output is not None
    return json.loads(found.output)


@pytest.mark.parametrize("hook", ["plain", "coroutine", "manager"])
async def test_what_the_hook_sets_is_seen_by_bodies_and_by_steps_of_both_kinds(
    db: str, conn: Connection, hook: str
) -> None:
    await enqueue(conn, "hook.sees", run_id="r1")
    with hooked(db, hook):
        assert await output(conn, "r1") == [hook, hook, hook]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
async def test_what_the_hook_opens_serves_the_steps_and_is_closed_after_the_drain(
    db: str, conn: Connection, number: signal.Signals
) -> None:
    await enqueue(conn, "hook.pool", run_id="r1")
    with hooked(db, "pool") as worker:
        assert await output(conn, "r1") == 42
        worker.send(number)
        assert await worker.ended() == 0
        text = worker.text()
    assert "hook: pool left with 1 effects" in text
    assert text.index('"stopped"') < text.index("hook: pool left")


async def test_a_worker_is_neither_started_nor_ready_nor_claims_before_the_hook_is_through(
    db: str, conn: Connection, tmp_path: Path
) -> None:
    await enqueue(conn, "hook.sees", run_id="r1")
    file = tmp_path / "go"
    with hooked(db, "waits_for_a_file", environment={"HOOK_FILE": str(file)}) as worker:
        probes, _ = await ports(worker)

        async def in_the_hook() -> bool:
            return get(probes, "/startupz") == (503, "running the bootstrap hook\n")

        await eventually(in_the_hook, "the hook runs")
        assert get(probes, "/readyz")[0] == 503
        assert get(probes, "/livez")[0] == 200
        assert await conn.fetchval("SELECT count(*) FROM perdure.workers") == 0
        assert await runs.get_status(conn, "r1") is RunStatus.ENQUEUED
        file.touch()
        await answers(probes, "/readyz", 200)
        assert await output(conn, "r1") == ["nobody"] * 3


@pytest.mark.parametrize(
    ("hook", "said"), [("broken", "LookupError: no licence in the vault"), ("exits", "SystemExit: the vault is sealed")]
)
async def test_an_error_in_the_hook_stops_the_start_with_its_own_traceback(db: str, hook: str, said: str) -> None:
    with hooked(db, hook) as worker:
        assert await worker.ended() == 1
        (line,) = worker.said("the worker cannot start")
    assert line["code"] == "PRD-110"
    assert said in line["error"]
    assert f"in {hook}" in line["exception"] and "hooks.py" in line["exception"]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("tests.worker.nowhere:boot", "there is no module tests.worker.nowhere"),
        (f"{HOOKS}:nothing", "names nothing, which is not in"),
        (f"{HOOKS}:service", "cannot be called"),
        ("no function", "PERDURE_BOOTSTRAP='no function'"),
    ],
)
async def test_a_hook_that_is_not_there_is_a_mistake_in_the_settings(db: str, reference: str, said: str) -> None:
    with WorkerProcess(db, modules=HOOKS, bootstrap=reference) as worker:
        assert await worker.ended() == 1
        (line,) = worker.said("the worker cannot start")
    assert line["code"] == "PRD-101"
    assert said in line["error"]


async def test_an_error_at_the_hooks_end_is_logged_and_the_exit_code(db: str) -> None:
    with hooked(db, "broken_at_the_end") as worker:
        await worker.works()
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 1
        (line,) = worker.said("the bootstrap hook failed at its end")
    assert "the vault is gone" in line["exception"]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
async def test_a_signal_during_the_hook_cancels_it_and_ends_the_process(db: str, number: signal.Signals) -> None:
    with hooked(db, "slow") as worker:
        await worker.writes("slow begun")
        worker.send(number)
        assert await worker.ended() == 0
        assert "hook: slow ended" in worker.text()
        assert not worker.said("cannot start")


async def test_further_signals_end_a_hook_that_blocks_the_loop(db: str) -> None:
    with hooked(db, "blocking") as worker:
        await worker.writes("blocking begun")

        async def ended() -> bool:
            # Python looks at a signal that comes close behind another only when the blocking call returns.
            worker.send(signal.SIGINT)
            return worker.process.poll() is not None

        worker.send(signal.SIGTERM)
        await eventually(ended, "the worker's process ends")
        assert await worker.ended() == 0


@pytest.mark.parametrize("hook", ["never_left", "blocks_at_the_end"])
async def test_a_hook_whose_end_hangs_is_cut_off_by_the_third_signal(db: str, hook: str) -> None:
    with hooked(db, hook) as worker:
        await worker.works()
        worker.send(signal.SIGTERM)
        await worker.says("stopped")

        async def over() -> bool:
            # Again and again: two that come at once are one.
            worker.send(signal.SIGINT)
            return worker.process.poll() is not None

        await eventually(over, "the process ends")
        assert await worker.ended() == 1


async def test_logs_go_through_the_handlers_that_the_hook_sets_up(db: str, conn: Connection) -> None:
    await enqueue(conn, "hook.sees", run_id="r1")
    with hooked(db, "application_logs", logs="application") as worker:
        await output(conn, "r1")
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
        text = worker.text()
    assert "APP INFO shop a body runs" in text
    assert "APP INFO perdure.worker.session registered" in text
    assert not worker_json(text)


async def test_an_application_without_handlers_gets_ours(db: str) -> None:
    with hooked(db, "nothing_for_logs", logs="application") as worker:
        await worker.says("logs are left to the application")
        await worker.works()


async def test_a_start_that_fails_is_told_although_no_handler_was_set_up(db: str) -> None:
    with hooked(db, "broken", logs="application") as worker:
        assert await worker.ended() == 1
        assert worker.said("the worker cannot start")[0]["code"] == "PRD-110"


def worker_json(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("{") and '"registered"' in line]
