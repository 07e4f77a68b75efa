"""What a run has recorded, for the asserts of tests.

Made by `Environment.history`. Values are those that are stored, read as plain JSON: what a model or a dataclass has
become there, and so what the next release will meet. Serializers and codecs are undone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import ndiff
from typing import Any, overload

from perdure.model.listing import StepDetails
from perdure.model.outcome import ErrorRecord
from perdure.model.states import StepStatus
from perdure.testing.faults import Named, is_named, name_of, names_of

NOT_SAID: Any = object()


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One durable call of a run. `attempts` counts the failures of a step that were followed by another attempt.

    `input` has a step's arguments, by position or by name. `output` is None until it has succeeded, `error` unless it
    failed or waits for its next attempt.
    """

    index: int
    name: str
    status: StepStatus
    attempts: int
    input: Any
    output: Any
    error: ErrorRecord | None

    def __str__(self) -> str:
        seen = f"{self.name} {self.status.name.lower()}"
        if self.status is StepStatus.SUCCEEDED:
            return f"{seen}: {self.output!r}"
        return seen if self.error is None else f"{seen}: {self.error.type}: {self.error.message}"


@dataclass(frozen=True, slots=True)
class History(Sequence[RecordedCall]):
    """The durable calls of a run, in the order in which its workflow made them."""

    run_id: str
    calls: tuple[RecordedCall, ...]

    @overload
    def __getitem__(self, place: int) -> RecordedCall: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[RecordedCall, ...]: ...
    def __getitem__(self, place: int | slice) -> RecordedCall | tuple[RecordedCall, ...]:
        return self.calls[place]

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[RecordedCall]:
        return iter(self.calls)

    @property
    def names(self) -> list[str]:
        """Their registered names."""
        return [call.name for call in self.calls]

    @property
    def outputs(self) -> list[Any]:
        """Their results, None where there is none."""
        return [call.output for call in self.calls]

    def of(self, step: str | Named) -> list[RecordedCall]:
        """The calls of one step, given by itself, by its name, or by the end of it: `charge` for `shop.charge`."""
        wanted = name_of(step)
        return [call for call in self.calls if is_named(call.name, wanted)]

    def assert_steps(self, expected: Sequence[str | Named]) -> None:
        """Raises `AssertionError`, with the difference, unless these and no other calls were recorded, in this order.

        Steps are given as for `of`; durable calls by their names, as `sleep` or `perdure.sleep`.
        """
        wanted = names_of(expected)
        found = self.names
        if len(wanted) == len(found) and all(map(is_named, found, wanted)):
            return
        shown = [_as_wanted(name, wanted) for name in found]
        lines = [line.rstrip() for line in ndiff(wanted, shown) if not line.startswith("?")]
        raise AssertionError(
            f"run {self.run_id} has not recorded what is expected (- expected, + recorded):\n" + "\n".join(lines)
        )

    def assert_step(
        self,
        step: str | Named,
        *,
        input: Any = NOT_SAID,
        output: Any = NOT_SAID,
        status: StepStatus = NOT_SAID,
        attempts: int = NOT_SAID,
        error: str | type[BaseException] = NOT_SAID,
    ) -> RecordedCall:
        """The one call of this step. Raises `AssertionError` unless there is one, and it is as it is said to be here;
        `error` is the class that it raised, or its name."""
        calls = self.of(step)
        if len(calls) != 1:
            every = "\n".join(f"  {call.index}: {call}" for call in self.calls) or "  nothing"
            raise AssertionError(
                f"run {self.run_id} has {len(calls)} calls of {name_of(step)}, not one; it has recorded\n{every}"
            )
        [call] = calls
        kind = None if call.error is None else call.error.type.rpartition(".")[2]
        wanted = error.__name__ if isinstance(error, type) else error
        said = (
            ("input", input, call.input),
            ("output", output, call.output),
            ("status", status, call.status),
            ("attempts", attempts, call.attempts),
            ("error", wanted, kind),
        )
        wrong = [
            f"  {name}: expected {expected!r}, recorded {found!r}"
            for name, expected, found in said
            if expected is not NOT_SAID and expected != found
        ]
        if wrong:
            raise AssertionError(f"call {call.index} of run {self.run_id} ({call.name}):\n" + "\n".join(wrong))
        return call


def history_of(run_id: str, steps: Sequence[StepDetails]) -> History:
    """From what the database has."""
    return History(run_id, tuple(_call(step) for step in steps))


def _call(step: StepDetails) -> RecordedCall:
    return RecordedCall(
        index=step.index,
        name=step.name,
        status=step.status,
        attempts=step.attempts,
        input=_value(step.input),
        output=_value(step.output),
        error=None if step.error is None else ErrorRecord.from_json(step.error),
    )


def _value(text: str | None) -> Any:
    """A value that nobody here can read stays the text that it is."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def _as_wanted(name: str, wanted: Sequence[str]) -> str:
    """A recorded name in the form in which it is expected, so that only what differs shows."""
    return next((each for each in wanted if is_named(name, each)), name)
