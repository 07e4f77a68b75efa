"""What is recorded of a run, a page at a time. Each row is looked at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from perdure.model.rows import RecordedStep

MoreHistory = Callable[[int], Awaitable[Sequence[RecordedStep]]]
"""Recorded steps after an index, in order, a page at a time; empty at the end."""


class History:
    """The recorded steps of one run. `more` reads what `steps` leaves out; None when it leaves out nothing."""

    __slots__ = ("_last", "_lock", "_more", "_rows")

    def __init__(self, steps: Sequence[RecordedStep], more: MoreHistory | None) -> None:
        self._rows = {step.index: step for step in steps}
        self._last = max(self._rows, default=-1)
        self._more = more
        self._lock = asyncio.Lock() if more is not None else None

    def knows(self, index: int) -> bool:
        """Whether `take` has the answer for this index without reading on."""
        return self._more is None or index <= self._last

    def reaches(self, index: int) -> bool:
        """Whether anything was recorded at this index or behind it, where `knows` says that it is known."""
        return self._last >= index

    async def read_to(self, index: int) -> None:
        """Read pages until `knows(index)`."""
        if self._lock is None:
            return
        async with self._lock:
            while self._more is not None and index > self._last:
                page = await self._more(self._last)
                self._rows.update((step.index, step) for step in page)
                if page:
                    self._last = page[-1].index
                else:
                    self._more = None

    def recorded(self, index: int) -> RecordedStep | None:
        """The row at an index that `knows`, None if there is none or it was taken."""
        return self._rows.get(index)

    def take(self, index: int) -> RecordedStep | None:
        """The row at an index, None if there is none; it is forgotten here."""
        return self._rows.pop(index, None)
