"""Exceptions ↔ error records. A failure of a step is raised to the body in the same way at first and at replay.

That is why also the first time the body sees what can be built from the record, with the original as its cause:
else `except PaymentDeclined` would catch it the first time only. Which class a record stands for is in `errortypes`,
what it carries in `errordata`.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace

import asyncpg

from perdure.engine.codec import encode, shorten
from perdure.engine.errordata import LOST, data_of, made, message_of, portable_data, storable
from perdure.engine.errortypes import find, name_of, of
from perdure.errors import (
    CompensationFailed,
    EncodingFailed,
    MaxStepRetriesExceeded,
    PerdureError,
    Portable,
    StepFailed,
    StoreUnavailable,
    WorkflowFailed,
)
from perdure.model.outcome import ErrorRecord, Failed, Mismatch
from perdure.model.rows import RecordedStep
from perdure.store.pool import is_bad_row, is_transient

logger = logging.getLogger(__name__)

MAX_RAISED = 2000
"""Longest recorded form of what one of many failed attempts carries, in characters; above, it is a `StepFailed`."""

MAX_FAILURES = 100
"""Most recorded failures of one step: the first and the latest. The count goes on."""

MAX_FAILURES_CHARS = 200_000
"""Longest list of the failures of one step, in characters of what it says: it stands in a row that claims read."""

MAX_ATTEMPTS_CHARS = 50_000
"""Longest list of failed attempts in the failure of a run, in characters: parents keep it as well, clients read it."""

_MARK = "_perdure_step"
_REBUILT = "_perdure_rebuilt"


def describe(error: BaseException, step: str = "") -> ErrorRecord:
    """The record of an exception. Never raises, whatever the exception's own methods do."""
    try:
        return replace(_brief(error), step=step, attempts=_attempts(error))
    except BaseException as broken:
        # Also of another kind than `Exception`: it would end the process, as nothing above expects one here.
        message = f"(the exception cannot be read: {type(broken).__name__})"
        return ErrorRecord(_name(type(error)), message, step=step, raised=LOST)


def portable(record: ErrorRecord) -> ErrorRecord:
    """The same failure as other languages read it: name, message, code, data."""
    if record.portable:
        return record
    code, data = portable_data(record.raised, record.message)
    given = {"code": record.code or (code if type(code) in (int, str) else None), "data": data}
    attempts = tuple(map(portable, record.attempts))
    return replace(record, portable=True, raised=json.dumps(given), attempts=attempts)


def rebuild(record: ErrorRecord, failures: Failures, step: str) -> Exception:
    """The exception of a recorded failure: of its own class if that can be found and built, else `StepFailed`, or
    `Portable` of what is recorded as other languages do."""
    error = _build(record)
    if isinstance(error, MaxStepRetriesExceeded) and not record.attempts:
        error.errors = tuple(map(_build, failures.errors))
        error.attempts = failures.count
    error.__dict__[_MARK] = step
    return error


def rebuild_run(record: ErrorRecord, run_id: str) -> Exception:
    """The exception of a failed run: of its own class if that can be found and built, else `WorkflowFailed`, or
    `Portable` as for a step."""
    step = f" in step {record.step}" if record.step else ""
    error = _own(record) or _portable(record)
    if error is None:
        error = WorkflowFailed(f"run {run_id} failed{step}: {record.type}: {record.message}", record.type)
    if isinstance(error, StepFailed):
        # Of a class that could not be built even where the body ran.
        error = WorkflowFailed(f"run {run_id} failed{step}: {error.message}", getattr(error, "type_name", ""))
    error.add_note(f"raised by run {run_id}{step}")
    return error


