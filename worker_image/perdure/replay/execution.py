"""An execution of a body against recorded steps alone, which ends where the record does.

Used by `check`. It is the worker's own `Execution`, so what it decides is what a worker would decide; only what a
worker would do where nothing is recorded is left out: such a call waits, and when nothing else is left to happen the
replay is over. Promises: no body of a step runs, nothing is written.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, cast
from weakref import WeakKeyDictionary

from perdure.engine.backoff import Wait
from perdure.engine.calls.calls import Calls
from perdure.engine.calls.kinds import DurableCall, Kind
from perdure.engine.context import Scope
from perdure.engine.decide import Decision, Raise, Return
from perdure.engine.encoding import Encoding
from perdure.engine.execute import Execution
from perdure.engine.failures import Failures
from perdure.engine.history import History
from perdure.engine.log import StepLog
from perdure.engine.pending import PendingCall, PendingStep
from perdure.engine.registry import Registry, StepDefinition
from perdure.engine.select import PendingSelect
from perdure.engine.steps import Steps
from perdure.engine.stored import Values
from perdure.errors import ReleaseRequested
from perdure.model.calls import Statuses
from perdure.model.history import RunHistory
from perdure.model.outcome import Ending, Mismatch
from perdure.model.rows import UNDO, ClaimedRun, RecordedStep, WaitingFor
from perdure.model.states import RunStatus, StepStatus
from perdure.replay.code import SourceLine, calling_line

R = TypeVar("R")

QUIET_ROUNDS = 8
"""Turns of the event loop in which nothing happens before the replay is over: what follows from the end of another
call, through `gather` or a task group, has begun by then."""

GRACE = 0.3
"""Seconds after which it is over although something is recorded that the code has not come to: it may await something
else meanwhile."""

PATIENCE = 10.0
"""Seconds for which a body may await something that is no durable call, where nothing else is to come."""

LOOK_PAUSE = 0.01
"""Seconds between two looks once nothing happens any more."""

UNWIND = 1.0
"""Seconds that the `finally` blocks of a body have at the end of a replay."""

OVER = "the recorded history ends here"


@dataclass(frozen=True, slots=True)
class Built:
    """A durable call that the code has made: under which name, with which input, in which line."""

    name: str
    input: str
    line: SourceLine | None


class Recorded(History):
    """The steps of a history. `moves` rises whenever one is met; `last` is the one that this task has met last."""

    def __init__(self, steps: Sequence[RecordedStep]) -> None:
        super().__init__(steps, None)
        self.moves = 0
        self._met: WeakKeyDictionary[asyncio.Task[Any], RecordedStep] = WeakKeyDictionary()

    def take(self, index: int) -> RecordedStep | None:
        """See `History.take`."""
        row = super().take(index)
        if row is not None:
            self.moves += 1
            task = asyncio.current_task()
            assert task is not None
            self._met[task] = row
        return row

    @property
    def last(self) -> RecordedStep | None:
        """See the class."""
        task = asyncio.current_task()
        return None if task is None else self._met.get(task)

    @property
    def left(self) -> list[RecordedStep]:
        """Those that no call has met, in order, without what has lost a race and is never awaited again."""
        return [row for _, row in sorted(self._rows.items()) if row.status is not StepStatus.DROPPED]


class AsJson(Encoding):
    """What is written is compared as JSON and goes nowhere: no serializer and no codec has to see it."""

    def __init__(self, instead_of: Encoding) -> None:
        super().__init__(portable=instead_of.portable, most=instead_of.most)

    def begin(self, text: str, what: str) -> str:
        """The text, of whatever length."""
        return text


class Reading(Values):
    """Reads what is recorded; says while it does, as a codec may have to fetch it."""

    __slots__ = ("_replay",)

    def __init__(self, run: Replay) -> None:
        super().__init__(run)
        self._replay = run
        self.encoding = AsJson(self.encoding)

    async def read(self, text: str, what: str, step: str = "") -> str:
        """See `Values.read`."""
        self._replay.reading += 1
        try:
            return await super().read(text, what, step)
        finally:
            self._replay.reading -= 1
            self._replay.recorded.moves += 1


class Nowhere:
    """A log that takes nothing and has nothing to say: who asks it waits for ever."""

    def __init__(self, run: Replay) -> None:
        self._run = run

    def record(self, write: Any) -> None:
        """Nothing is written."""

    def admitted(self) -> bool:
        """There is no lease."""
        return True

    async def statuses_of(self, ids: Sequence[str]) -> Statuses:
        """Asked by the one wait that is not recorded, which then goes by whether anything is recorded behind it."""
        return Statuses({}, frozenset(), 0)

    def __getattr__(self, name: str) -> Any:
        async def wait(*_: Any, **__: Any) -> NoReturn:
            await self._run.hold(None)

        return wait


class ReplaySteps(Steps):
    """The step calls of a replay: what is recorded is returned, what is not waits for the end."""

    def __init__(self, run: Replay, history: Recorded, log: StepLog, threads: Executor) -> None:
        super().__init__(run, history, log, threads, math.inf)
        self._replay = run

    async def look_up(self, call: PendingCall[Any]) -> tuple[RecordedStep | None, Decision]:
        """See `Steps.look_up`."""
        recorded, decision = await super().look_up(call)
        if not isinstance(decision, Return | Raise) and not isinstance(call, PendingSelect):
            await self._replay.hold(call, recorded)
        return recorded, decision

    async def recorded_from(self, index: int) -> bool:
        """Whether the wait before this index was over."""
        if self._replay.history.status is not RunStatus.SUCCEEDED and not await super().recorded_from(index):
            await self._replay.hold(None)
        return True

    async def _until_outcome(self, call: PendingStep[Any], index: int, failures: Failures, *, fresh: bool) -> Any:
        await self._replay.hold(call, None if fresh else self._replay.recorded.last)

    async def _wait(self, call: PendingStep[Any], failures: Failures, seconds: float) -> None:
        await self._replay.hold(call, self._replay.recorded.last)


class Replay(Execution):
    """One history, replayed once."""

    def __init__(self, history: RunHistory, registry: Registry, threads: Executor) -> None:
        run, self.undoing = claimed(history)
        self.history = history
        self.recorded = Recorded(run.steps)
        self.built: dict[int, Built] = {}
        """By index."""
        self.beyond: list[PendingCall[Any]] = []
        """The calls that wait, of which nothing is recorded."""
        self.held = 0
        """How many calls wait for the end."""
        self.mismatch: tuple[Mismatch, RecordedStep | None] | None = None
        """The first thing that does not fit, and the recorded step that it does not fit to."""
        self.reading = 0
        """How many recorded values are being read."""
        self.stuck = False
        """Whether the body awaited something that is no durable call until the end."""
        self.unread = False
        """Whether a recorded value was still being read then."""
        super().__init__(run, registry, cast(StepLog, Nowhere(self)), threads=threads, unwind=UNWIND)
        self.values = Reading(self)
        self.encoding = self.values.encoding
        self._steps = ReplaySteps(self, self.recorded, self.log, threads)
        self._calls = Calls(self, self._steps, self.log)

    async def run(self) -> Ending:
        """To the end of the body or of the record: `Released` then."""
        watching = asyncio.create_task(self._end_when_quiet())
        try:
            return await super().run()
        finally:
            watching.cancel()

    async def hold(self, call: PendingCall[Any] | None, recorded: RecordedStep | None = None) -> NoReturn:
        """Wait for the end of the replay. Raises the signal."""
        if call is not None and recorded is None:
            self.beyond.append(call)
        self.held += 1
        if not self.stopping:
            await self._steps.backoffs.wait(Wait(lambda _: WaitingFor("Replay"), None))
        raise self.signal()

    def abort(self, ending: Ending, reason: str) -> None:
        """See `Execution.abort`."""
        if isinstance(ending, Mismatch) and self.mismatch is None:
            self.mismatch = ending, self.recorded.last
        super().abort(ending, reason)

    def place(
        self,
        scope: Scope,
        definition: StepDefinition,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        index: int,
        text: str,
    ) -> PendingStep[Any]:
        """See `Execution.place`."""
        call = super().place(scope, definition, args, kwargs, index, text)
        self._note(index, definition.name, text)
        return call

    def build(self, scope: Scope, kind: Kind[R]) -> DurableCall[R]:
        """See `Execution.build`."""
        call = super().build(scope, kind)
        self._note(call.step_id or 0, call.name, call.input)
        return call

    def select(self, scope: Scope, branches: Sequence[PendingCall[Any]], names: Sequence[str] | None) -> PendingSelect:
        """See `Execution.select`."""
        call = super().select(scope, branches, names)
        self._note(call.step_id or 0, call.name, call.input)
        return call

    @property
    def began(self) -> bool:
        """Whether the body was there and took the input."""
        return self._body is not None

    def missing(self) -> list[RecordedStep]:
        """What is recorded and the code has not come to. A call that it has made and not awaited is none: a task that
        runs beside the body may be late at a replay, in which nothing takes time."""
        racing = self.determinism.racing
        return [row for row in self.recorded.left if row.index not in racing and not self._is_built(row)]

    def _may_be_over(self) -> bool:
        """Whether it is no wonder that nothing more comes: everything is met of a run that had not come to an end of
        its own."""
        return not self.recorded.left and self.history.status not in (RunStatus.SUCCEEDED, RunStatus.FAILED)

    def _is_built(self, row: RecordedStep) -> bool:
        built = self.built.get(row.index)
        return built is not None and built.name == row.name

    def _note(self, index: int, name: str, text: str) -> None:
        self.recorded.moves += 1
        self.built[index] = Built(str(name), text, calling_line())

    async def _end_when_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        since, seen = loop.time(), -1
        while True:
            for _ in range(QUIET_ROUNDS):
                await asyncio.sleep(0)
            moves = self.recorded.moves + self.held
            if moves != seen:
                since, seen = loop.time(), moves
                continue
            if self.held and not self.recorded.left and not self.reading:
                break
            limit = GRACE if not self.reading and (self.held or self._may_be_over()) else PATIENCE
            if loop.time() - since > limit:
                self.unread = self.reading > 0
                self.stuck = limit == PATIENCE
                break
            await asyncio.sleep(LOOK_PAUSE)
        self.interrupt(ReleaseRequested(OVER))


def claimed(history: RunHistory) -> tuple[ClaimedRun, tuple[RecordedStep, ...]]:
    """The run as a worker would have it, and the steps that undo others, in which the body has no part.

    Its deadline and its cancel are over: they are no part of what is replayed.
    """
    undone = next((step.index for step in history.steps if step.name == UNDO), math.inf)
    steps = tuple(step for step in history.steps if step.index < undone)
    undoing = tuple(step for step in history.steps if step.index > undone)
    run = ClaimedRun(
        id=history.id,
        fence=1,
        namespace=history.namespace,
        name=history.name,
        workflow=history.workflow,
        input=history.input,
        definition=history.definition,
        run_attempts=0,
        max_run_attempts=1,
        recoveries=0,
        wake_seq=0,
        cancel_mode=None,
        suspended=False,
        deadline_in=None,
        steps=steps,
        parent_id=history.parent_id,
        rewinds=history.rewinds,
        seed=history.seed,
        serialization=history.serialization,
    )
    return run, undoing
