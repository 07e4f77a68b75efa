"""What the API server's answer to a status write means: pure, so that every answer can be a line in a table.

Used by `reporter`, and by `kubeapi`, which makes the requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

REVISION_FIELD = "status.revision"
"""Field named in the refusal of the rule that keeps revisions from going back."""


class Verdict(StrEnum):
    """What an answer means for the report."""

    OK = "ok"
    GONE = "gone"
    """No such object, or another one under its name: not ours to write."""
    STALE = "conflict"
    """A higher revision is there."""
    REFUSED = "refused"
    """The server will never take this: a rule, a limit, missing rights."""
    RETRY = "error"
    """No answer, or the server is in trouble."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Verdict of one request. `retry_after` (seconds) and `overloaded` ask to slow down."""

    verdict: Verdict
    message: str = ""
    retry_after: float | None = None
    overloaded: bool = False


class StatusApi(Protocol):
    """What the reporter needs of the API."""

    async def write_status(self, *, namespace: str, name: str, uid: str, status: Mapping[str, Any]) -> Answer:
        """Replace the status of the Workflow with this name, only if it has this UID. Never raises."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


def classify(code: int, body: str, retry_after: str | None) -> Answer:
    """What an HTTP status, a Status object and a Retry-After header say."""
    if 200 <= code < 300:
        return Answer(Verdict.OK)
    message, fields = _status_object(body)
    said = f"{code}: {message}"
    if code == 404:
        return Answer(Verdict.GONE, said)
    if code == 422:
        if not fields:
            # The test of the UID failed: the only refusal of a JSON patch without a cause.
            return Answer(Verdict.GONE, said)
        if any(field.startswith(REVISION_FIELD) for field in fields):
            return Answer(Verdict.STALE, said)
        return Answer(Verdict.REFUSED, said)
    if code in {401, 403}:
        # Rights may be on their way, a token may be renewed: slowly, but again.
        return Answer(Verdict.RETRY, said, retry_after=_seconds(retry_after))
    if code == 409 or code == 429 or code >= 500:
        return Answer(Verdict.RETRY, said, retry_after=_seconds(retry_after), overloaded=code != 409)
    return Answer(Verdict.REFUSED, said)


def _status_object(body: str) -> tuple[str, list[str]]:
    try:
        answer = json.loads(body)
    except ValueError:
        return body[:200], []
    if not isinstance(answer, dict):
        return body[:200], []
    details = answer.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    fields = [str(cause.get("field", "")) for cause in causes or [] if isinstance(cause, dict)]
    return str(answer.get("message", ""))[:500], fields


def _seconds(retry_after: str | None) -> float | None:
    try:
        return max(0.0, float(retry_after)) if retry_after else None
    except ValueError:
        return None
