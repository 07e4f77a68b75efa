"""What a test wants to go wrong: failures of steps, and the death of the worker at a named place.

Filled by the test through its `Environment`, asked by the executions of its worker. Promises: each fault happens as
often as it was ordered and no more; one that never happened fails the test, as it would show nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from perdure.errors import InvalidArgument


class At(StrEnum):
    """Where in a call the worker dies."""

    BEFORE = "before"
    """Nothing of the call is recorded; all that came before it is."""
    STARTED = "started"
    """It is recorded as running, and its body has not begun."""
    DONE = "done"
    """Its body has ended, and the outcome is not recorded: it is done again."""
    COMMITTED = "committed"
    """The outcome is recorded, and the workflow has not gone on."""


Place = Literal["before", "started", "done", "committed"]


class Named(Protocol):
    """A step or a workflow."""

    @property
    def name(self) -> str:
        """Under which it is registered."""
        ...


@dataclass
class Fault:
    """One order. `left`: how many attempts, from `attempt` on, it still is for."""

    step: str
    attempt: int
    left: int
    run_id: str | None
    error: Exception | type[Exception] | None = None
    at: At | None = None

    def __str__(self) -> str:
        what = f"crash {self.at}" if self.at is not None else "failure"
        where = f" of run {self.run_id}" if self.run_id is not None else ""
        return f"{what} in {self.step}{where}, attempt {self.attempt}"


class Faults:
    """The orders of one test."""

    def __init__(self) -> None:
        self._orders: list[Fault] = []

    def order(self, fault: Fault) -> None:
        """Have it happen. Raises `InvalidArgument`."""
        for name, value in (("attempt", fault.attempt), ("times", fault.left)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidArgument(f"{name} is a whole number of at least 1, not {value!r}")
        self._orders.append(fault)

    @property
    def failures(self) -> bool:
        """Whether a step is to fail."""
        return any(fault.error is not None for fault in self._orders)

    def failure(self, run_id: str, step: str, attempt: int) -> Exception | None:
        """The error that the attempt raises instead of running its body; an order of it is carried out with that."""
        fault = self._take(run_id, step, attempt, None)
        if fault is None or fault.error is None:
            return None
        return fault.error() if isinstance(fault.error, type) else fault.error

    def crash(self, run_id: str, step: str, attempt: int, *at: At) -> bool:
        """Whether the worker dies here; an order of it is carried out with that."""
        return any(self._take(run_id, step, attempt, each) is not None for each in at)

    def _take(self, run_id: str, step: str, attempt: int, at: At | None) -> Fault | None:
        for fault in self._orders:
            if fault.at is not at or fault.attempt != attempt or not is_named(step, fault.step):
                continue
            if fault.run_id not in {None, run_id}:
                continue
            fault.left -= 1
            # A crash is no attempt: the next one is for the same number. A failure is one.
            fault.attempt += at is None
            if not fault.left:
                self._orders.remove(fault)
            return fault
        return None

    def check(self) -> None:
        """Raises `AssertionError` when an order was not carried out."""
        if self._orders:
            raise AssertionError("these faults were ordered and never happened: " + "; ".join(map(str, self._orders)))

    def forget(self) -> None:
        """Have nothing more go wrong."""
        self._orders.clear()


def name_of(step: str | Named) -> str:
    """The name of a step that is given by itself or by name. Raises `InvalidArgument`."""
    name = step if isinstance(step, str) else getattr(step, "name", None)
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a step, or its name, is needed, not {step!r}")
    return name


def is_named(full: str, wanted: str) -> bool:
    """Whether a registered name is meant: in full, or by what stands behind its last dots."""
    return full == wanted or full.endswith(f".{wanted}")


def names_of(steps: Sequence[str | Named]) -> list[str]:
    """Names of several."""
    return [name_of(step) for step in steps]
