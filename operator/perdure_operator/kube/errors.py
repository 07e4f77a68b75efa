"""What the API server can say to a request, as exceptions that callers tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ApiUnavailable(Exception):
    """No answer, or one that says to come back (429, 5xx). Nothing is known about a write that was under way."""

    def __init__(self, message: str, *, retry_after: float | None = None, status: int = 0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.status = status


class ApiRefused(Exception):
    """The server has answered that it will not do this. `status` is the HTTP code, the rest from its Status object."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status = status
        self.reason = str(body.get("reason") or "")
        self.message = str(body.get("message") or f"HTTP {status}")
        details = body.get("details")
        self.details: Mapping[str, Any] = details if isinstance(details, Mapping) else {}
        super().__init__(f"{status} {self.reason}: {self.message}")

    @property
    def causes(self) -> tuple[str, ...]:
        """Paths of the fields that were refused."""
        return tuple(str(cause.get("field", "")) for cause in self.details.get("causes") or [])

    @property
    def object_missing(self) -> bool:
        """404 for an object of a kind that the server does serve; a missing CRD has another answer."""
        return self.status == 404 and self.reason == "NotFound" and bool(self.details.get("name"))
