"""What one journal statement carries: pure folding, choosing and splitting of pending writes.

Used by `journal`. Keeps rule R3's client side (one row per step and statement, the later write wins) and the cap on
rows per statement. Entries of one run never stand in two statements at once; that is the lane's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from perdure.model.calls import CallAnswer, OwnCall
from perdure.model.outcome import Ending
from perdure.model.rows import OwnedFlags, StepWrite
from perdure.model.states import RunStatus

MAX_ROWS = 300
"""Steps and endings per statement: beyond it a statement grows longer than it saves, and holds its locks longer."""

ROW_OVERHEAD = 200
"""Bytes counted for a write besides its payload: names, numbers and the objects that carry them."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of an ending. `status` is None when it was refused because a cancel came first (`flags` says)."""

    status: RunStatus | None
    flags: OwnedFlags


@dataclass(frozen=True, slots=True)
class Observer:
    """Who hears what the journal learns about one run. All are called on the worker's loop."""

    lost: Callable[[], None]
    """The fence has moved on. Called at most once."""
    refused: Callable[[], None]
    """The database refuses the run's data; `RunJournal.refused` says why. Called at most once."""
    flags: Callable[[OwnedFlags], None]
    """A cancel or suspend came back with a write."""
    committed: Callable[[RunStatus | None], None] | None = None
    """Something was committed; with the new status when it was the ending."""


class Owner(Protocol):
    """Whose entry it is: one claim of one run."""

    @property
    def run_id(self) -> str:
        """The run's id. Two claims of one run never travel in one statement."""
        ...


K = TypeVar("K", bound=Owner)


@dataclass(slots=True)
class Asked:
    """A call of a run, and who hears its answer."""

    call: OwnCall
    answer: asyncio.Future[CallAnswer]


@dataclass(slots=True)
class Entry:
    """Everything one run wants written next. `starts` and `settled` are told the answer. `due` is an instant of the
    monotonic clock before which it may wait for company. `uncertain` = it was sent and the answer never came. `calls`
    are carried out once all else is durable; with an ending they are not. `rows` and `bytes` are what it adds to a
    statement."""

    due: float
    steps: dict[int, StepWrite] = field(default_factory=dict)
    ending: Ending | None = None
    starts: list[asyncio.Future[OwnedFlags]] = field(default_factory=list)
    settled: asyncio.Future[Settled] | None = None
    calls: list[Asked] = field(default_factory=list)
    uncertain: bool = False
    locked: bool = False
    failures: int = 0
    rows: int = 0
    bytes: int = 0

    @property
    def writes(self) -> bool:
        """Whether there is anything for the journal's statement: all but calls."""
        return bool(self.steps or self.starts) or self.ending is not None or not self.calls

    def rest(self) -> Entry:
        """What is left when all but the calls was answered."""
        rest = Entry(self.due, uncertain=self.uncertain, failures=self.failures)
        for asked in self.calls:
            rest.ask(asked)
        return rest

    def add(self, write: StepWrite) -> tuple[int, int]:
        """Fold in a later write. How many rows and bytes more the entry holds."""
        rows, size = 1, write_bytes(write)
        previous = self.steps.get(write.index)
        if previous is not None:
            if write.input is None and previous.input is not None:
                write = replace(write, input=previous.input)
                size = write_bytes(write)
            rows, size = 0, size - write_bytes(previous)
        self.steps[write.index] = write
        self.rows += rows
        self.bytes += size
        return rows, size

    def end(self, ending: Ending, settled: asyncio.Future[Settled] | None) -> int:
        """Set or replace the ending. How many rows more the entry holds."""
        rows = 1 if self.ending is None else 0
        self.ending, self.settled = ending, settled
        self.rows += rows
        return rows

    def beyond(self, room: int) -> Entry | None:
        """The calls beyond the first so many, which leave this entry; None when it has no more. Its size is counted in
        both together, as before."""
        if len(self.calls) <= room:
            return None
        rest = Entry(0.0, uncertain=self.uncertain)
        for asked in self.calls[room:]:
            rest.ask(asked)
        self.calls = self.calls[:room]
        self.rows -= rest.rows
        self.bytes -= rest.bytes
        if not self.calls:
            rest.starts, self.starts = self.starts, []
        return rest

    def ask(self, asked: Asked) -> int:
        """Add a call; the bytes that it adds."""
        size = write_bytes(asked.call.step)
        self.calls.append(asked)
        self.rows += 1
        self.bytes += size
        return size

    def absorb(self, newer: Entry) -> None:
        """Fold in everything that was added while this entry was under way."""
        for write in newer.steps.values():
            self.add(write)
        if newer.ending is not None:
            self.end(newer.ending, newer.settled)
        self.starts += newer.starts
        for asked in newer.calls:
            self.ask(asked)
        self.uncertain = self.uncertain or newer.uncertain


