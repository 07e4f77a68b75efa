"""Whatever the rows hold, the status is one that the API server takes, small, and the same for the same rows."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.model.outcome import ErrorRecord
from perdure.model.rows import RunView, StatusSource, StepCounts, StepView, WaitingFor
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.resources.conditions import WaitKind
from perdure.resources.projection import MAX_STATUS_BYTES, project
from perdure.resources.projection_text import json_bytes
from perdure.resources.steps import MAX_STEPS
from perdure.resources.workflow_status import WorkflowStatus

from tests.unit.resources.views import definition, error, run, source, step


def test_failed_and_live_steps_come_first_then_the_latest() -> None:
    steps = [step(index) for index in range(300)]
    steps[10] = step(10, StepStatus.FAILED, error=error("no"))
    steps[20] = step(20, StepStatus.RUNNING)
    shown = [each["index"] for each in project(source(run(), *steps))["steps"]]
    assert len(shown) == MAX_STEPS
    assert shown == [10, 20, *range(202, 300)]


def test_counts_say_what_was_left_out() -> None:
    status = project(StatusSource(run(), StepCounts(succeeded=5000, failed=2), (step(4999),)))
    assert status["progress"] == "5000"
    assert status["stepCounts"] == {"succeeded": 5000, "failed": 2, "running": 0, "waiting": 0}


def test_outputs_give_way_first_the_oldest_before_the_latest() -> None:
    names = [f"s{index}" for index in range(100)]
    text = json.dumps("x" * 1000)
    steps = [step(index, name=name, output=text) for index, name in enumerate(names)]
    status = project(source(run(definition=definition(*names)), *steps))
    assert len(status["steps"]) == 100
    assert json_bytes(status) <= MAX_STATUS_BYTES
    shown = ["output" in each for each in status["steps"]]
    assert shown == sorted(shown)
    assert 10 < shown.count(True) < 30
    assert all(each.get("outputTruncated") for each in status["steps"] if "output" not in each)


def test_names_of_serializers_take_no_more_room_than_there_is() -> None:
    names = [f"s{index}" for index in range(100)]
    steps = [step(index, name=name, output=f"!{'n' * 63}:x") for index, name in enumerate(names)]
    status = project(source(run(definition=definition(*names)), *steps))
    assert json_bytes(status) <= MAX_STATUS_BYTES
    assert all("outputWrittenBy" in each for each in status["steps"])


def test_long_messages_are_cut_and_long_lists_of_them_shortened() -> None:
    steps = [step(index, StepStatus.FAILED, error=error("ä" * 5000)) for index in range(100)]
    status = project(source(run(error=error("ö" * 5000)), *steps))
    assert json_bytes(status) <= MAX_STATUS_BYTES
    assert len(status["steps"]) > 30
    assert len(status["steps"][0]["message"]) == 256
    assert len(status["error"]["message"]) == 1024
    assert status["error"]["message"].endswith("…")


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "[Infinity]",
        "1e999",
        str(2**63),
        "[" * 500 + "]" * 500,
        "[" * 2000 + "]" * 2000,
        r'"\ud800"',
        r'{"\ud800": 1}',
        "no json",
        "!no name",
        '"' + "x" * 5000 + '"',
    ],
    ids=["nan", "infinity", "inf", "int", "deep", "deeper", "surrogate", "key", "broken", "nameless", "long"],
)
def test_an_output_that_the_api_server_would_refuse_or_change_is_not_shown(text: str) -> None:
    status = project(source(run(RunStatus.SUCCEEDED, output=text, output_bytes=len(text))))
    assert status["outputTruncated"] is True
    assert "output" not in status


@pytest.mark.parametrize("kept", [300, 40, 5, 1])
def test_of_an_error_that_was_cut_off_on_the_way_the_beginning_is_shown(kept: int) -> None:
    record = ErrorRecord("ValueError", 'a "quoted" ä \\ message', code="PRD-405", step="b", raised="x" * 99_999)
    status = project(source(run(RunStatus.FAILED, error=record.to_json()[:kept])))
    if kept == 300:
        wanted = {"type": "ValueError", "code": "PRD-405", "message": record.message, "step": "b"}
        assert status["error"] == wanted
    else:
        assert status["error"]["message"] == "the message is too long to be shown"


def test_of_an_error_with_many_attempts_that_was_cut_off_its_own_fields_are_shown() -> None:
    attempts = tuple(ErrorRecord("OSError", f"attempt {number}", code="PRD-404") for number in range(100))
    record = ErrorRecord("MaxStepRetriesExceeded", "all failed", code="PRD-405", step="b", attempts=attempts)
    status = project(source(run(RunStatus.FAILED, error=record.to_json()[:500])))
    assert status["error"] == {"type": record.type, "code": "PRD-405", "message": "all failed", "step": "b"}


def test_an_output_that_the_store_did_not_send_is_not_shown() -> None:
    status = project(source(run(RunStatus.SUCCEEDED, output=None, output_bytes=70_000)))
    assert status["outputTruncated"] is True


INSTANTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
TEXTS = st.text(max_size=12) | st.sampled_from(["x" * 2000, "\ud800", "\0", "🚀" * 700, "", "{"])
JSON_TEXTS = TEXTS | st.builds(json.dumps, st.integers() | st.floats() | TEXTS | st.lists(TEXTS, max_size=3))


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


KINDS = st.sampled_from([*WaitKind, "Signal", "", "x" * 2000])
RUNS = st.builds(
    RunView,
    id=TEXTS,
    namespace=TEXTS,
    name=maybe(TEXTS),
    workflow=TEXTS,
    pool=TEXTS,
    queue=TEXTS,
    version=maybe(TEXTS),
    status=st.sampled_from(RunStatus),
    fence=st.integers(0, 2**33 - 1),
    edits=st.integers(0, 2**30),
    suspended=st.booleans(),
    cancel_mode=maybe(st.sampled_from(CancelMode)),
    cancel_reason=maybe(TEXTS),
    generation=st.integers(0, 1000),
    run_attempts=st.integers(0, 9),
    recoveries=st.integers(0, 9),
    max_recoveries=st.integers(0, 9),
    waiting_for=maybe(st.builds(WaitingFor, kind=KINDS, name=TEXTS, message=TEXTS, until=maybe(INSTANTS))),
    waiting_since=maybe(INSTANTS),
    wake_at=maybe(INSTANTS),
    created_at=INSTANTS,
    started_at=maybe(INSTANTS),
    finished_at=maybe(INSTANTS),
    worker_pod=maybe(TEXTS),
    definition=maybe(JSON_TEXTS | st.just(definition("a", "b", "c" * 300))),
    output=maybe(JSON_TEXTS),
    output_bytes=st.integers(0, 10_000),
    error=maybe(JSON_TEXTS | st.builds(error, TEXTS, code=TEXTS, step=TEXTS)),
    last_seq=st.integers(0, 2**30),
)
STEPS = st.builds(
    StepView,
    index=st.integers(0, 10**6),
    name=TEXTS,
    status=st.sampled_from(StepStatus),
    attempts=st.integers(0, 1000),
    output=maybe(JSON_TEXTS),
    error=maybe(JSON_TEXTS | st.builds(error, TEXTS)),
    started_at=INSTANTS,
    finished_at=maybe(INSTANTS),
    wake_at=maybe(INSTANTS),
)
SOURCES = st.builds(
    StatusSource,
    run=RUNS,
    counts=st.builds(StepCounts, *[st.integers(0, 10**6)] * 4),
    steps=st.lists(STEPS, max_size=8).flatmap(lambda few: st.sampled_from([tuple(few), tuple(few) * 30])),
)


@given(SOURCES)
def test_any_rows_make_a_status_within_the_schema_and_the_limit(found: StatusSource) -> None:
    status = project(found)
    WorkflowStatus.model_validate(status)
    sent = json.dumps(status, allow_nan=False).encode()
    assert json_bytes(status) <= MAX_STATUS_BYTES
    assert len(status["steps"]) <= MAX_STEPS
    assert b"\\ud8" not in sent or json.loads(sent.decode()) == status
    assert project(found) == status


@given(RUNS)
def test_no_run_that_has_not_ended_waits_in_silence(found: RunView) -> None:
    status = project(StatusSource(found))
    if not found.status.finished and found.status != RunStatus.RUNNING:
        assert status["waitingFor"]["kind"]
        assert status["waiting"]
    if found.status.finished:
        assert "waitingFor" not in status