def is_outage(error: BaseException) -> bool:
    """Whether this says that our own database was away while a step ran: no failure of the step. What is recorded and
    raised again is one."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_outage, error.exceptions))
    return isinstance(error, StoreUnavailable) and _REBUILT not in error.__dict__


def lasting(error: Exception) -> Failed | Mismatch | None:
    """How a run ends for which nothing could be written or read, because of this; None: it is only given back, as it
    can succeed when it is tried again at once, or somewhere else.

    An error that nobody has foreseen is mostly the body's, which drives a durable call itself, or throws something into
    it: given back, the run would do the same again, for ever.
    """
    if isinstance(error, PerdureError):
        return None if error.retryable else Failed(describe(error))
    if is_transient(error):
        return None
    refused = isinstance(error, asyncpg.PostgresError) and not is_bad_row(error)
    logger.error("a durable call failed in a way that nobody has foreseen", exc_info=error)
    return Mismatch(describe(error)) if refused else Failed(describe(error))


def step_of(error: BaseException) -> str:
    """Name of the step whose failure this is, or is caused by; empty if none."""
    seen: set[int] = set()
    cause: BaseException | None = error
    try:
        while cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            if _MARK in getattr(cause, "__dict__", {}):
                return str(cause.__dict__[_MARK])
            cause = cause.__cause__
    except BaseException:
        # As in `describe`: its own methods are in the way.
        return ""
    return ""


@dataclass(frozen=True, slots=True)
class Failures:
    """The failed attempts of one step so far, over all claims. `count` may exceed the records that are kept."""

    count: int = 0
    errors: tuple[ErrorRecord, ...] = ()

    @classmethod
    def of(cls, recorded: RecordedStep) -> Failures:
        """Those of a recorded step; tolerant of another shape of the list."""
        try:
            items = json.loads(recorded.attempt_errors or "[]")
        except ValueError:
            items = []
        if not isinstance(items, list):
            items = []
        errors = tuple(ErrorRecord.from_json(json.dumps(item)) for item in items if isinstance(item, dict))
        return cls(recorded.attempts, errors)

    def plus(self, error: ErrorRecord) -> Failures:
        """With one more."""
        brief = replace(error, step="", attempts=())
        if len(error.raised) > MAX_RAISED:
            brief = replace(brief, raised=LOST)
        return Failures(self.count + 1, bounded((*self.errors, brief), MAX_FAILURES_CHARS))

    def to_json(self) -> str | None:
        """As stored; None when there is none."""
        return f"[{','.join(error.to_json() for error in self.errors)}]" if self.errors else None


NONE = Failures()


def _brief(error: BaseException) -> ErrorRecord:
    """Without what stands behind it."""
    if isinstance(error, Portable):
        return _of_others(error)
    kind = type(error)
    message = message_of(error)
    code = storable(shorten(str(error.code))) if isinstance(error, PerdureError) else ""
    return ErrorRecord(type=_name(kind), message=message, code=code, raised=data_of(error, of(kind), message))


def _name(kind: type[BaseException]) -> str:
    """As it can be stored: a class made while the program runs may be called anything."""
    return storable(shorten(name_of(kind)))


def _of_others(error: Portable) -> ErrorRecord:
    """As it was given: the next who reads it may know the name."""
    try:
        data = json.loads(encode(error.data, "the data of a portable error"))
    except (EncodingFailed, RecursionError):
        data = None
    code = storable(error.code) if isinstance(error.code, str) else error.code
    given = {"code": code if type(code) in (int, str) else None, "data": data}
    shown = "" if given["code"] is None else str(code)
    return ErrorRecord(storable(str(error.name)), message_of(error), shown, raised=json.dumps(given), portable=True)


def _attempts(error: BaseException) -> tuple[ErrorRecord, ...]:
    """The failures behind a step that was tried several times, or a run that could not be undone; not what stands
    behind those in turn."""
    try:
        if isinstance(error, CompensationFailed):
            behind = () if error.error is None else (error.error, *error.failures)
        else:
            behind = error.errors if isinstance(error, MaxStepRetriesExceeded) else ()
        return bounded(tuple(map(_brief, behind)))
    except Exception:
        # Somebody has put something else there.
        return ()


def bounded(records: tuple[ErrorRecord, ...], most: int = MAX_ATTEMPTS_CHARS) -> tuple[ErrorRecord, ...]:
    """The first and as many of the latest as are kept."""
    kept = [*records[:1], *records[1:][1 - MAX_FAILURES :]]
    size = sum(len(record.message) + len(record.raised) for record in kept)
    while size > most and len(kept) > 2:
        left_out = kept.pop(1)
        size -= len(left_out.message) + len(left_out.raised)
    return tuple(kept)


def _build(record: ErrorRecord) -> Exception:
    return _own(record) or _portable(record) or StepFailed(f"{record.type}: {record.message}", record.type)


def _portable(record: ErrorRecord) -> Exception | None:
    if not record.portable:
        return None
    given = json.loads(record.raised or "{}")
    return Portable(record.type, record.message, given.get("code"), given.get("data"))


def _own(record: ErrorRecord) -> Exception | None:
    """Of its own class; None if that cannot be found or built."""
    found = find(record.type)
    if found is None:
        return None
    try:
        error = made(found, record)
        error.__dict__[_REBUILT] = True
    except Exception:
        # Whatever a class of somebody else's does, there is the other way.
        return None
    if isinstance(error, MaxStepRetriesExceeded):
        error.errors = tuple(map(_build, record.attempts))
        error.__dict__.setdefault("attempts", len(error.errors))
    if isinstance(error, CompensationFailed):
        error.error, *failures = tuple(map(_build, record.attempts)) or (None,)
        error.failures = tuple(failures)
    return error
