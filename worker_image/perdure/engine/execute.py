"""One claim of one run: runs the body against what is recorded, and says how it ended.

Called by the worker's runner, one `Execution` for each claim. Keeps invariants 1 (durable start before a body), 2
(what is recorded as finished is returned, not run) and 5 (replay is checked).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from perdure.engine.context import Scope
from perdure.engine.log import StepLog
from perdure.engine.pending import PendingStep
from perdure.engine.registry import Registry, StepDefinition
from perdure.errors import ControlSignal
from perdure.model.outcome import Ending
from perdure.model.rows import ClaimedRun, RecordedStep

MoreHistory = Callable[[int], Awaitable[Sequence[RecordedStep]]]
"""Recorded steps after an index, in order, a page at a time; empty at the end."""


class Execution:
    """Runs the body of one claimed run, once.

    `threads` runs the bodies of sync steps. `more_history` reads what `run.steps` leaves out; None when it leaves out
    nothing. A step's backoff longer than `park_after` seconds gives the slot back.
    """

    def __init__(
        self,
        run: ClaimedRun,
        registry: Registry,
        log: StepLog,
        *,
        threads: Executor,
        more_history: MoreHistory | None = None,
        park_after: float = 1.0,
    ) -> None:
        self.claimed = run
        self.registry = registry
        self._log = log
        self._threads = threads
        self._more_history = more_history
        self._park_after = park_after

    @property
    def steps_in_progress(self) -> int:
        """Steps whose start is being written or whose body runs; a step that waits for its next attempt is none."""
        raise NotImplementedError

    async def run(self) -> Ending:
        """Run to an ending, which the caller has to commit. Raises nothing but what cancels the caller itself."""
        raise NotImplementedError

    def interrupt(self, signal: ControlSignal) -> None:
        """End the body from outside; `run` then returns. From the event loop's thread. May be called again, stronger.

        `CancelRequested` and `ReleaseRequested` let steps in progress finish and be recorded unless they are
        `immediate`; `OwnershipLost` stops everything and nothing is written from here on.
        """
        raise NotImplementedError

    def call(
        self, scope: Scope, definition: StepDefinition, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> PendingStep[Any]:
        """Build a step call at the next index."""
        raise NotImplementedError

    def perform(self, call: PendingStep[Any]) -> Coroutine[Any, Any, Any]:
        """Replay or run a step call of this run."""
        raise NotImplementedError

    def in_thread(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Awaitable[Any]:
        """Run a sync function beside the loop, as part of the step that calls it."""
        raise NotImplementedError