def write_bytes(write: StepWrite) -> int:
    """Memory a pending write holds, roughly."""
    return (
        ROW_OVERHEAD
        + (len(write.input) if write.input else 0)
        + (len(write.output) if write.output else 0)
        + (len(write.error) if write.error else 0)
        + (len(write.attempt_errors) if write.attempt_errors else 0)
    )


def take(pending: MutableMapping[K, Entry], now: float, *, max_rows: int = MAX_ROWS) -> dict[K, Entry]:
    """Remove from `pending` and give what goes into the next statement: oldest first, at least one if any is due."""
    chosen: dict[K, Entry] = {}
    runs: set[str] = set()
    rows = 0
    for key, entry in pending.items():
        if entry.due > now or key.run_id in runs:
            continue
        added = entry.rows
        if chosen and rows + added > max_rows:
            break
        chosen[key] = entry
        runs.add(key.run_id)
        rows += added
        if rows >= max_rows:
            break
    for key in chosen:
        del pending[key]
    return chosen


def hold_back(batch: Mapping[K, Entry], pending: MutableMapping[K, Entry], room: int) -> dict[K, Entry]:
    """Entries whose first calls are carried out now, at most `room` calls in all; the others go back to `pending`,
    before what was added since."""
    chosen: dict[K, Entry] = {}
    for key, entry in batch.items():
        rest = entry.beyond(room)
        if rest is not None:
            newer = pending.pop(key, None)
            if newer is not None:
                rest.absorb(newer)
            pending[key] = rest
        if entry.calls:
            chosen[key] = entry
            room -= len(entry.calls)
    return chosen


def next_due(pending: Mapping[K, Entry]) -> float | None:
    """The earliest instant at which something is due, None when nothing is pending."""
    return min((entry.due for entry in pending.values()), default=None)


def give_up(entry: Entry, error: Callable[[], BaseException]) -> None:
    """It will not be written: everybody who waits for it hears this error."""
    waiters: list[asyncio.Future[Any]] = [*entry.starts, *(asked.answer for asked in entry.calls)]
    if entry.settled is not None:
        waiters.append(entry.settled)
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error())


def halves(batch: Mapping[K, Entry]) -> tuple[dict[K, Entry], dict[K, Entry]]:
    """The batch in two parts that are as equal as can be; the second is empty for a single entry."""
    items = list(batch.items())
    middle = (len(items) + 1) // 2
    return dict(items[:middle]), dict(items[middle:])


def row_count(entries: Iterable[Entry]) -> int:
    """Rows of all entries together."""
    return sum(entry.rows for entry in entries)


def describe(entry: Entry) -> str:
    """What an entry holds, for the error of a run whose data the database refuses."""
    writes = [*entry.steps.values(), *(each.call.step for each in entry.calls)]
    names = [f"step {write.index} ({write.name})" for write in sorted(writes, key=lambda w: w.index)]
    if entry.ending is not None:
        names.append("the run's outcome")
    shown = names[:3] + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    return " and ".join(shown) if shown else "nothing"


def stops(flags: OwnedFlags) -> bool:
    """Whether the flags that came back ask the body to stop."""
    return flags.cancel_mode is not None or flags.suspended
