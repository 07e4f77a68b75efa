"""What a durable call that is no step is: its kind, its place in the run, and how it takes that place.

Each kind is a value with a module of its own beside this one; `perdure.api` builds them, `Calls` carries them out.
Promises: a call takes its index when it is built and only then; one that is refused takes none; what is recorded of it
is its kind's name and arguments, so that a replay can compare them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from perdure.engine.codec import encode
from perdure.engine.context import Scope, current_scope
from perdure.engine.encoding import PLAIN, UNDECIDED, Encoding
from perdure.engine.failures import NONE, rebuild
from perdure.engine.pending import PendingCall, PendingStart
from perdure.errors import InsideStep, NotInWorkflow
from perdure.model.calls import CallName
from perdure.model.outcome import ErrorRecord
from perdure.model.rows import ClaimedRun, RecordedStep

if TYPE_CHECKING:
    from perdure.engine.calls.calls import Calls
    from perdure.engine.execute import Execution

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Kind(Protocol[R_co]):
    """What a durable call does: one value for each call."""

    @property
    def name(self) -> CallName:
        """Under which it is recorded."""
        ...

    @property
    def arguments(self) -> list[Any]:
        """Its recorded input."""
        ...

    async def perform(self, calls: Calls, at: Place) -> R_co:
        """Do it. A failure that is its outcome is raised through `Calls.fail`, all else is none."""
        ...

    def read_back(self, output: str) -> R_co:
        """The result from the recorded output. Raises `DecodingFailed`."""
        ...

    def rebuild(self, error: ErrorRecord) -> Exception:
        """The exception of a recorded failure."""
        ...

    @property
    def foreign(self) -> bool:
        """Whether its result comes from others: one that does not fit is then an error of the call, and no mismatch."""
        ...

    @property
    def in_steps(self) -> bool:
        """Whether it may be called inside a step, where nothing is recorded."""
        ...

    @property
    def outside(self) -> bool:
        """Whether it may be called outside a run."""
        ...

    @property
    def starts(self) -> bool:
        """Whether it starts a run."""
        ...

    @property
    def holds(self) -> bool:
        """Whether values of the application are among its arguments, which are then recorded as all of the run's are.
        All others are JSON always: the store looks into some."""
        ...

    def plainly(self, scope: Scope | None) -> Coroutine[Any, Any, R_co]:
        """Do it there: in the step of this scope, or outside of runs where there is none."""
        ...


class Common:
    """What most kinds share."""

    in_steps = False
    outside = False
    foreign = False
    starts = False
    holds = False

    def rebuild(self, error: ErrorRecord) -> Exception:
        """Of its own class."""
        return rebuild(error, NONE, "")

    def plainly(self, scope: Scope | None) -> Coroutine[Any, Any, Any]:
        """Not at all: `build` refuses the kind where nothing is recorded."""
        raise AssertionError(f"{type(self).__name__} is done in a run only")


class DurableCall(PendingCall[R], Generic[R]):
    """The call of one kind. Made by `build`."""

    __slots__ = ("kind",)

    def __init__(self, scope: Scope | None, kind: Kind[R], step_id: int | None, input_text: str) -> None:
        super().__init__(scope, kind.name, step_id, input_text)
        self.kind = kind

    def _durably(self, execution: Execution) -> Coroutine[Any, Any, R]:
        return execution.perform_call(self)

    def _plainly(self, scope: Scope | None) -> Coroutine[Any, Any, R]:
        return self.kind.plainly(scope)


class DurableStart(DurableCall[R], PendingStart[R]):
    """The call of a kind that starts a run."""

    __slots__ = ()


def call_of(scope: Scope | None, kind: Kind[R], step_id: int | None, text: str) -> DurableCall[R]:
    """The call of a kind at this index; None where nothing is recorded."""
    return (DurableStart if kind.starts else DurableCall)(scope, kind, step_id, text)


def build(kind: Kind[R]) -> DurableCall[R]:
    """The call at the next index of the run. Raises `NotInWorkflow`, `InsideStep`, `EncodingFailed`, and takes none."""
    scope = current_scope.get()
    if scope is None:
        if kind.outside:
            return call_of(None, kind, None, "")
        raise NotInWorkflow(
            f"{kind.name} was called outside the body of a run; from a program of its own use perdure.Client"
        )
    if scope.index is None:
        return scope.execution.build(scope, kind)
    if asyncio._get_running_loop() is None:
        raise InsideStep(f"{kind.name} was called in the sync step {scope.name}, where nothing can await it")
    if not kind.in_steps:
        raise InsideStep(f"{kind.name} was called in step {scope.name}: a step is a leaf; call it from the workflow")
    return call_of(scope, kind, None, "")


def start(kind: Kind[R]) -> PendingStart[R]:
    """`build`, of a kind that starts a run."""
    call = build(kind)
    assert isinstance(call, DurableStart)
    return call


class Place:
    """Where a call stands: its index, its input as it is written, and what is recorded there (None: nothing yet).
    `stem`: how the ids begin that it gives away."""

    __slots__ = ("call", "index", "input", "recorded", "run_id", "stem")

    def __init__(self, call: DurableCall[Any], index: int, recorded: RecordedStep | None, run: ClaimedRun) -> None:
        self.call = call
        self.index = index
        self.input = call.input
        self.recorded = recorded
        self.run_id = run.id
        self.stem = run.stem

    @property
    def left(self) -> float | None:
        """Seconds until the recorded instant, None if there is none."""
        return None if self.recorded is None else self.recorded.wake_in


def input_of(kind: Kind[Any], encoding: Encoding = PLAIN) -> str:
    """The recorded input of a call of a run with this encoding, as JSON. Raises `EncodingFailed`."""
    limit = UNDECIDED if kind.holds and encoding.layered else PLAIN
    return encode(kind.arguments, f"the arguments of {kind.name}", limit)
