"""The operator as a process: how it starts with settings that cannot be used, and how it ends."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.reconcile.harness import Place, condition, spawned
from tests.support.postgres import PostgresServer

FLOW = {"workflow": "flows.hello"}


def accepted(status: dict[str, Any]) -> bool:
    return condition(status, "Accepted").get("status") == "True"


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


async def ended(process: subprocess.Popen[bytes], seconds: float) -> int:
    return await asyncio.to_thread(process.wait, seconds)


async def test_sigterm_ends_it_in_time_and_in_order(place: Place, tmp_path: Path) -> None:
    log = tmp_path / "operator.log"
    with spawned(place, log) as process:
        await place.apply("run", FLOW)
        await place.until("run", accepted, "accepted", seconds=60)
        process.send_signal(signal.SIGTERM)
        assert await ended(process, 15) == 0
    said = [line["message"] for line in lines(log)]
    assert said[0] == "starting"
    assert said[-1] == "stopped"
    assert not [line for line in lines(log) if line["level"] in ("error", "critical")]


async def test_sigterm_ends_it_also_while_nothing_answers(
    place: Place, pg_server: PostgresServer, tmp_path: Path
) -> None:
    log = tmp_path / "operator.log"
    with spawned(place, log) as process:
        await place.apply("run", FLOW)
        await place.until("run", accepted, "accepted", seconds=60)
        with place.plane.api_server_frozen():
            await asyncio.to_thread(pg_server.stop)
            process.send_signal(signal.SIGTERM)
            assert await ended(process, 15) == 0


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PERDURE_OPERATOR_LEASE_SECONDS", "soon", "PERDURE_OPERATOR_LEASE_SECONDS='soon'"),
        ("PERDURE_DATABASE_URL", "mysql://x", "must be a postgresql:// URL"),
        ("PERDURE_OPERATOR_KUBE_TOKEN_FILE", "", "PERDURE_OPERATOR_KUBE_TOKEN_FILE"),
    ],
)
async def test_settings_that_cannot_be_used_end_it_with_their_name(
    place: Place, tmp_path: Path, name: str, value: str, says: str
) -> None:
    log = tmp_path / "operator.log"
    with spawned(place, log, environment={name: value}) as process:
        assert await ended(process, 60) == 2
    assert says in log.read_text()
