"""What becomes of a WorkflowSignal, from the objects and what the database said."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from perdure.engine.calls.messages import callers_key
from perdure.model.states import RunStatus
from perdure.resources.conditions import Reason
from perdure_operator.plan.signal import (
    FINAL,
    WAIT_FOR_WORKFLOW,
    Answer,
    Deliver,
    Say,
    decide,
    outcome,
    read_signal,
    settled,
    status_of,
)

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def signal(spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    metadata = {"name": "yes", "namespace": "ns", "uid": "u-1", "generation": 1, "creationTimestamp": NOW.isoformat()}
    return {"metadata": metadata, "spec": {"workflowName": "order", **(spec or {})}, "status": status}


def workflow(after: timedelta = timedelta(0), **status: Any) -> dict[str, Any]:
    metadata = {"name": "order", "namespace": "ns", "uid": "w-1", "creationTimestamp": (NOW + after).isoformat()}
    return {"metadata": metadata, "spec": {"workflow": "a"}, "status": status}


def decided(obj: dict[str, Any], there: dict[str, Any] | None) -> Deliver | Say:
    read = read_signal(obj)
    return read if isinstance(read, Say) else decide(read, there)


def test_its_uid_makes_a_signal_one_message() -> None:
    found = decided(signal({"topic": "t", "value": {"a": 1}}), workflow())
    assert found == Deliver("w-1", "t", "signal:u-1", '{"a":1}')


def test_a_key_is_that_of_every_other_sender() -> None:
    found = decided(signal({"key": "k"}), workflow())
    assert isinstance(found, Deliver)
    assert found.key == callers_key("k")


def test_without_its_workflow_a_signal_waits() -> None:
    found = decided(signal(), None)
    assert isinstance(found, Say)
    assert (found.reason, found.again) == (Reason.WORKFLOW_NOT_FOUND, True)
    assert found.reason not in FINAL


def test_a_workflow_of_the_name_that_comes_too_late_gets_nothing() -> None:
    assert isinstance(decided(signal(), workflow(WAIT_FOR_WORKFLOW)), Deliver)
    found = decided(signal(), workflow(WAIT_FOR_WORKFLOW + timedelta(seconds=1)))
    assert isinstance(found, Say)
    assert (found.reason, found.again) == (Reason.WORKFLOW_NOT_FOUND, False)
    assert timedelta(minutes=1) == WAIT_FOR_WORKFLOW, "the text of the field says a minute"


def test_a_refused_workflow_gets_nothing() -> None:
    refused = workflow(conditions=[{"type": "Accepted", "status": "False"}])
    found = decided(signal(), refused)
    assert isinstance(found, Say)
    assert found.reason is Reason.WORKFLOW_ENDED


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"topic": "a\nb"}, Reason.INVALID_SPEC),
        ({"value": {"a": "\0"}}, Reason.INVALID_SPEC),
        ({"workflowName": "../workerpools/x"}, Reason.INVALID_SPEC),
        ({"value": {"a": "x" * 300_000}}, Reason.INPUT_TOO_LARGE),
    ],
    ids=["topic", "NUL", "name", "size"],
)
def test_what_cannot_be_sent_is_said_before_anything_is_asked(spec: dict[str, Any], reason: Reason) -> None:
    found = read_signal(signal(spec))
    assert isinstance(found, Say)
    assert (found.reason, found.again) == (reason, False)


@pytest.mark.parametrize(
    ("answer", "reason", "again"),
    [
        (Answer(RunStatus.RUNNING, has_it=True), Reason.DELIVERED, False),
        (Answer(RunStatus.SUCCEEDED, has_it=True), Reason.DELIVERED, False),
        (Answer(RunStatus.SUCCEEDED, has_it=False), Reason.WORKFLOW_ENDED, False),
        (Answer(None, has_it=False), Reason.WORKFLOW_NOT_STARTED, True),
    ],
)
def test_what_the_database_said_decides_what_is_said(answer: Answer, reason: Reason, again: bool) -> None:
    said = outcome("order", answer)
    assert (said.reason, said.again) == (reason, again)


def test_the_status_of_a_delivered_signal_names_the_run_and_settles_it() -> None:
    status = status_of(signal(), Say(Reason.DELIVERED, "run order has the message"), "w-1", NOW)
    assert (status["workflowId"], status["deliveredAt"]) == ("w-1", "2026-12-01T12:00:00Z")
    [condition] = status["conditions"]
    assert (condition["type"], condition["status"]) == ("Delivered", "True")
    assert settled(signal(**status))


def test_a_signal_that_waits_is_not_settled() -> None:
    status = status_of(signal(), Say(Reason.WORKFLOW_NOT_FOUND, "none", again=True), None, NOW)
    assert not settled(signal(**status))
    assert "workflowId" not in status
    assert not settled(signal())


def test_the_same_words_at_another_time_are_the_same_status() -> None:
    said = Say(Reason.WORKFLOW_NOT_FOUND, "none", again=True)
    first = status_of(signal(), said, None, NOW)
    assert status_of(signal(**first), said, None, NOW + timedelta(hours=1)) == first
