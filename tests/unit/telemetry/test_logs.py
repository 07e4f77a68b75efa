"""Logs are one JSON object a line, from structlog and the standard library alike, and hold no secret."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog
from perdure.telemetry.logs import configure, get_logger, leave_to_application, left_without_handlers, redact_text

URL = "postgresql://perdure:s3cr:t/@db.example:5432/perdure?sslmode=require"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    target = io.StringIO()
    configure("info", stream=target)
    yield target
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object(stream: io.StringIO) -> None:
    get_logger("perdure.x").info("claimed", run_id="r1", count=3)
    (line,) = lines(stream)
    assert line["message"] == "claimed"
    assert line["level"] == "info"
    assert line["logger"] == "perdure.x"
    assert line["run_id"] == "r1"
    assert str(line["timestamp"]).endswith("Z")


def test_the_standard_library_speaks_the_same(stream: io.StringIO) -> None:
    logging.getLogger("kopf").warning("watching %s at %s", "workflows", URL, extra={"kind": "Workflow"})
    (line,) = lines(stream)
    assert line["message"] == "watching workflows at postgresql://perdure:***@db.example:5432/perdure?sslmode=require"
    assert (line["logger"], line["level"], line["kind"]) == ("kopf", "warning", "Workflow")


def test_levels_below_are_not_written(stream: io.StringIO) -> None:
    get_logger("perdure.x").debug("noise")
    assert lines(stream) == []


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("password", "hunter2", "***"),
        ("database_url", URL, "***"),
        ("input", '{"card":"4111"}', "<15 characters>"),
        ("output", {"card": "4111"}, "<dict>"),
        ("url", URL, "postgresql://perdure:***@db.example:5432/perdure?sslmode=require"),
        ("settings", {"dsn": URL, "n": 1}, {"dsn": "***", "n": 1}),
        ("urls", [URL], ["postgresql://perdure:***@db.example:5432/perdure?sslmode=require"]),
        ("error", ValueError(URL), "ValueError: postgresql://perdure:***@db.example:5432/perdure?sslmode=require"),
    ],
)
def test_secrets_and_payloads_are_not_written(stream: io.StringIO, key: str, value: object, shown: object) -> None:
    get_logger("perdure.x").info("said", **{key: value})
    (line,) = lines(stream)
    assert line[key] == shown


def test_passwords_in_tracebacks_are_not_written(stream: io.StringIO) -> None:
    try:
        raise ValueError(URL)
    except ValueError:
        get_logger("perdure.x").exception("failed")
    assert "s3cr" not in stream.getvalue()
    assert "Traceback" in stream.getvalue()


def test_connection_strings_of_key_and_value_lose_their_password() -> None:
    assert redact_text("host=db user=me password=s3cret dbname=x") == "host=db user=me password=*** dbname=x"
    assert redact_text("https://example.com/a:b@c") == "https://example.com/a:b@c"


def test_a_terminal_gets_readable_text() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    target = Terminal()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure(stream=target)
        get_logger("perdure.x").info("claimed", run_id="r1")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()
    assert "claimed" in target.getvalue()
    assert not target.getvalue().startswith("{")


class Kept(logging.Handler):
    """An application's handler."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_an_application_gets_records_of_the_standard_library(stream: io.StringIO) -> None:
    logger = get_logger("perdure.x")
    logger.info("before")
    leave_to_application()
    assert left_without_handlers()
    kept = Kept()
    logging.getLogger().addHandler(kept)
    assert not left_without_handlers()
    try:
        raise LookupError("gone")
    except LookupError:
        logger.error("at %s 100%%", URL, run_id="r1", name="n", password="p", input="{}", exc_info=True)
    assert [line["message"] for line in lines(stream)] == ["before"]
    (record,) = kept.records
    assert (record.name, record.levelno) == ("perdure.x", logging.ERROR)
    assert record.exc_info is not None and record.exc_info[0] is LookupError
    fields = vars(record)
    assert (fields["run_id"], fields["name_"], fields["password"], fields["input"]) == (
        "r1",
        "n",
        "***",
        "<2 characters>",
    )
    assert "s3cr" not in record.getMessage()
    assert "timestamp" not in fields and "level" not in fields


def test_configuring_again_takes_records_back(stream: io.StringIO) -> None:
    leave_to_application()
    again = io.StringIO()
    configure("info", stream=again)
    get_logger("perdure.x").info("back")
    assert not left_without_handlers()
    assert [line["message"] for line in lines(again)] == ["back"]


def test_a_program_that_has_set_up_nothing_has_its_output_to_itself() -> None:
    """As with `perdure.launch`: warnings are those of any library, without secrets, the rest is nowhere."""
    code = "\n".join(
        [
            "import perdure",
            "from perdure.telemetry.logs import get_logger",
            "get_logger('perdure.x').info('registered')",
            f"get_logger('perdure.x').warning('cannot connect to {URL}')",
            "print('mine')",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "mine\n"
    assert done.stderr == f"cannot connect to {redact_text(URL)}\n"
