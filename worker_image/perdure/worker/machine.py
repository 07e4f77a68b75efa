"""Which runs this worker holds and what is to be done about them: slots, draining, a lost lease. No IO, no clock.

Events come in as method calls, instructions go out as values that `session` carries out. One machine stands for one
registration (one worker id); after a loss a new one begins. Keeps invariant 4 (a run is never owned by a worker that
does not run it: rule R6) and says once, not more, that a run was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from perdure.model.rows import ClaimedRun, OwnedRun
from perdure.model.states import CancelMode

UNKNOWN_BEATS = 2
"""Beats in a row that must show a run this process does not know before it is given back (rule R6)."""


class RunKey(NamedTuple):
    """One claim of one run: the same run claimed again is another key."""

    id: str
    fence: int


class Phase(StrEnum):
    """Life of a registration. It never goes back."""

    LIVE = "live"
    DRAINING = "draining"
    LOST = "lost"


NEXT_PHASES: dict[Phase, frozenset[Phase]] = {
    Phase.LIVE: frozenset({Phase.DRAINING, Phase.LOST}),
    Phase.DRAINING: frozenset({Phase.LOST}),
    Phase.LOST: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Start:
    """Execute this run."""

    run: ClaimedRun


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Release these claims in the database; their bodies do not run here."""

    keys: tuple[RunKey, ...]


class Stop(StrEnum):
    """Why a body is to stop."""

    CANCEL_GRACEFUL = "cancel graceful"
    DEADLINE = "deadline"
    CANCEL_IMMEDIATE = "cancel immediate"
    SUSPEND = "suspend"
    DRAIN = "drain"
    LOST = "lost"
    """The run has another owner."""
    ABANDON = "abandon"
    """This whole registration is lost."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Tell the body of this run to stop."""

    key: RunKey
    why: Stop


@dataclass(frozen=True, slots=True)
class ForceRelease:
    """Release this run although its body has not ended; what the body still does is dropped."""

    key: RunKey


Instruction = Start | GiveBack | Interrupt | ForceRelease


@dataclass(slots=True)
class _Slot:
    key: RunKey
    stamp: int
    undoes: bool = False
    ending: bool = False
    told: Stop | None = None


