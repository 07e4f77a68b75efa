"""Says once that something does not answer and once that it does again, whoever found out. Used for Postgres and the
API server, so that an hour's outage is two lines of log and not one for every try."""

from __future__ import annotations

import time

from perdure.telemetry.logs import get_logger

log = get_logger(__name__)


class Outage:
    """Of one thing that is needed; `seconds` says for how long it has been away."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """Since the first unanswered question that no answer has followed; 0 when all is well."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def failed(self, error: Exception) -> None:
        """There was no answer."""
        if self._since is None:
            self._since = time.monotonic()
            log.warning(f"{self._what} does not answer", error=str(error) or type(error).__name__)

    def answered(self) -> None:
        """There was one."""
        if self._since is not None:
            log.info(f"{self._what} answers again", seconds=round(self.seconds, 1))
            self._since = None
