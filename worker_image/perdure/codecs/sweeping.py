"""Removes values from an object store that no row names any more. Called by `perdure offload sweep`.

Promise: what a row names, or what a row may still come to name, is never removed. A value is uploaded before its row is
written, under the day of the upload; so only days that have been over for longer than any worker takes between these
two are looked at, and they are listed before the rows are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from perdure.codecs.offload import Offload
from perdure.errors import InvalidArgument

LEAST_DAYS = 2
"""Fewest days that are left alone: today's, and one for clocks and for writers that hang between store and row."""

BATCH = 1000
"""Values removed between two words of progress."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep has found in the days that it looked at: values, how many of them rows name, how many were removed
    (or would be, of a dry run)."""

    values: int = 0
    named: int = 0
    removed: int = 0


async def sweep(
    offload: Offload,
    names: Callable[[str], AsyncIterator[str]],
    *,
    keep_days: int = LEAST_DAYS,
    dry_run: bool = False,
    today: datetime | None = None,
) -> Swept:
    """Remove what no row names of all days but today and the `keep_days` before it.

    `names` gives what follows a prefix in all rows. Raises `InvalidArgument`, `PayloadsUnavailable`, and what `names`
    raises; nothing is removed before all rows were read.
    """
    if not isinstance(keep_days, int) or isinstance(keep_days, bool) or keep_days < LEAST_DAYS:
        raise InvalidArgument(f"keep_days is at least {LEAST_DAYS}, not {keep_days!r}")
    first_kept = ((today or datetime.now(UTC)) - timedelta(days=keep_days)).strftime("%Y%m%d")
    days = [day for day in await asyncio.to_thread(offload.days) if day < first_kept]
    found: dict[str, str] = {}
    for day in days:
        found.update(await asyncio.to_thread(offload.of_day, day))
    total = len(found)
    if found:
        async for name in names(offload.prefix):
            found.pop(name.rpartition("/")[0], None)
    left_over = list(found.values())
    if not dry_run:
        for first in range(0, len(left_over), BATCH):
            await asyncio.to_thread(offload.remove, left_over[first : first + BATCH])
    return Swept(total, total - len(left_over), len(left_over))
