"""Rows for the tests of the projection: a run and its steps with sensible values, each of which can be replaced."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.model.outcome import ErrorRecord
from perdure.model.rows import RunView, StatusSource, StepCounts, StepView
from perdure.model.states import RunStatus, StepStatus

NOON = datetime(2026, 11, 30, 12, 0, 0, 250_000, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def run(status: RunStatus = RunStatus.RUNNING, **changes: Any) -> RunView:
    found = RunView(
        id="5f0c",
        namespace="shop",
        name="order-1001",
        workflow="orders.process_order",
        pool="orders",
        queue="default",
        version="a1b2c3d4",
        status=status,
        fence=3,
        edits=1,
        suspended=False,
        cancel_mode=None,
        cancel_reason=None,
        generation=2,
        run_attempts=0,
        recoveries=0,
        max_recoveries=10,
        waiting_for=None,
        waiting_since=None,
        wake_at=None,
        created_at=NOON,
        started_at=at(1),
        finished_at=at(9) if status.finished else None,
        worker_pod="orders-a1b2c3d4-x7k2p" if status == RunStatus.RUNNING else None,
        definition=None,
        output=None,
        output_bytes=0,
        error=None,
        last_seq=4,
    )
    return replace(found, **changes)


def step(index: int, status: StepStatus = StepStatus.SUCCEEDED, **changes: Any) -> StepView:
    found = StepView(
        index=index,
        name=f"step_{index}",
        status=status,
        attempts=0,
        output='{"ok": true}' if status == StepStatus.SUCCEEDED else None,
        error=None,
        started_at=at(index),
        finished_at=at(index + 0.5) if status.final else None,
        wake_at=None,
    )
    return replace(found, **changes)


def error(message: str, **fields: str) -> str:
    return ErrorRecord(type="ValueError", message=message, **fields).to_json()


def definition(*names: str) -> str:
    return json.dumps({"steps": [{"name": name, "task": "t"} for name in names]})


def source(found: RunView, *steps: StepView) -> StatusSource:
    """With counts over these steps."""
    states = [each.status for each in steps]
    counts = StepCounts(
        succeeded=states.count(StepStatus.SUCCEEDED),
        failed=states.count(StepStatus.FAILED),
        running=states.count(StepStatus.RUNNING),
        retrying=states.count(StepStatus.RETRYING),
    )
    return StatusSource(run=found, counts=counts, steps=steps)
