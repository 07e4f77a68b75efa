"""From a prepared start to the row that is created, and whether the run that has its id is the same start: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from perdure.api.starts import PreparedStart
from perdure.engine.codec import same_input
from perdure.errors import ConflictingWorkflow
from perdure.model.start import Seconds, new_run_id, positive_seconds
from perdure.store.clients import ExistingRun, RunStart

DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 100
"""As of the resource Workflow: leaves room on both sides."""

BATCH_RUNS = 1000
"""Runs in one statement: some 25 ms; larger ones gain nothing and hold their transaction longer."""

BATCH_BYTES = 4 * 1024 * 1024
"""Inputs in one statement, unless a single one is larger: what a client and Postgres hold in memory at once."""


def row_of(start: PreparedStart[Any], pool: str) -> RunStart:
    """The row, under the id that was asked for or a new one; `pool` is where it goes when it does not say."""
    options = start.options
    return RunStart(
        id=options.id or new_run_id(),
        workflow=start.workflow,
        input=start.input,
        pool=options.pool or pool,
        queue=options.queue or DEFAULT_QUEUE,
        priority=options.priority or DEFAULT_PRIORITY,
        timeout=_seconds("timeout", options.timeout),
        delay=_seconds("delay", options.delay),
        partition_key=options.partition_key or "",
    )


def batches(starts: Iterable[PreparedStart[Any]]) -> Iterator[list[PreparedStart[Any]]]:
    """The starts in order, in lists that each fit one statement."""
    batch: list[PreparedStart[Any]] = []
    size = 0
    for start in starts:
        if batch and (len(batch) >= BATCH_RUNS or size + len(start.input) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(start)
        size += len(start.input)
    if batch:
        yield batch


def distinct(pairs: Sequence[tuple[PreparedStart[Any], RunStart]]) -> dict[str, tuple[PreparedStart[Any], RunStart]]:
    """Each id once, the first of it. Raises `ConflictingWorkflow` when another with the same id is not the same."""
    found: dict[str, tuple[PreparedStart[Any], RunStart]] = {}
    for start, row in pairs:
        first = found.setdefault(row.id, (start, row))[1]
        if first is not row:
            refuse_other(start, row, ExistingRun(first.id, "", first.workflow, first.input), "")
    return found


def refuse_other(start: PreparedStart[Any], row: RunStart, there: ExistingRun, namespace: str) -> None:
    """Raises `ConflictingWorkflow` unless the run that has the id was started by the same start."""
    if there.namespace != namespace:
        raise ConflictingWorkflow(f"the id {row.id} belongs to a run in namespace {there.namespace}, not {namespace}")
    if there.workflow != row.workflow:
        raise ConflictingWorkflow(f"the id {row.id} belongs to a run of workflow {there.workflow}, not {row.workflow}")
    if not same_input(start.arguments, row.input, there.input):
        raise ConflictingWorkflow(
            f"the id {row.id} belongs to a run of workflow {row.workflow} that was started with another input"
        )


def _seconds(name: str, value: Seconds | None) -> float | None:
    return None if value is None else positive_seconds(name, value)
