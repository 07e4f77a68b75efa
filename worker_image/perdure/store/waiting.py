"""`WaitingFor` as it is stored in `workflows.waiting_for`, and other sentences for people in the rows of runs.

Used by every module here that reads or writes them. What users wrote (the message of an exception, a reason) may
hold anything; it must not make a row that cannot be stored.
"""

from __future__ import annotations

import json
from datetime import datetime

from perdure.model.rows import WaitingFor

MESSAGE_LIMIT = 1000
"""Characters kept of a message: it is a sentence for people, and it is copied into the status of a resource."""


def clean(text: str) -> str:
    """The text as the database can hold it: without NUL and lone surrogates, cut to `MESSAGE_LIMIT`."""
    return text[:MESSAGE_LIMIT].replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def encode(waiting: WaitingFor) -> str:
    """JSON text for the column. Fields that are empty are left out, so that equal values are equal texts."""
    fields: dict[str, str | list[str]] = {"kind": clean(waiting.kind)}
    if waiting.name:
        fields["name"] = clean(waiting.name)
    if waiting.message:
        fields["message"] = clean(waiting.message)
    if waiting.until is not None:
        fields["until"] = waiting.until.isoformat()
    if waiting.on:
        fields["on"] = list(waiting.on)
    return json.dumps(fields)


def decode(text: str | None) -> WaitingFor | None:
    """The value of the column, None for null."""
    if text is None:
        return None
    fields = json.loads(text)
    until = fields.get("until")
    return WaitingFor(
        kind=fields["kind"],
        name=fields.get("name", ""),
        message=fields.get("message", ""),
        until=None if until is None else datetime.fromisoformat(until),
        on=tuple(fields.get("on", ())),
    )
