"""How one execution of a run's body ended: values decided by the engine and written by the journal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from perdure.model.rows import WaitingFor

FIELDS = ("type", "message", "code", "step", "raised")
"""Keys of a stored error record, in the order in which they are written."""


NO_WAKE = -1
"""See `Parked`."""


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """A failure as it is stored and shown: class name, message, our stable code when it has one.

    `raised` is what is needed beside the message to raise it again (JSON, written and read by the engine). `attempts`
    are the failures behind a step that was tried several times, oldest first. `portable`: it is stored in the form that
    programs in other languages read and write; `raised` is then an object of `code` and `data`, as they were given.
    """

    type: str
    message: str
    code: str = ""
    step: str = ""
    raised: str = ""
    attempts: tuple[ErrorRecord, ...] = ()
    portable: bool = False

    def to_json(self) -> str:
        """JSON object, ASCII only. Without empty fields, save those of the portable form: `name`, `message`, `code`,
        `data`."""
        return json.dumps(self._fields())

    @classmethod
    def from_json(cls, text: str) -> ErrorRecord:
        """Reads what `to_json` wrote; a text of another shape becomes the message itself."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            return cls(type="Error", message=text)
        return cls._of(data)

    def _fields(self) -> dict[str, Any]:
        if self.portable:
            given = json.loads(self.raised) if self.raised else {}
            fields: dict[str, Any] = {
                "name": self.type,
                "message": self.message,
                "code": given.get("code", self.code or None),
                "data": given.get("data"),
                **({"step": self.step} if self.step else {}),
            }
        else:
            fields = {key: value for key in FIELDS if (value := getattr(self, key))}
        if self.attempts:
            fields["attempts"] = [each._fields() for each in self.attempts]
        return fields

    @classmethod
    def _of(cls, data: dict[str, Any]) -> ErrorRecord:
        if "name" in data and "type" not in data:
            given = {key: data.get(key) for key in ("code", "data")}
            code = given["code"]
            known: dict[str, Any] = {
                "type": str(data["name"]),
                "message": str(data.get("message", "")),
                "code": "" if code is None else str(code),
                "step": str(data.get("step", "")),
                "raised": json.dumps(given),
                "portable": True,
            }
        else:
            known = {key: str(data[key]) for key in FIELDS if key in data}
        attempts = data.get("attempts")
        if isinstance(attempts, list):
            known["attempts"] = tuple(cls._of(each) for each in attempts if isinstance(each, dict))
        return cls(**{"type": "Error", "message": "", **known})


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The body returned; `output` is JSON text."""

    output: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The body raised."""

    error: ErrorRecord


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The body was stopped by a cancel or a deadline; `reason` is a sentence."""

    reason: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Replay met another step or another input than recorded: retried with backoff, then parked."""

    error: ErrorRecord


@dataclass(frozen=True, slots=True)
class Parked:
    """The run gives its slot back and waits. `wake_in` is seconds from the commit, None = until woken.

    `wake_seq` is the run's count of wakes when what it waits for was last looked for and not there: if there was
    another wake since, the run becomes claimable instead (rule R7). None: as the claim saw it; `NO_WAKE`: it waits for
    a time alone, so no wake is missed.
    """

    waiting_for: WaitingFor
    wake_in: float | None
    wake_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """The run goes back to the queue, no attempt counted (drain, suspend)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The fence has moved on: nothing may be written any more."""


Ending = Succeeded | Failed | Cancelled | Mismatch | Parked | Released | Lost
