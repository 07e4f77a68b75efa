"""Histories as files: what is written is read back as it was, for ever, and what is none is told as such."""

import json
from typing import Any

import pytest
from perdure.errors import HistoryUnreadable
from perdure.model.history import RunHistory
from perdure.model.rows import RecordedStep
from perdure.model.states import RunStatus, StepStatus

STEP = RecordedStep(0, "pay", StepStatus.SUCCEEDED, '["x",4200]', '{"id":"\\u00e9"}', None, 0, None, None, None)
FAILED = RecordedStep(3, "ship", StepStatus.FAILED, "[]", None, '{"type":"E","message":"m"}', 2, "[{}]", None, None)
TAGGED = RecordedStep(4, "keep", StepStatus.SUCCEEDED, "!zip:AAAA", "!zip:BBBB", None, 0, None, None, None)
NOTHING = RecordedStep(7, "note", StepStatus.SUCCEEDED, "[]", "null", None, 0, None, None, None)
HISTORY = RunHistory(
    id="order-1",
    namespace="shop",
    workflow="order",
    status=RunStatus.FAILED,
    input='["x"]',
    steps=(STEP, FAILED, TAGGED, NOTHING),
    name="o",
    version="v1",
    output=None,
    error='{"type":"E","message":"m"}',
    parent_id="p",
    rewinds=2,
    seed="s",
    release="0.1.0",
)


def test_what_is_written_is_read_back_as_it_was() -> None:
    assert RunHistory.from_json(HISTORY.to_json()) == HISTORY


def test_values_stand_in_the_file_as_json_and_what_is_none_as_text() -> None:
    steps = json.loads(HISTORY.to_json())["steps"]
    assert steps[0]["output"] == {"id": "é"}
    assert steps[2]["output_text"] == "!zip:BBBB"
    assert "é" in HISTORY.to_json()


def test_a_result_of_null_is_another_thing_than_no_result() -> None:
    read = RunHistory.from_json(HISTORY.to_json())
    assert read.steps[3].output == "null"
    assert read.steps[1].output is None


def test_what_a_later_release_adds_is_passed_over() -> None:
    whole = json.loads(HISTORY.to_json())
    whole["colour"] = whole["run"]["colour"] = whole["steps"][0]["colour"] = "red"
    assert RunHistory.from_json(json.dumps(whole)) == HISTORY


def changed(*path: Any, to: Any) -> str:
    whole = json.loads(HISTORY.to_json())
    at = whole
    for key in path[:-1]:
        at = at[key]
    if to is None:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "no history"),
        ("{}", "no history"),
        (changed("format", to="other"), "no history"),
        (changed("format_version", to=2), "version 2"),
        (changed("format_version", to=None), "version null"),
        (changed("run", to=None), "has no run"),
        (changed("run", to=[]), "run of the file is []"),
        (changed("run", "id", to=None), "run has no id"),
        (changed("run", "id", to=7), "id of run is 7"),
        (changed("run", "input", to=None), "run has no input"),
        (changed("run", "status", to="LOST"), "status of run is LOST"),
        (changed("steps", to={}), "steps of the file"),
        (changed("steps", 1, to=3), "steps[1] is no object"),
        (changed("steps", 1, "index", to=True), "index of steps[1] is True"),
        (changed("steps", 1, "index", to=0), "not in order"),
        (changed("steps", 1, "input", to=None), "steps[1] has no input"),
        (changed("steps", 1, "name", to=None), "steps[1] has no name"),
    ],
)
def test_what_is_no_history_is_refused_with_what_does_not_fit(text: str, said: str) -> None:
    with pytest.raises(HistoryUnreadable) as caught:
        RunHistory.from_json(text)
    assert said in caught.value.message
    assert caught.value.code == "PRD-317"
