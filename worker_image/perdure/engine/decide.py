"""PURE. What to do at a step call, from what is recorded at its index; and what to do after a failed attempt.

This is the whole of replay: everything else in the engine carries these decisions out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.engine.codec import same_input, shorten
from perdure.engine.failures import NONE, Failures
from perdure.errors import InputMismatch, MaxStepRetriesExceeded, PerdureError, UnexpectedStep
from perdure.model.outcome import ErrorRecord
from perdure.model.retry import RetryPolicy
from perdure.model.rows import RecordedStep
from perdure.model.states import StepStatus


@dataclass(frozen=True, slots=True)
class Return:
    """The step has succeeded: its recorded output (JSON text) is the result."""

    output: str


@dataclass(frozen=True, slots=True)
class Raise:
    """The step has failed for good: its recorded error is the result."""

    error: ErrorRecord
    failures: Failures


@dataclass(frozen=True, slots=True)
class Run:
    """Run the body: the first time, or again with the failures so far counted."""

    failures: Failures = NONE


@dataclass(frozen=True, slots=True)
class Wait:
    """An attempt has failed and the next is not due yet: wait these seconds, then run."""

    seconds: float
    failures: Failures


@dataclass(frozen=True, slots=True)
class Diverged:
    """The code does not do what is recorded. The body must not go on."""

    error: ErrorRecord


Decision = Return | Raise | Run | Wait | Diverged

RUN_NEW = Run()


def decide(recorded: RecordedStep | None, name: str, text: str, value: Any = None) -> Decision:
    """What to do at a step call with this name and input. `value` is what `text` encodes, to know where sets are."""
    if recorded is None:
        return RUN_NEW
    if recorded.name != name:
        return Diverged(_diverged(UnexpectedStep, recorded, f"the code calls step {name}"))
    if not same_input(value, text, recorded.input):
        seen = f"the code calls it with {shorten(text, 200)}, recorded is {shorten(recorded.input, 200)}"
        return Diverged(_diverged(InputMismatch, recorded, seen))
    match recorded.status:
        case StepStatus.SUCCEEDED:
            return Return("null" if recorded.output is None else recorded.output)
        case StepStatus.FAILED:
            return Raise(ErrorRecord.from_json(recorded.error or "{}"), Failures.of(recorded))
        case StepStatus.DROPPED:
            return Diverged(_diverged(UnexpectedStep, recorded, "the code awaits it: another branch has won"))
        case StepStatus.RETRYING if recorded.wake_in is not None and recorded.wake_in > 0:
            return Wait(recorded.wake_in, Failures.of(recorded))
        case _:
            return Run(Failures.of(recorded))


@dataclass(frozen=True, slots=True)
class RetryIn:
    """Another attempt after these seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No further attempt: this is the step's error."""

    error: ErrorRecord


def after_failure(
    policy: RetryPolicy, name: str, failures: Failures, error: ErrorRecord, *, declined: bool
) -> RetryIn | GiveUp:
    """What follows a failed attempt; `failures` includes it. The only failure of a step is its error as it is."""
    delay = None if declined else policy.delay_after(failures.count)
    if delay is not None:
        return RetryIn(delay)
    if failures.count == 1:
        return GiveUp(error)
    message = f"step {name} failed {failures.count} times, last with {error.type}: {shorten(error.message)}"
    return GiveUp(ErrorRecord(_full_name(MaxStepRetriesExceeded), message, MaxStepRetriesExceeded.code))


def _diverged(kind: type[PerdureError], recorded: RecordedStep, what: str) -> ErrorRecord:
    message = (
        f"at index {recorded.index} step {recorded.name} is recorded as {recorded.status.name.lower()}, but {what}"
    )
    return ErrorRecord(_full_name(kind), message, kind.code, recorded.name)


def _full_name(kind: type[PerdureError]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
