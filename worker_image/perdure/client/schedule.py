"""When to ask the database about which awaited runs: pure, it is given the time.

Used by the watcher, which asks. All runs that are due about now share one question; a run that a notification named
is due at once; one whose row could not be marked is asked about again soon, because nobody will tell of its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

MOST_ASKED = 500
"""Runs in one question: some 5 ms of Postgres' time, so that others' questions pass in between."""

QUICK_SECONDS = 0.01
"""First pause before a run is asked about again that could not be marked: its row was locked by a commit under way.
Doubled each time, up to the poll interval."""


@dataclass(slots=True)
class _Watched:
    poll: float
    due: float
    armed: bool = False
    quick: float = QUICK_SECONDS
    asleep: bool = False
    """Not created yet, as far as this process knows."""


class Schedule:
    """The awaited runs. Instants are of one clock, in seconds. Without `news` nobody tells of ends: runs are never
    armed, and polled only."""

    def __init__(self, *, news: bool) -> None:
        self._news = news
        self._runs: dict[str, _Watched] = {}
        self._urgent: dict[str, None] = {}
        self._next = inf
        """No run that is not urgent is due before this."""

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def add(self, run_id: str, poll: float, *, asleep: bool = False) -> None:
        """Await a run from now on, and ask at once; of several polls for one run the shortest counts. An `asleep` run
        is about to be created: nothing is asked before `awake`."""
        known = self._runs.get(run_id)
        if known is None:
            self._runs[run_id] = _Watched(poll, inf, asleep=asleep)
        else:
            known.poll = min(known.poll, poll)
        if not asleep and (known is None or not known.asleep):
            self._urgent[run_id] = None

    def awake(self, run_id: str, now: float, *, armed: bool, here: bool = False) -> None:
        """The run exists. `armed`: it was created so that its end will be told. `here`: this process runs it and hears
        of its end without that."""
        run = self._runs.get(run_id)
        if run is None or not run.asleep:
            return
        run.asleep = False
        run.armed = armed and self._news
        if not (run.armed or here):
            self._urgent[run_id] = None
        elif run_id not in self._urgent:
            self._set_due(run, now + run.poll)

    def remove(self, run_id: str) -> None:
        """Nobody awaits it any more."""
        self._runs.pop(run_id, None)
        self._urgent.pop(run_id, None)

    def heard(self, run_ids: Iterable[str]) -> bool:
        """These have ended, somebody says; whether any of them is awaited here."""
        mine = [run_id for run_id in run_ids if run_id in self._runs]
        self._urgent.update(dict.fromkeys(mine))
        return bool(mine)

    def gap(self) -> None:
        """Something may have been missed: ask about all."""
        self._urgent.update(dict.fromkeys(self._runs))

    def due_at(self) -> float:
        """When to ask next: minus infinity for at once, infinity for not at all."""
        return -inf if any(not self._runs[run_id].asleep for run_id in self._urgent) else self._next

    def take(self, now: float) -> tuple[list[str], list[str]]:
        """The runs to ask about now, at most `MOST_ASKED`, and those of them to mark so that their end is told.

        Runs that would be due within half their interval come along, so that those with one interval end up in one
        question. None of them is due again before its answer.
        """
        asked = [run_id for run_id in self._urgent if not self._runs[run_id].asleep][:MOST_ASKED]
        for run_id in asked:
            del self._urgent[run_id]
            self._runs[run_id].due = inf
        if now >= self._next and len(asked) < MOST_ASKED:
            self._next = inf
            for run_id, run in self._runs.items():
                if len(asked) < MOST_ASKED and run.due <= now + run.poll / 2:
                    asked.append(run_id)
                    run.due = inf
                else:
                    self._next = min(self._next, run.due)
        arm = [run_id for run_id in asked if not self._runs[run_id].armed] if self._news else []
        return asked, arm

    def answered(self, run_id: str, now: float, *, armed: bool, spread: float = 1.0) -> None:
        """It has not ended. `spread` times the interval from now it is due again."""
        run = self._runs.get(run_id)
        if run is None:
            return
        run.armed = run.armed or armed
        if run.armed or not self._news:
            self._set_due(run, now + run.poll * spread)
        else:
            self._set_due(run, now + min(run.quick, run.poll))
            run.quick *= 2

    def again(self, run_ids: Iterable[str], at: float) -> None:
        """There was no answer: these are due at that instant."""
        for run_id in run_ids:
            run = self._runs.get(run_id)
            if run is not None:
                self._set_due(run, at)

    def _set_due(self, run: _Watched, at: float) -> None:
        run.due = at
        self._next = min(self._next, at)