class Machine:
    """Slots of one registration. Not thread-safe: everything happens on the worker's loop."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.phase = Phase.LIVE
        self._held: dict[RunKey, _Slot] = {}
        self._claims_outstanding = 0
        self._reserved = 0
        self._starting: set[str] = set()
        self._stamp = 0
        self._unknown: dict[RunKey, int] = {}

    # -- what is true now

    @property
    def free(self) -> int:
        """Runs that may be claimed now."""
        if self.phase is not Phase.LIVE:
            return 0
        return max(0, self.slots - len(self._held) - self._reserved - len(self._starting))

    @property
    def busy(self) -> int:
        """Runs held: executing, or their end not yet written."""
        return len(self._held)

    def holds(self, key: RunKey) -> bool:
        """Whether the run is still held here."""
        return key in self._held

    def validate(self) -> None:
        """Raise AssertionError when the state contradicts itself. Tests call it after every event."""
        assert self.busy + self._reserved + len(self._starting) <= self.slots, "more runs than slots"
        assert self._claims_outstanding in {0, 1}, "one claim at a time"
        assert all(slot.key == key for key, slot in self._held.items()), "a slot under another key"
        assert not self._unknown.keys() & self._held.keys(), "known and unknown at once"
        assert all(slot.stamp <= self._stamp for slot in self._held.values()), "a claim from the future"
        assert all(count < UNKNOWN_BEATS for count in self._unknown.values()), "an unknown run not given back"

    # -- events: claims

    def claim_sent(self, runs: int) -> None:
        """A claim statement for so many runs is on its way; their slots are kept free for them."""
        self._claims_outstanding += 1
        self._reserved = runs

    def claim_failed(self) -> None:
        """Its outcome is unknown; what it may have claimed shows in the beats."""
        self._claims_outstanding -= 1
        self._reserved = 0

    def claim_answered(self, runs: Sequence[ClaimedRun]) -> list[Instruction]:
        """Its answer is here."""
        self.claim_failed()
        return self._take(runs)

    # -- events: runs that this process starts itself

    def starting(self, run_id: str) -> bool:
        """Whether a run of this id is being created."""
        return run_id in self._starting

    def start_sent(self, run_id: str) -> None:
        """This run is being created as one that is held here; a slot is kept free for it."""
        self._starting.add(run_id)

    def start_answered(self, run_id: str, run: ClaimedRun | None) -> list[Instruction]:
        """It is created and held here, or not."""
        self._starting.discard(run_id)
        return [] if run is None else self._take([run])

    def start_failed(self, key: RunKey) -> list[Instruction]:
        """It is not known whether it was created: it goes to the queue if it was."""
        self._starting.discard(key.id)
        return [] if self.phase is Phase.LOST or key in self._held else [GiveBack((key,))]

    def _take(self, runs: Sequence[ClaimedRun]) -> list[Instruction]:
        if not runs or self.phase is Phase.LOST:
            return []
        keys = [RunKey(run.id, run.fence) for run in runs]
        if self.phase is Phase.DRAINING:
            return [GiveBack(tuple(keys))]
        instructions: list[Instruction] = []
        claimed_again = {key.id for key in keys}
        for slot in self._held.values():
            # The old body may still unwind while the run is claimed anew: it is no longer its owner.
            if slot.key.id in claimed_again and not slot.ending:
                instructions += self._tell(slot, Stop.LOST)
        for key, run in zip(keys, runs, strict=True):
            self._unknown.pop(key, None)
            self._held[key] = _Slot(key, self._stamp, run.undoes)
            instructions.append(Start(run))
        return instructions

    # -- events: runs

    def run_ending(self, key: RunKey) -> None:
        """The body ended and its ending is handed to the journal: the row may leave this worker any moment."""
        slot = self._held.get(key)
        if slot is not None:
            slot.ending = True

    def run_left(self, key: RunKey) -> None:
        """The run is no longer held: its ending is written, or it was lost."""
        self._held.pop(key, None)

    # -- events: beats

    def pong(self) -> int:
        """A beat is about to be sent. The stamp given back comes again with its answer."""
        self._stamp += 1
        return self._stamp

    def beat(self, stamp: int, rows: Sequence[OwnedRun]) -> list[Instruction]:
        """The answer of the beat that carried `stamp`: all rows this worker owned in the database at that time."""
        if self.phase is Phase.LOST:
            return []
        owned = {RunKey(row.id, row.fence): row for row in rows}
        instructions: list[Instruction] = []
        for slot in self._held.values():
            # Claimed after the stamp: the beat may have read before the claim. Ending: the row may be gone rightly.
            if slot.stamp >= stamp or slot.ending:
                continue
            row = owned.get(slot.key)
            if row is None:
                instructions += self._tell(slot, Stop.LOST)
            else:
                instructions += self._flags(slot, row)
        instructions += self._give_back_unknown(owned)
        return instructions

    def _give_back_unknown(self, owned: dict[RunKey, OwnedRun]) -> list[Instruction]:
        unknown = [key for key in owned if key not in self._held and key.id not in self._starting]
        if self._claims_outstanding:
            # They may be in the answer that is on its way.
            self._unknown = {key: self._unknown[key] for key in unknown if key in self._unknown}
            return []
        counts = {key: self._unknown.get(key, 0) + 1 for key in unknown}
        given = tuple(key for key, count in counts.items() if count >= UNKNOWN_BEATS)
        self._unknown = {key: count for key, count in counts.items() if count < UNKNOWN_BEATS}
        return [GiveBack(given)] if given else []

    def _flags(self, slot: _Slot, row: OwnedRun) -> list[Instruction]:
        if row.cancel_mode is CancelMode.IMMEDIATE:
            return self._tell(slot, Stop.CANCEL_IMMEDIATE)
        if row.deadline_passed:
            return self._tell(slot, Stop.DEADLINE)
        if row.cancel_mode is CancelMode.COMPENSATE and slot.undoes:
            return []  # that is what it is about
        if row.cancel_mode is not None:
            return self._tell(slot, Stop.CANCEL_GRACEFUL)
        if row.suspended:
            return self._tell(slot, Stop.SUSPEND)
        return []

    # -- events: stopping

    def drain(self) -> list[Instruction]:
        """Claim nothing more; bodies end at their next durable call, steps in progress are finished first."""
        if self.phase is not Phase.LIVE:
            return []
        self._go(Phase.DRAINING)
        return [told for slot in self._held.values() if not slot.ending for told in self._tell(slot, Stop.DRAIN)]

    def force(self) -> list[Instruction]:
        """The time to drain is over: release what is still executing."""
        return [ForceRelease(slot.key) for slot in self._held.values() if not slot.ending]

    def lost(self) -> list[Instruction]:
        """This registration is dead: every body stops, nothing is written any more."""
        if self.phase is Phase.LOST:
            return []
        self._go(Phase.LOST)
        self._unknown.clear()
        return [told for slot in self._held.values() for told in self._tell(slot, Stop.ABANDON)]

    def _go(self, phase: Phase) -> None:
        assert phase in NEXT_PHASES[self.phase], f"{self.phase} never becomes {phase}"
        self.phase = phase

    _STRENGTH = (
        Stop.SUSPEND,
        Stop.DRAIN,
        Stop.CANCEL_GRACEFUL,
        Stop.DEADLINE,
        Stop.CANCEL_IMMEDIATE,
        Stop.LOST,
        Stop.ABANDON,
    )

    def _tell(self, slot: _Slot, why: Stop) -> list[Instruction]:
        """Once, and again only with something stronger."""
        if slot.told is not None and self._STRENGTH.index(slot.told) >= self._STRENGTH.index(why):
            return []
        slot.told = why
        return [Interrupt(slot.key, why)]
