"""What a worker remembers of one queue between two claims: in which ranges runs are ready, and from which place on.

Pure: it is given the time. Used by `claimer`. Claims that go on from remembered places read no entry of the index
twice, also while an old snapshot somewhere (a backup, a forgotten transaction) keeps the entries of claimed runs from
being removed. But runs come back before those places: woken, given back, taken from dead workers, with another
priority. So what is remembered is doubted, and looked up anew, when a claim comes back short, at every notification
and every few seconds; only, a look may have to read all that a claim need not, and is therefore given a bounded share
of the time.

Partitions take turns here: each claim begins behind the partition that was served last.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from perdure.store.claims import Look, Place, RangeKey, Taken

TRUST_SECONDS = 2.0
"""How long what was found is believed without a sign to the contrary: the delay of a run that came back unheard of."""

LOOK_SHARE = 0.1
"""Share of the time that looks may take. A look of a millisecond may then follow another after ten."""

LONGEST_DOUBT = 10.0
"""Seconds after which a look is made at any rate, however dear it is."""

FAMILIAR = 8
"""Ranges remembered although nothing is ready in them, so that the next run there is claimed without a look."""


PASSED_OVER = 10
"""Looks one after the other at partitions that are all at the limits of their queue: a thousand of them, then it is
left to the next round."""


class Next(StrEnum):
    """What to do."""

    LOOK = "look"
    TAKE = "take"
    NOTHING = "nothing"


class Floor:
    """What is known of one queue. Times in seconds of any one clock."""

    def __init__(self) -> None:
        self._ready: dict[RangeKey, Place] = {}
        self._cut = False
        self._familiar: dict[RangeKey, Place] = {}
        self._untried = False
        self._doubt = True
        self._fresh = False
        self._passed = 0
        self._offered: list[str] = []
        self._looked_at = -LONGEST_DOUBT
        self._looked_for = 0.0
        self.served_last = ""
        """The partition behind which the next turn begins."""

    # -- what to do

    def begin(self) -> None:
        """A round of claims begins: something may have happened, or it is time to ask again."""
        if not self._ready:
            self._doubt = self._untried = True

    def next(self, now: float) -> Next:
        """What to do to get further runs."""
        if self._ready:
            aged = now - self._looked_at >= TRUST_SECONDS
            return Next.LOOK if (self._doubt or aged) and self._may_look(now) else Next.TAKE
        if self._doubt and self._untried and self._familiar:
            return Next.TAKE
        return Next.LOOK if self._doubt and self._may_look(now) else Next.NOTHING

    def look_in(self, now: float) -> float | None:
        """Seconds until a look is possible that is wanted now; None when none is."""
        if self._ready or not self._doubt:
            return None
        return max(0.0, self._look_again_at - now)

    def offer(self, limit: int, partitions: int | None = None) -> tuple[list[tuple[RangeKey, Place]], int]:
        """From which ranges to take, in the order of turns, and how many runs, at most `limit`. Ranges of at most
        `partitions` partitions: of no more than there are runs to take, unless some may have to be passed over."""
        known = self._ready or self._familiar
        chosen = self._offered = _turns(known, self.served_last)[: limit if partitions is None else partitions]
        if self._ready and self._cut:
            # Others wait behind these: nobody has two turns before each has had one.
            limit = min(limit, len(chosen))
        turn = {partition: number for number, partition in enumerate(chosen)}
        ranges = [(key, place) for key, place in known.items() if key.partition_key in turn]
        return sorted(ranges, key=lambda each: turn[each[0].partition_key]), limit

    # -- what happened

    def news(self) -> None:
        """Runs have become ready somewhere in the pool."""
        self._doubt = self._untried = True

    def found(self, look: Look, now: float, seconds: float) -> None:
        """A look has ended now and took so long."""
        self._ready = dict(look.ranges)
        self._cut = look.cut
        self._doubt = self._untried = False
        self._fresh = True
        self._looked_at, self._looked_for = now, seconds

    def took(self, taken: Taken, asked: int) -> None:
        """A claim of `asked` runs was answered."""
        for key, place in taken.places.items():
            if key in self._ready:
                self._ready[key] = place
            self._familiar.pop(key, None)
            self._familiar[key] = place
        while len(self._familiar) > FAMILIAR:
            del self._familiar[next(iter(self._familiar))]
        if taken.counts:
            most = max(taken.counts.values())
            served = [partition for partition, count in taken.counts.items() if count == most]
            self.served_last = _turns_of(served, self.served_last)[-1]
            self._fresh = False
        elif self._offered:
            # What they have is locked by others: they have had their turn.
            self.served_last = self._offered[-1]
        self._untried = False
        if taken.total < asked:
            self._ready = {key: place for key, place in self._ready.items() if key.partition_key not in self._offered}
            # What a look has just shown and nobody can take is asked for again when it is time, not in a circle.
            self._doubt = self._doubt or not (self._ready or self._fresh) or self._pass_over(taken)
        elif self._cut and self._ready:
            self._ready = {key: place for key, place in self._ready.items() if key.partition_key not in taken.counts}
            if not self._ready:
                # On to the next partitions, which is no doubt: it costs what it costs.
                self._doubt, self._looked_for = True, 0.0

    # -- inside

    def _pass_over(self, taken: Taken) -> bool:
        """Whether to look at the partitions behind, as soon as a look may be made: these are at their limits."""
        self._passed += 1
        if taken.room is None or taken.counts or not self._cut or self._ready or self._passed > PASSED_OVER:
            self._passed = 0
            return False
        return True

    @property
    def _look_again_at(self) -> float:
        return self._looked_at + min(self._looked_for / LOOK_SHARE, LONGEST_DOUBT)

    def _may_look(self, now: float) -> bool:
        return now >= self._look_again_at


def _turns(ranges: Iterable[RangeKey], last: str) -> list[str]:
    return _turns_of({key.partition_key for key in ranges}, last)


def _turns_of(partitions: Iterable[str], last: str) -> list[str]:
    """Partitions in the order of their turns: those behind `last` first."""
    return sorted(partitions, key=lambda partition: (partition <= last, partition))
