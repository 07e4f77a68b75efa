"""Where the running code is: in no run, in the body of a run, or in an attempt of one of its steps.

The scope travels in a context variable: asyncio tasks and the threads of sync steps that the body starts see it too.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perdure.engine.cancellation import Cancellation
from perdure.errors import InsideStep, InsideWorkflow, NotInWorkflow

if TYPE_CHECKING:
    from perdure.engine.execute import Execution


@dataclass(frozen=True, slots=True)
class StepInfo:
    """The attempt that runs now. `attempt` is 1 for the first; failures only count, so a crash repeats a number.

    `idempotency_key` is the same for every attempt and every claim: give it to outside services that know such keys. A
    step that is done again because its run was rewound has another.
    """

    index: int
    name: str
    attempt: int
    idempotency_key: str
    _scope: Scope = field(repr=False, compare=False)

    @property
    def cancelled(self) -> Cancellation:
        """Set when this attempt is given up: by a cancel that does not wait for it, the deadline, its timeout, the loss
        of its run or of a `select`. What the body returns then is dropped. Look at it in threads, which nothing stops.
        """
        return self._scope.cancelled


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

    # The last two are set when they are needed, which is seldom.
    __slots__ = ("_cancelled", "attempt", "execution", "index", "name", "stopped")

    def __init__(self, execution: Execution, index: int | None = None, name: str = "", attempt: int = 0) -> None:
        self.execution = execution
        self.index = index
        self.name = name
        self.attempt = attempt

    @property
    def cancelled(self) -> Cancellation:
        """The cancellation of this attempt. From any thread."""
        with _making:
            made: Cancellation | None = getattr(self, "_cancelled", None)
            if made is None:
                made = self._cancelled = Cancellation()
                self.execution.cancellations[self] = made
        # Whoever stops the attempt says so first and looks for this object then: one of both sees the other.
        if getattr(self, "stopped", False) or self.execution.dropping:
            made.set()
        return made

    def stop(self) -> None:
        """The attempt is given up."""
        self.stopped = True
        made: Cancellation | None = getattr(self, "_cancelled", None)
        if made is not None:
            made.set()


_making = threading.Lock()
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
        step = StepInfo(scope.index, scope.name, scope.attempt, f"{run.stem}/{scope.index}", scope)
    return RunInfo(run.id, run.workflow, run.namespace, run.name, step)


def namespace_of(what: str) -> str:
    """The namespace of the run that this code runs under. Raises `NotInWorkflow`."""
    scope = current_scope.get()
    if scope is None:
        raise NotInWorkflow(
            f"{what} was called outside the body of a run; from a program of its own use perdure.Client"
        )
    return scope.execution.claimed.namespace


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
    """Raises `InsideWorkflow` in the body of a run: what a client says there is not recorded, and may differ at a
    replay."""
    scope = current_scope.get()
    if scope is not None and scope.index is None:
        raise InsideWorkflow(
            f"{what} in the body of run {scope.execution.claimed.id}, which would not record it; use the durable calls "
            "of perdure, or do it in a step"
        )
