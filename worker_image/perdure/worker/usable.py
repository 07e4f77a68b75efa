"""Whether a worker can work with the database: one look after the other, until one finds nothing wrong.

Used by `Worker` before it registers. Promises: a schema that does not fit, a database that does not answer and one that
refuses are all waited for, as each may be put right meanwhile; nothing is written.
"""

from __future__ import annotations

from typing import NamedTuple

import asyncpg

from perdure.errors import SchemaOutOfRange
from perdure.store import role_settings
from perdure.store.migrate import check
from perdure.store.pool import connection_errors
from perdure.telemetry.logs import get_logger
from perdure.worker.link import Link
from perdure.worker.service import backoff

log = get_logger(__name__)

SCHEMA_CHECK_SECONDS = 1.0
"""Between looks at a schema that does not fit yet: the operator migrates within seconds of its start."""


class NotYet(NamedTuple):
    """Why the database cannot be used, and how many seconds to wait before the next look."""

    why: str
    pause: float


class Looks:
    """The looks of one start. `behind_pooler`: settings that a session cannot set are looked for in the role's."""

    def __init__(self, link: Link, *, behind_pooler: bool) -> None:
        self._link = link
        self._behind_pooler = behind_pooler
        self._failures = 0

    async def look(self) -> NotYet | None:
        """None when the database can be used."""
        try:
            await self._link.call(check)
            if self._behind_pooler and (missing := await self._link.call(role_settings.missing)):
                log.warning(
                    "settings of the role are missing, which a pooler does not let a session set: run the "
                    "statements that `perdure migrate --role-settings` prints, then RECONNECT the pooler",
                    missing=sorted(missing),
                )
        except SchemaOutOfRange as error:
            return NotYet(error.message, SCHEMA_CHECK_SECONDS)
        except (asyncpg.PostgresError, *connection_errors) as error:
            # A wrong password is waited out, too: a secret may be on its way, and the probe says what is wrong.
            self._failures += 1
            why = f"the database does not answer: {type(error).__name__}: {error}"
            return NotYet(why, backoff(self._failures))
        return None
