"""What one claim keeps so that its body does the same at each replay: what it gave up, and what it drew by chance.

Used by `Execution`. Promise: a body that cancels one of its own durable calls (by a limit of time or a race of its
own) and goes on fails as not deterministic, since a replay, in which the call returns at once, would go another way. An
error that goes straight out of the body is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from perdure.engine.failures import describe
from perdure.engine.pending import PendingCall
from perdure.errors import NotDeterministic
from perdure.model.outcome import Ending, Failed, Succeeded

if TYPE_CHECKING:
    from perdure.engine.execute import Execution


class Determinism:
    """Of one claim. `racing` are the indexes of the branches of selects, which may be given up."""

    __slots__ = ("_drawn", "_gave_up", "_run", "racing")

    def __init__(self, run: Execution) -> None:
        self.racing: set[int | None] = set()
        self._run = run
        self._gave_up: NotDeterministic | None = None
        self._drawn: dict[str, int] = {}

    def dropped(self, call: PendingCall[Any] | None) -> None:
        """A durable call was cancelled, and not by the engine; None: one that takes no index."""
        run = self._run
        if self._gave_up is not None or run.stopping or (call is not None and call.step_id in self.racing):
            return
        what = "a durable call" if call is None else f"{call.name} ({call.step_id})"
        self._gave_up = NotDeterministic(
            f"{what} was cancelled by the body itself, and the body went on: another time it might not have been; use "
            "perdure.select, or the timeout of the step"
        )
        run.unawaited = GaveUp(run.unawaited, self._went_on)

    def outcome(self, outcome: Ending) -> Ending:
        """How the run ends when its body has ended so."""
        if self._gave_up is not None and isinstance(outcome, Succeeded):
            return Failed(describe(self._gave_up))
        return outcome

    def draw(self, what: str) -> bytes:
        """Random bytes, the same at each replay, also of a fork: by the run, and how many were drawn of this kind."""
        count = self._drawn[what] = self._drawn.get(what, 0) + 1
        run = self._run.claimed
        return sha256(f"{run.seed or run.id}/{what}/{count}".encode()).digest()

    def _went_on(self) -> None:
        error = self._gave_up
        assert error is not None
        self._run.unawaited = dict(self._run.unawaited)
        self._run.abort(Failed(describe(error)), error.message)


class GaveUp(dict[int, str]):
    """Stands in for the calls that nobody awaits yet, after one was given up: hears of the next that is built or
    awaited, so that nothing has to be looked at in a run where none was."""

    def __init__(self, calls: dict[int, str], went_on: Callable[[], None]) -> None:
        super().__init__(calls)
        self._went_on = went_on

    def __setitem__(self, index: int, name: str) -> None:
        self._went_on()

    def pop(self, *_: Any) -> Any:
        """The call is awaited."""
        self._went_on()
