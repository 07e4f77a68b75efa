"""What a schedule does now: which ticks start runs, which wait, which start none. Pure, it is given the time.

The whole of the policies for overlap and for catching up; `store/firing` carries out what comes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from zlib import crc32

from perdure.model.schedules import CatchUp, Overlap, Rule
from perdure.model.ticks import latest_ticks, next_tick

IN_TIME = timedelta(seconds=60)
"""How late a tick may be started and still count as in time: workers look once a second, restarts take some more."""

MOST_CAUGHT_UP = 100
"""Ticks of one schedule that are looked at together: what is started at once after an outage is no flood. More than
these are counted as missed; a backfill starts them."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A schedule as its row says. Every tick up to `decided` is settled; `queued` waits for the end of a run."""

    namespace: str
    name: str
    rule: Rule
    decided: datetime
    queued: datetime | None = None

    def moved(self, by: timedelta) -> Standing:
        """The same by a clock that is so much ahead."""
        queued = None if self.queued is None else self.queued + by
        return replace(self, decided=self.decided + by, queued=queued)


@dataclass(frozen=True, slots=True)
class Firing:
    """What to do. `start`: ticks that start their run now. `cancel`: the runs that have not ended. `next_at`: when the
    schedule is to be looked at again, None when it ticks no more."""

    start: tuple[datetime, ...]
    queued: datetime | None
    cancel: bool
    decided: datetime
    next_tick: datetime | None
    next_at: datetime | None
    skipped: int
    missed: int

    def moved(self, by: timedelta) -> Firing:
        """The same by a clock that is so much ahead."""

        def other(instant: datetime | None) -> datetime | None:
            return None if instant is None else instant + by

        return replace(
            self,
            start=tuple(tick + by for tick in self.start),
            queued=other(self.queued),
            decided=self.decided + by,
            next_tick=other(self.next_tick),
            next_at=other(self.next_at),
        )


def fire(schedule: Standing, now: datetime, *, busy: bool) -> Firing:
    """What the schedule does at `now`; `busy`: a run of it has not ended.

    Raises `InvalidArgument` when this process cannot read the rule.
    """
    rule = schedule.rule
    found = latest_ticks(rule.cron, rule.time_zone, schedule.decided, now, MOST_CAUGHT_UP)
    due = list(takewhile(lambda tick: due_at(schedule, tick) <= now, found))
    wanted = [tick for tick in due if _caught_up(schedule, tick, now, due[-1])]
    start, queued, cancel = _beside(rule.overlap, wanted, schedule.queued, busy=busy)
    decided = due[-1] if due else schedule.decided
    following = next_tick(rule.cron, rule.time_zone, decided)
    return Firing(
        start=start,
        queued=queued,
        cancel=cancel,
        decided=decided,
        next_tick=following,
        next_at=None if following is None else due_at(schedule, following),
        skipped=len(wanted) + (schedule.queued is not None) - len(start) - (queued is not None),
        missed=len(due) - len(wanted),
    )


def due_at(schedule: Standing, tick: datetime) -> datetime:
    """When the run of a tick is started: up to the jitter later, the same in every process."""
    if not schedule.rule.jitter:
        return tick
    share = crc32(f"{schedule.namespace}/{schedule.name}/{tick.timestamp()}".encode()) / 2**32
    return tick + timedelta(seconds=share * schedule.rule.jitter)


def _caught_up(schedule: Standing, tick: datetime, now: datetime, newest: datetime) -> bool:
    """Whether a tick that has come is to start something."""
    late = now - due_at(schedule, tick)
    window = max(IN_TIME, timedelta(seconds=schedule.rule.window))
    match schedule.rule.catch_up:
        case CatchUp.NONE:
            return late <= IN_TIME
        case CatchUp.LATEST:
            return tick == newest and late <= window
        case CatchUp.ALL:
            return late <= window


def _beside(
    overlap: Overlap, wanted: Sequence[datetime], queued: datetime | None, *, busy: bool
) -> tuple[tuple[datetime, ...], datetime | None, bool]:
    """Of the ticks that are wanted: those that start now, the one that waits, and whether what runs is cancelled."""
    waiting = [*([] if queued is None else [queued]), *wanted]
    match overlap:
        case Overlap.ALLOW:
            return tuple(waiting), None, False
        case Overlap.SKIP:
            return () if busy else tuple(waiting[:1]), None, False
        case Overlap.CANCEL_PREVIOUS:
            newest = waiting[-1] if waiting else None
            if busy:
                return (), newest, bool(wanted)
            return () if newest is None else (newest,), None, False
        case Overlap.QUEUE_ONE:
            if busy:
                return (), next(iter(waiting), None), False
            return tuple(waiting[:1]), next(iter(waiting[1:]), None), False
