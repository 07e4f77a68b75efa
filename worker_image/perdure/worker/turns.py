"""How the free slots of a worker divide among its queues. Pure. Used by `claimer`.

Queues take turns: each gets an equal share of the free slots, what one does not use goes to the others, and where
slots come free one by one, the next goes to the queue behind the one served last. So no queue, however long, keeps
another waiting. Weights would go into `share`.
"""

from __future__ import annotations

from collections.abc import Sequence


class Turns:
    """Whose turn it is."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = list(dict.fromkeys(queues))
        self._first = 0

    def order(self) -> list[str]:
        """All queues, the one first whose turn it is."""
        return self._queues[self._first :] + self._queues[: self._first]

    def served(self, queue: str) -> None:
        """A queue got a slot: the next round begins behind it."""
        self._first = (self._queues.index(queue) + 1) % len(self._queues)

    @staticmethod
    def share(free: int, queues: int) -> int:
        """Slots for each of so many queues that may have ready runs; rounded up, so that none stays free."""
        return -(-free // queues)
