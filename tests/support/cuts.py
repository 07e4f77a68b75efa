"""Sessions of Postgres that are cut, paced by what was hit and not by the clock."""

from datetime import datetime
from typing import Any

import asyncpg

from tests.support.pgwait import eventually

SESSIONS = "SELECT pid, backend_start FROM pg_stat_activity WHERE application_name = $1"


class Cutter:
    """Ends the sessions of one name, each of them once.

    A session that was told to end is seen for a moment longer: it counts as one hit.
    """

    def __init__(self, conn: "asyncpg.Connection[Any]", name: str) -> None:
        self._conn = conn
        self._name = name
        self._ended: set[tuple[int, datetime]] = set()

    @property
    def hits(self) -> int:
        """Sessions that were ended so far."""
        return len(self._ended)

    async def cut(self) -> int:
        """End every session that is there and was not ended yet; how many those were."""
        before = self.hits
        for row in await self._conn.fetch(SESSIONS, self._name):
            session = (row["pid"], row["backend_start"])
            if session not in self._ended and await self._conn.fetchval("SELECT pg_terminate_backend($1)", row["pid"]):
                self._ended.add(session)
        return self.hits - before

    async def hit(self) -> None:
        """End at least one session, as soon as there is one again."""
        await eventually(self.cut, f"a session of {self._name} is there to be cut")
