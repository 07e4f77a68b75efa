"""Exceptions ↔ error records. A failure of a step is raised to the body in the same way at first and at replay.

That is why also the first time the body sees what can be built from the record, with the original as its cause:
else `except PaymentDeclined` would catch it the first time only.
"""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from perdure.engine.codec import shorten
from perdure.errors import MaxStepRetriesExceeded, PerdureError, StepFailed, StoreUnavailable, WorkflowFailed
from perdure.model.outcome import ErrorRecord
from perdure.model.rows import RecordedStep

MAX_MESSAGE = 2000
"""Longest recorded message of one failure, in characters: a screenful, so that 100 of them still fit in a row."""

MAX_RAISED = 2000
"""Longest recorded form of what else an exception carries, in characters; above, it is raised as `StepFailed`."""

MAX_FAILURES = 100
"""Most recorded failures of one step: the first and the latest. The count goes on."""

MAX_FAILURES_CHARS = 200_000
"""Longest list of the failures of one step, in characters of what it says: it stands in a row that claims read."""

MAX_ATTEMPTS_CHARS = 50_000
"""Longest list of failed attempts in the failure of a run, in characters: parents keep it as well, clients read it."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_MARK = "_perdure_step"
_REBUILT = "_perdure_rebuilt"


def describe(error: BaseException, step: str = "") -> ErrorRecord:
    """The record of an exception. Never raises, whatever the exception's own methods do."""
    return replace(_brief(error), step=step, attempts=_attempts(error))


def rebuild(record: ErrorRecord, failures: Failures, step: str) -> Exception:
    """The exception of a recorded failure: of its own class if that can be found and built, else `StepFailed`."""
    error = _build(record)
    if isinstance(error, MaxStepRetriesExceeded) and not record.attempts:
        error.errors = tuple(map(_build, failures.errors))
        error.attempts = failures.count
    error.__dict__[_MARK] = step
    return error


def rebuild_run(record: ErrorRecord, run_id: str) -> Exception:
    """The exception of a failed run: of its own class if that can be found and built, else `WorkflowFailed`."""
    step = f" in step {record.step}" if record.step else ""
    error = _own(record) or WorkflowFailed(f"run {run_id} failed{step}: {record.type}: {record.message}", record.type)
    if isinstance(error, StepFailed):
        # Of a class that could not be built even where the body ran.
        error = WorkflowFailed(f"run {run_id} failed{step}: {error.message}", error.type_name)
    error.add_note(f"raised by run {run_id}{step}")
    return error


def is_outage(error: BaseException) -> bool:
    """Whether this says that our own database was away while a step ran: no failure of the step. What is recorded and
    raised again is one."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_outage, error.exceptions))
    return isinstance(error, StoreUnavailable) and _REBUILT not in error.__dict__


def step_of(error: BaseException) -> str:
    """Name of the step whose failure this is, or is caused by; empty if none."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if _MARK in getattr(cause, "__dict__", {}):
            return str(cause.__dict__[_MARK])
        cause = cause.__cause__
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
        brief = replace(error, step="", raised=error.raised if len(error.raised) <= MAX_RAISED else "", attempts=())
        return Failures(self.count + 1, _bounded((*self.errors, brief), MAX_FAILURES_CHARS))

    def to_json(self) -> str | None:
        """As stored; None when there is none."""
        return f"[{','.join(error.to_json() for error in self.errors)}]" if self.errors else None


NONE = Failures()


def _brief(error: BaseException) -> ErrorRecord:
    """Without what stands behind it."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    code = error.code if isinstance(error, PerdureError) else ""
    return ErrorRecord(type=name, message=_message(error), code=code, raised=_raised(error))


def _attempts(error: BaseException) -> tuple[ErrorRecord, ...]:
    """The failures behind a step that was tried several times; not what stands behind those in turn."""
    if not isinstance(error, MaxStepRetriesExceeded):
        return ()
    try:
        return _bounded(tuple(map(_brief, error.errors)), MAX_ATTEMPTS_CHARS)
    except Exception:
        # Somebody has put something else there.
        return ()


def _bounded(records: tuple[ErrorRecord, ...], most: int) -> tuple[ErrorRecord, ...]:
    """The first and as many of the latest as are kept."""
    kept = [*records[:1], *records[1:][1 - MAX_FAILURES :]]
    size = sum(len(record.message) + len(record.raised) for record in kept)
    while size > most and len(kept) > 2:
        left_out = kept.pop(1)
        size -= len(left_out.message) + len(left_out.raised)
    return tuple(kept)


def _message(error: BaseException) -> str:
    try:
        text = error.message if isinstance(error, PerdureError) else str(error)
        if isinstance(error, BaseExceptionGroup):
            text += ": " + "; ".join(f"{type(inner).__name__}: {inner}" for inner in error.exceptions)
    except Exception as broken:
        text = f"(the message cannot be read: {type(broken).__name__})"
    return _UNSTORABLE.sub("\ufffd", shorten(text, MAX_MESSAGE))


def _raised(error: BaseException) -> str:
    """Arguments and attributes, as far as they are plain JSON values; empty when the message says it all."""
    try:
        message = _message(error)
        attributes = {
            name: value
            for name, value in vars(error).items()
            if _plain(value) and not name.startswith("_") and (name, value) != ("message", message)
        }
        args = list(error.args) if all(map(_plain, error.args)) else []
        if args == [message] and not attributes:
            return ""
        text = json.dumps({"args": args, "attributes": attributes})
    except Exception:
        return ""
    return text if len(text) <= MAX_RAISED else ""


def _plain(value: Any) -> bool:
    if type(value) is str:
        return not _UNSTORABLE.search(value)
    return value is None or type(value) in (int, bool) or (type(value) is float and math.isfinite(value))


def _build(record: ErrorRecord) -> Exception:
    return _own(record) or StepFailed(f"{record.type}: {record.message}", record.type)


def _own(record: ErrorRecord) -> Exception | None:
    """Of its own class; None if that cannot be found or built."""
    kind = _class_named(record.type)
    if kind is None:
        return None
    try:
        error = _instance(kind, record)
    except Exception:
        # Whatever a class of somebody else's does, there is the other way.
        return None
    error.__dict__[_REBUILT] = True
    if isinstance(error, MaxStepRetriesExceeded):
        error.errors = tuple(map(_build, record.attempts))
        error.__dict__.setdefault("attempts", len(error.errors))
    return error


def _instance(kind: type[Exception], record: ErrorRecord) -> Exception:
    """Without its `__init__`, which may want anything; raises if the message then is not the recorded one."""
    raised: dict[str, Any] = {"args": [record.message], "attributes": {}}
    if record.raised:
        raised = json.loads(record.raised)
    error = kind.__new__(kind, *raised["args"])
    error.args = tuple(raised["args"])
    if issubclass(kind, PerdureError):
        vars(error)["message"] = record.message
    vars(error).update(raised["attributes"])
    if _message(error) != record.message:
        raise ValueError(f"{record.type} cannot be built from what is recorded")
    return error


def _class_named(name: str) -> type[Exception] | None:
    """Looked up in modules that are loaded, or that belong to a package of which a part is: a body may import its
    own module late, but a row must not be able to have this process import anything that is installed."""
    module_name, _, path = name.rpartition(".")
    module_name = module_name or "builtins"
    if module_name.partition(".")[0] not in sys.modules:
        return None
    try:
        found = getattr(import_module(module_name), path, None)
    except Exception:
        return None
    if not isinstance(found, type) or not issubclass(found, Exception):
        return None
    return None if issubclass(found, StopIteration | StopAsyncIteration) else found
