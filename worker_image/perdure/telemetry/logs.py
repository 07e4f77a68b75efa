"""Logging of worker and operator: JSON lines in pods, coloured text on a terminal, nothing secret in either.

`configure` is called once by the composition roots. Records of the standard library (kopf, asyncio, user code) go
through the same formatter. Keys: `timestamp` (RFC 3339, UTC), `level`, `message`, `logger`, and what the call adds.
Keeps the promise that neither passwords in URLs nor payloads of runs are ever written. An application that has its
own handlers gets our records as records of the standard library instead (`leave_to_application`).
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

REDACTED = "***"

_URL_SECRET = re.compile(r"(?P<head>\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@'\"]*:)[^\s@'\"]+(?=@)")
_QUERY_SECRET = re.compile(r"(?i)(?P<head>[?&\s]password=)[^\s&'\"]+")

SECRET_KEYS = frozenset({"password", "passwd", "token", "secret", "authorization", "api_key", "dsn", "database_url"})
"""Names under which a value is never written."""

PAYLOAD_KEYS = frozenset({"input", "output", "payload", "definition", "arguments", "args", "kwargs", "result"})
"""Names under which users' data would be written: their size is said instead."""


_RECORD_KEYS = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
"""Names that a record of the standard library has itself and that nothing may bring."""

_PASSED_ON = ("exc_info", "stack_info", "stacklevel")


class _Style:
    """Who formats. Looked at for every record, as loggers keep their processors from their first record on."""

    application = True
    left = False
    """Whether a worker process was told to leave its records to the application."""


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Logger of a module. Cheap. Before `configure` its records go to the application: a program with a worker in it
    has handlers of its own, or sees warnings alone."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        structlog.stdlib.LoggerFactory()(name),
        processors=_processors(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return logger


def _shared() -> list[Processor]:
    """For records of ours and of the standard library."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _processors() -> list[Processor]:
    return [
        structlog.stdlib.filter_by_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        *_shared(),
        _hand_on,
    ]


def configure(level: str = "INFO", *, stream: TextIO | None = None, json: bool | None = None) -> None:
    """Send everything to `stream` (stdout). `json` None = JSON unless the stream is a terminal. Unknown level: INFO."""
    target = stream if stream is not None else sys.stdout
    as_json = not target.isatty() if json is None else json
    render: list[Processor] = (
        [structlog.processors.format_exc_info, redact, _message_key, structlog.processors.JSONRenderer()]
        if as_json
        else [structlog.processors.format_exc_info, redact, structlog.dev.ConsoleRenderer(colors=target.isatty())]
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_shared(),
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.getLevelNamesMapping().get(level.upper(), logging.INFO))
    _Style.application = _Style.left = False
    structlog.configure(
        processors=_processors(),
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def leave_to_application() -> None:
    """From now on our records go where the application's handlers send them: message, and all else as `extra`.

    Takes our handler away, so that `logging.basicConfig` works. To be called after `configure`.
    """
    _Style.application = _Style.left = True
    logging.getLogger().handlers.clear()


def left_without_handlers() -> bool:
    """Whether records were left to an application that has set up no handler: nearly nothing would be seen."""
    return _Style.left and not logging.getLogger().handlers


def _hand_on(logger: WrappedLogger, method: str, event: EventDict) -> Any:
    if not _Style.application:
        return structlog.stdlib.ProcessorFormatter.wrap_for_formatter(logger, method, event)
    passed_on = {key: event.pop(key) for key in _PASSED_ON if key in event}
    for key in ("timestamp", "level", "logger"):
        event.pop(key, None)
    message = redact_text(str(event.pop("event", "")))
    extra = {f"{key}_" if key in _RECORD_KEYS else key: _clean(key, value) for key, value in event.items()}
    return (message,), {**passed_on, "extra": extra}


def redact(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Processor: passwords out of URLs and connection strings, payloads replaced by their size."""
    return {key: _clean(key, value) for key, value in event.items()}


def redact_text(text: str) -> str:
    """The text without passwords of URLs and connection strings."""
    return _QUERY_SECRET.sub(rf"\g<head>{REDACTED}", _URL_SECRET.sub(rf"\g<head>{REDACTED}", text))


def _clean(key: str, value: Any) -> Any:
    if key in SECRET_KEYS:
        return REDACTED
    if key in PAYLOAD_KEYS:
        return f"<{len(value)} characters>" if isinstance(value, str) else f"<{type(value).__name__}>"
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return {inner: _clean(str(inner), item) for inner, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean("", item) for item in value]
    if isinstance(value, BaseException):
        return redact_text(f"{type(value).__name__}: {value}")
    return value


def _message_key(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    event["message"] = event.pop("event", "")
    return event
