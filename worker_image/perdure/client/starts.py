"""From a prepared start to the row that is created, and whether the run that is there may be given for it: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from perdure.api.starts import PreparedStart
from perdure.api.workflows import Workflow
from perdure.engine.codec import same_input
from perdure.engine.serialization import Serializers
from perdure.errors import ConflictingWorkflow, InvalidArgument, QueueDeduplicated, WorkflowIdInUse
from perdure.model.start import ReusePolicy, attributes_text, new_run_id, seconds_of
from perdure.store.clients import ExistingRun, Holder, RunStart

DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 100
"""As of the resource Workflow: leaves room on both sides."""

BATCH_RUNS = 1000
"""Runs in one statement: some 25 ms; larger ones gain nothing and hold their transaction longer."""

BATCH_BYTES = 4 * 1024 * 1024
"""Inputs in one statement, unless a single one is larger: what a client and Postgres hold in memory at once."""

Pair = tuple[PreparedStart[Any], RunStart]

P = ParamSpec("P")
R = TypeVar("R")


def startable(workflow: Workflow[P, R]) -> Workflow[P, R]:
    """The workflow. Raises `InvalidArgument` for its name, a plain function, and whatever else is none."""
    if not isinstance(workflow, Workflow):
        raise InvalidArgument(
            f"what is started is a function decorated with @perdure.workflow, not {workflow!r}; by its name it is "
            "started with start_by_name"
        )
    return workflow


def arguments_of(workflow: str, arguments: object) -> list[Any] | dict[str, Any]:
    """The arguments of a start by name, by position or by name. Raises `InvalidArgument`."""
    if isinstance(arguments, Mapping):
        return dict(arguments)
    if isinstance(arguments, str | bytes) or not isinstance(arguments, Sequence):
        raise InvalidArgument(
            f"the arguments of workflow {workflow} are a list by position or a dict by name, not {arguments!r}"
        )
    return list(arguments)


async def stored_row_of(start: PreparedStart[Any], pool: str, serializers: Serializers) -> RunStart:
    """The row, with its input as it is stored. Raises as `row_of`, `EncodingFailed`, `PayloadTooLarge`."""
    row = row_of(start, pool)
    text = await serializers.write(row.input, f"the input of workflow {row.workflow}", row.serialization)
    return row if text == row.input else replace(row, input=text)


def row_of(start: PreparedStart[Any], pool: str) -> RunStart:
    """The row, under the id that was asked for or a new one; `pool` is where it goes when it does not say. Its input is
    JSON yet.

    Raises `InvalidArgument` for options that do not go together.
    """
    options, definition = start.options, start.definition
    options.check_whole()
    default_timeout = None if definition is None else definition.timeout
    choice = options.choice or (None if definition is None else definition.serialization)
    return RunStart(
        id=options.id or new_run_id(),
        workflow=start.workflow,
        input=start.input,
        pool=options.pool or pool,
        queue=options.queue or DEFAULT_QUEUE,
        priority=options.priority or DEFAULT_PRIORITY,
        timeout=default_timeout if options.timeout is None else seconds_of(options.timeout),
        delay=seconds_of(options.delay),
        partition_key=options.partition_key or "",
        deduplication_id=options.deduplication_id,
        attributes=None if options.attributes is None else attributes_text(options.attributes),
        token=start.token if asks_whether_new(start) else None,
        max_run_attempts=None if definition is None else definition.max_run_attempts,
        serialization=choice,
    )


def asks_whether_new(start: PreparedStart[Any]) -> bool:
    """Whether it matters that the run was there before: then the start has to know its own, made again."""
    return start.options.reuse in {ReusePolicy.REJECT, ReusePolicy.RERUN_FAILED}


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


def distinct(pairs: Sequence[Pair]) -> dict[str, Pair]:
    """Each id once, the first of it. Raises what `refuse_other` says when another with the same id is not the same."""
    found: dict[str, Pair] = {}
    for start, row in pairs:
        before, first = found.setdefault(row.id, (start, row))
        if first is not row:
            refuse_other(start, row, ExistingRun(first.id, "", first.workflow, before.input, token=first.token), "")
    return found


def refuse_other(start: PreparedStart[Any], row: RunStart, there: ExistingRun, namespace: str) -> None:
    """Raises unless the run that has the id, of which the input is JSON, may be given for this start:
    `ConflictingWorkflow` for another run, `WorkflowIdInUse` for any that this start has not made, if it says so, and
    for one that is about to be removed."""
    mine = row.token is not None and there.token == row.token
    if start.options.reuse == ReusePolicy.REJECT and not mine:
        raise WorkflowIdInUse(f"there is a run with the id {row.id}: {there.workflow}", row.id)
    if there.deleted:
        raise WorkflowIdInUse(
            f"the run with the id {row.id} was deleted and is not removed yet: start it later, or with another id",
            row.id,
        )
    if there.namespace != namespace:
        raise ConflictingWorkflow(f"the id {row.id} belongs to a run in namespace {there.namespace}, not {namespace}")
    if there.workflow != row.workflow:
        raise ConflictingWorkflow(f"the id {row.id} belongs to a run of workflow {there.workflow}, not {row.workflow}")
    if not same_input(start.arguments, start.input, there.input):
        raise ConflictingWorkflow(
            f"the id {row.id} belongs to a run of workflow {row.workflow} that was started with another input"
        )


def instead(start: PreparedStart[Any], row: RunStart, held: Holder) -> str:
    """The id of the run that holds the deduplication id, if it may be given for this start. Raises `QueueDeduplicated`,
    `ConflictingWorkflow`."""
    what = f"deduplication id {row.deduplication_id} of queue {row.queue}"
    if start.options.on_duplicate != ReusePolicy.RETURN_EXISTING:
        raise QueueDeduplicated(f"run {held.id} holds the {what} and has not ended", held.id)
    if held.workflow != row.workflow:
        raise ConflictingWorkflow(f"run {held.id}, which holds the {what}, is of {held.workflow}, not {row.workflow}")
    return held.id
