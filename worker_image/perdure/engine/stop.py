"""PURE. Why a body is ended before its own end, and which of two reasons counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, IntEnum, auto

from perdure.errors import BodyStopped, CancelRequested, ControlSignal, OwnershipLost, ReleaseRequested
from perdure.model.outcome import Cancelled, Ending, Lost, Released


class Phase(Enum):
    """Of a body: NEW → BODY → CLOSING (it has ended, steps beside it go on) → ENDED; any may go to ENDED at once."""

    NEW = auto()
    BODY = auto()
    CLOSING = auto()
    ENDED = auto()


class Rank(IntEnum):
    """The higher reason decides how the run ends. OUTCOME is what the body itself ended with, when it had ended."""

    PARK = 0
    RELEASE = 1
    OUTCOME = 2
    ABORT = 3
    CANCEL = 4
    LOST = 5


@dataclass(frozen=True, slots=True)
class Stop:
    """A body that is to end: what its durable calls raise, how the run ends, whether steps in progress are dropped."""

    rank: Rank
    signal: ControlSignal
    ending: Ending
    immediate: bool

    def again(self) -> ControlSignal:
        """A fresh signal of the same kind: one exception raised in many places would drag their tracebacks along."""
        return type(self.signal)(self.signal.reason)


def requested(signal: ControlSignal) -> Stop:
    """The stop for a signal from outside."""
    match signal:
        case OwnershipLost():
            return Stop(Rank.LOST, signal, Lost(), immediate=True)
        case CancelRequested():
            return Stop(Rank.CANCEL, signal, Cancelled(signal.reason), signal.immediate)
        case ReleaseRequested():
            return Stop(Rank.RELEASE, signal, Released(signal.reason), signal.immediate)
        case _:
            raise TypeError(f"{signal!r} is no signal from outside")


def aborted(ending: Ending, reason: str) -> Stop:
    """The stop when the engine cannot go on; steps in progress are well recorded, so they end first."""
    return Stop(Rank.ABORT, BodyStopped(reason), ending, immediate=False)


def merged(now: Stop | None, asked: Stop) -> Stop:
    """The stop after another one is asked for: the higher rank, and immediate once either is."""
    if now is None:
        return asked
    chosen = asked if asked.rank > now.rank else now
    return replace(chosen, immediate=now.immediate or asked.immediate)
