"""Which operator acts: the one whose session holds an advisory lock in Postgres.

The lock is a convenience, not a fence: everything that a leader does bears being done by two at once (upserts by
generation, statuses by revision, applies that are the same), so nothing waits for certainty that the other one has
stopped. A session that ends gives the lock back, so a successor leads within a second of a crash.
docs/decisions/0005-leadership-and-cleanup.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from perdure.errors import StoreUnavailable
from perdure.store.leadership import Leadership
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics

from perdure_operator.control.database import is_away

log = get_logger(__name__)

TRY_SECONDS = 1.0
"""Time between two tries for the lock: one trivial statement a second, and the longest gap without a leader."""

CHECK_SECONDS = 2.0
"""Time between two looks at whether the session still holds it."""


def lock_name(namespaces: Sequence[str]) -> str:
    """Operators of the same namespaces share a lock; installations for others on one database do not wait for them."""
    return "perdure-operator:" + ",".join(sorted(set(namespaces)))


class Leader:
    """Leadership of one name. `leading` may be read at any time."""

    def __init__(self, url: str, name: str, metrics: Metrics) -> None:
        self._url = url
        self._name = name
        self._metrics = metrics
        self.leading = False

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Try for the lock, run `lead` while it is held, start over; until cancelled."""
        waiting = False
        while True:
            try:
                async with Leadership(self._url, self._name) as lock:
                    while not await lock.acquire():
                        if not waiting:
                            log.info("another operator leads; standing by")
                            waiting = True
                        await asyncio.sleep(TRY_SECONDS)
                    waiting = False
                    await self._while_held(lock, lead)
            except Exception as error:
                if not isinstance(error, StoreUnavailable) and not is_away(error):
                    raise
                log.debug("no leadership: Postgres does not answer", error=str(error))
            await asyncio.sleep(TRY_SECONDS)

    async def _while_held(self, lock: Leadership, lead: Callable[[], Awaitable[None]]) -> None:
        log.info("leading")
        self.leading = True
        self._metrics.set(names.LEADER, 1)
        work = asyncio.ensure_future(lead())
        try:
            while not work.done():
                await asyncio.wait([work], timeout=CHECK_SECONDS)
                if not work.done() and not await lock.held():
                    log.warning("leadership lost")
                    return
            work.result()
        finally:
            self.leading = False
            self._metrics.set(names.LEADER, 0)
            work.cancel()
            await asyncio.wait([work])
