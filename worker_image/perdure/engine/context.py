"""Where the running code is: in no run, in the body of a run, or in an attempt of one of its steps.

The scope travels in a context variable: asyncio tasks and the threads of sync steps that the body starts see it too.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
from perdure.engine.cancellation import Cancellation
from perdure.errors import InsideStep, InsideWorkflow

    from perdure.engine.execute import Execution


@dataclass(frozen=True, slots=True)
class StepInfo:
    """The attempt that runs now. `attempt` is 1 for the first; failures only count, so a crash repeats a number.

    `idempotency_key` is the same for every attempt and every claim: give it to outside services that know such keys.
    """

    index: int
    name: str
    attempt: int
    idempotency_key: str


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run that the code belongs to. `name` is that of its resource, None when it has none."""

    run_id: str
    workflow: str
    namespace: str
    name: str | None
    step: StepInfo | None


class Scope:
    """The body of one claim of a run (`index` None), or one attempt of a step in it. Compared by identity."""

    __slots__ = ("attempt", "execution", "index", "name")

    def __init__(self, execution: Execution, index: int | None = None, name: str = "", attempt: int = 0) -> None:
        self.execution = execution
        self.index = index
        self.name = name
        self.attempt = attempt


current_scope: ContextVar[Scope | None] = ContextVar("perdure_scope", default=None)


def is_active() -> bool:
    """Whether this code runs under a workflow that a worker executes, in its body or in a step."""
    return current_scope.get() is not None


def current() -> RunInfo:
    """The run, and the step in it, that this code runs under. Raises `LookupError` outside a run."""
    scope = current_scope.get()
    if scope is None:
        raise LookupError("this code runs under no workflow: ask perdure.is_active() first")
    run = scope.execution.claimed
    step = None
    if scope.index is not None:
        step = StepInfo(scope.index, scope.name, scope.attempt, f"{run.id}/{scope.index}")
    return RunInfo(run.id, run.workflow, run.namespace, run.name, step)


def outside_of_runs(what: str, instead: str) -> None:
    """Raises `InsideWorkflow` in the body of a run and `InsideStep` in a step: `what` starts runs, nothing of it would
    be recorded, and a replay would start others."""
    scope = current_scope.get()
    if scope is None:
        return
    run_id = scope.execution.claimed.id
    if scope.index is not None:
        raise InsideStep(f"{what} was called in step {scope.name}: a step is a leaf; call {instead} in the workflow")
    raise InsideWorkflow(f"{what} was called in the body of run {run_id}, which would not record it; use {instead}")


def outside_of_bodies(what: str) -> None:
    """Raises `InsideWorkflow` in the body of a run: what a client says there is not recorded, and differs at a replay."""
    scope = current_scope.get()
    if scope is not None and scope.index is None:
        raise InsideWorkflow(
            f"{what} in the body of run {scope.execution.claimed.id}, which would not record it; use the durable calls "
            "of perdure, or do it in a step"
        )
