"""What users see of a run, from its rows."""

from datetime import UTC, datetime
from typing import Any

import pytest
from perdure.model.outcome import ErrorRecord
from perdure.model.rows import REVISION_SHIFT, WaitingFor
from perdure.model.states import CancelMode, RunStatus, StepStatus, Undo
from perdure.resources.acceptance import Rejected
from perdure.resources.common import Metadata
from perdure.resources.conditions import Reason, WaitKind
from perdure.resources.projection import project, project_rejected
from perdure.resources.workflow_status import WorkflowStatus

from tests.unit.resources.views import at, definition, error, run, source, step


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def test_a_running_python_workflow() -> None:
    status = project(source(run(), step(0), step(1, StepStatus.RUNNING)))
    assert status == {
        "phase": "Running",
        "reason": "Running",
        "observedGeneration": 2,
        "revision": (3 << REVISION_SHIFT) + 5,
        "conditions": [
            {
                "type": "Accepted",
                "status": "True",
                "reason": "Accepted",
                "message": "The spec is valid and stored.",
                "lastTransitionTime": "2026-11-30T12:00:00Z",
                "observedGeneration": 2,
            },
            {
                "type": "Finished",
                "status": "False",
                "reason": "Running",
                "message": "",
                "lastTransitionTime": "2026-11-30T12:00:00Z",
                "observedGeneration": 2,
            },
            {
                "type": "Succeeded",
                "status": "Unknown",
                "reason": "Running",
                "message": "",
                "lastTransitionTime": "2026-11-30T12:00:00Z",
                "observedGeneration": 2,
            },
            {
                "type": "Stalled",
                "status": "False",
                "reason": "Progressing",
                "message": "",
                "lastTransitionTime": "2026-11-30T12:00:01Z",
                "observedGeneration": 2,
            },
        ],
        "progress": "1",
        "stepCounts": {"succeeded": 1, "failed": 0, "running": 1, "waiting": 0},
        "startedAt": "2026-11-30T12:00:01.250Z",
        "worker": {"pod": "orders-a1b2c3d4-x7k2p", "version": "a1b2c3d4"},
        "steps": [
            {
                "name": "step_0",
                "index": 0,
                "phase": "Succeeded",
                "attempts": 1,
                "startedAt": "2026-11-30T12:00:00.250Z",
                "finishedAt": "2026-11-30T12:00:00.750Z",
            },
            {
                "name": "step_1",
                "index": 1,
                "phase": "Running",
                "attempts": 1,
                "startedAt": "2026-11-30T12:00:01.250Z",
            },
        ],
    }


def test_declared_steps_show_what_is_to_come_and_what_each_returned() -> None:
    found = run(definition=definition("reserve", "charge", "pack"))
    status = project(source(found, step(0, name="reserve"), step(1, StepStatus.RUNNING, name="charge")))
    assert status["progress"] == "1/3"
    assert status["stepCounts"]["total"] == 3
    assert [(each["name"], each["phase"]) for each in status["steps"]] == [
        ("reserve", "Succeeded"),
        ("charge", "Running"),
        ("pack", "Pending"),
    ]
    assert status["steps"][0]["output"] == {"ok": True}


@pytest.mark.parametrize("text", ["1", "true", '"x"', "[1, null]", '{"a": null}'])
def test_an_output_may_be_any_json_value(text: str) -> None:
    found = run(RunStatus.SUCCEEDED, definition=definition("a"), output=text, output_bytes=len(text))
    status = project(source(found, step(0, name="a", output=text)))
    assert repr(status["output"]) == repr(status["steps"][0]["output"])
    assert "outputTruncated" not in status


def test_an_output_of_null_is_no_output() -> None:
    found = run(RunStatus.SUCCEEDED, definition=definition("a"), output="null", output_bytes=4)
    status = project(source(found, step(0, name="a", output="null")))
    assert not {"output", "outputTruncated"} & ({*status, *status["steps"][0]})


def test_of_an_output_that_a_serializer_has_written_its_name_is_shown_and_nothing_else() -> None:
    text = "!sealed:c2VjcmV0"
    found = run(RunStatus.SUCCEEDED, definition=definition("a"), output=text, output_bytes=len(text))
    status = project(source(found, step(0, name="a", output=text)))
    for each in (status, status["steps"][0]):
        assert each["outputWrittenBy"] == "sealed"
        assert not {"output", "outputTruncated"} & {*each}
    assert "c2VjcmV0" not in repr(status)
    WorkflowStatus.model_validate(status)


def test_results_of_a_python_workflows_steps_stay_in_the_database() -> None:
    assert "output" not in project(source(run(), step(0)))["steps"][0]


def test_a_run_that_succeeded() -> None:
    found = run(RunStatus.SUCCEEDED, output='{"total": 12}', output_bytes=13)
    status = project(source(found, step(0), step(1)))
    assert (status["phase"], status["reason"], status["progress"]) == ("Succeeded", "Succeeded", "2/2")
    assert conditions(status) == {"Accepted": "True", "Finished": "True", "Succeeded": "True", "Stalled": "False"}
    assert status["output"] == {"total": 12}
    assert status["finishedAt"] == "2026-11-30T12:00:09.250Z"
    assert {each["lastTransitionTime"] for each in status["conditions"][1:]} == {"2026-11-30T12:00:09Z"}
    assert not {"waiting", "waitingFor", "error"} & set(status)


def test_a_run_that_failed_names_the_step_and_the_error() -> None:
    found = run(
        RunStatus.FAILED,
        definition=definition("a", "b", "c"),
        error=error("card declined", code="PRD-405", step="b"),
    )
    failed = step(1, StepStatus.FAILED, name="b", attempts=3, error=error("card declined"))
    status = project(source(found, step(0, name="a"), failed))
    assert status["error"] == {"type": "ValueError", "code": "PRD-405", "message": "card declined", "step": "b"}
    assert status["message"] == "card declined"
    assert conditions(status)["Succeeded"] == "False"
    assert [(each["phase"], each.get("attempts")) for each in status["steps"]] == [
        ("Succeeded", 1),
        ("Failed", 3),
        ("NotRun", None),
    ]


def test_in_a_run_that_has_ended_nothing_runs() -> None:
    found = run(RunStatus.CANCELLED, cancel_mode=CancelMode.IMMEDIATE, cancel_reason="deleted")
    status = project(source(found, step(0, StepStatus.RUNNING), step(1, StepStatus.RETRYING, wake_at=at(60))))
    assert (status["phase"], status["reason"], status["message"]) == ("Cancelled", "Cancelled", "deleted")
    assert [each["phase"] for each in status["steps"]] == ["Interrupted", "Interrupted"]
    assert (status["stepCounts"]["running"], status["stepCounts"]["waiting"]) == (0, 0)


def test_a_step_whose_worker_went_is_not_shown_as_running_until_another_one_has_it() -> None:
    begun = step(0, StepStatus.RUNNING)
    waits = project(source(run(RunStatus.ENQUEUED, recoveries=1), begun))
    assert [each["phase"] for each in waits["steps"]] == ["Interrupted"]
    assert waits["stepCounts"]["running"] == 0
    again = project(source(run(RunStatus.RUNNING, recoveries=1), begun))
    assert [each["phase"] for each in again["steps"]] == ["Running"]
    assert again["stepCounts"]["running"] == 1


def test_a_run_recovered_too_often_has_failed_with_its_own_reason() -> None:
    status = project(source(run(RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED, error=error("10 recoveries"))))
    assert (status["phase"], status["reason"]) == ("Failed", "MaxRecoveryAttemptsExceeded")
    assert conditions(status)["Finished"] == "True"


def test_attempts_count_the_present_one() -> None:
    steps = (step(0, StepStatus.RUNNING, attempts=2), step(1, attempts=1), step(2, StepStatus.RETRYING, attempts=2))
    status = project(source(run(), *steps))
    assert [each["attempts"] for each in status["steps"]] == [3, 2, 2]


# -- waits


def test_a_run_that_nobody_has_claimed_waits_for_a_free_worker() -> None:
    status = project(source(run(RunStatus.ENQUEUED, started_at=None, version=None)))
    assert (status["phase"], status["reason"]) == ("Pending", "FreeWorker")
    assert status["waiting"] == "a free worker of orders"
    assert "orders" in status["message"]
    assert conditions(status)["Stalled"] == "False"
    assert "worker" not in status


def test_a_wait_that_needs_a_person_stalls_the_run() -> None:
    wait = WaitingFor(WaitKind.UNKNOWN_WORKFLOW, "orders.proces", "no worker of pool orders has it; did you mean …")
    status = project(source(run(RunStatus.ENQUEUED, waiting_for=wait, waiting_since=at(30))))
    assert status["waiting"] == "a worker that knows orders.proces"
    stalled = status["conditions"][3]
    assert (stalled["status"], stalled["reason"]) == ("True", "UnknownWorkflow")
    assert stalled["message"] == wait.message
    assert stalled["lastTransitionTime"] == "2026-11-30T12:00:30Z"


def test_a_wait_of_a_kind_that_nobody_knows_here_is_shown_all_the_same() -> None:
    wait = WaitingFor("Signal", "approval", "send a signal", until=at(3600))
    status = project(source(run(RunStatus.WAITING, waiting_for=wait, waiting_since=at(2))))
    assert (status["phase"], status["reason"]) == ("Waiting", "Signal")
    assert status["waiting"] == "Signal approval until 13:00:00Z"
    assert status["waitingFor"] == {
        "kind": "Signal",
        "name": "approval",
        "until": "2026-11-30T13:00:00.250Z",
        "message": "send a signal",
    }


def test_a_date_is_shown_when_the_wait_ends_on_another_day() -> None:
    wait = WaitingFor(WaitKind.RETRY_BACKOFF, "charge", "", until=datetime(2026, 12, 1, 8, 30, tzinfo=UTC))
    status = project(source(run(RunStatus.WAITING, waiting_for=wait)))
    assert status["waiting"] == "retry of charge at 2026-12-01 08:30Z"


def test_a_retry_that_is_waited_for_in_memory_is_a_named_wait_too() -> None:
    steps = (step(0, StepStatus.RETRYING, attempts=1, wake_at=at(7), error=error("503")), step(1))
    status = project(source(run(), *steps))
    assert (status["phase"], status["reason"]) == ("Running", "RetryBackoff")
    assert status["waiting"] == "retry of step_0 at 12:00:07Z"
    assert status["steps"][0]["waitingFor"] == "retry at 12:00:07Z"
    assert status["steps"][0]["message"] == "503"


def test_beside_a_running_step_a_retry_is_no_wait_of_the_run() -> None:
    steps = (step(0, StepStatus.RETRYING, wake_at=at(7)), step(1, StepStatus.RUNNING))
    assert "waiting" not in project(source(run(), *steps))


def test_a_run_that_has_been_woken_does_not_wait_for_its_retry_any_more() -> None:
    wait = WaitingFor(WaitKind.RETRY_BACKOFF, "charge", "", until=at(1))
    assert project(source(run(RunStatus.ENQUEUED, waiting_for=wait)))["reason"] == "FreeWorker"


def test_a_run_that_is_tried_again_later_says_when() -> None:
    status = project(source(run(RunStatus.DELAYED, wake_at=at(90), error=error("mismatch"))))
    assert (status["phase"], status["waiting"]) == ("Pending", "retry of the run at 12:01:30Z")
    assert status["error"]["message"] == "mismatch"
    assert "failedAttempts" not in status


def test_a_run_that_has_raised_says_how_often_and_what_it_waits_for() -> None:
    wait = WaitingFor(WaitKind.RUN_RETRY, message="the run failed and will be tried again: E: no", until=at(10))
    status = project(source(run(RunStatus.DELAYED, run_attempts=2, waiting_for=wait, error=error("no"))))
    assert (status["reason"], status["failedAttempts"], status["waiting"]) == (
        "RunRetry",
        2,
        "retry of the run at 12:00:10Z",
    )
    assert status["waitingFor"]["message"].endswith("E: no")


@pytest.mark.parametrize("state", [RunStatus.ENQUEUED, RunStatus.WAITING, RunStatus.DELAYED])
def test_suspended_is_a_phase_of_its_own(state: RunStatus) -> None:
    status = project(source(run(state, suspended=True)))
    assert (status["phase"], status["reason"], status["waiting"]) == ("Suspended", "Suspended", "resume")
    assert "set it to false" in status["message"]


def test_a_suspended_run_still_runs_until_its_step_has_ended() -> None:
    assert project(source(run(suspended=True), step(0, StepStatus.RUNNING)))["phase"] == "Running"


def test_a_cancel_on_its_way_is_the_reason_also_when_suspended() -> None:
    status = project(source(run(RunStatus.WAITING, suspended=True, cancel_mode=CancelMode.GRACEFUL)))
    assert (status["phase"], status["reason"]) == ("Waiting", "Cancelling")
    assert conditions(status)["Stalled"] == "False"


def test_a_run_that_undoes_its_steps_says_so_and_why() -> None:
    text = ErrorRecord("ValueError", "no courier").to_json()
    failing = project(source(run(undo=Undo.FAILED, error=text), step(0, StepStatus.RUNNING, name="refund")))
    assert (failing["phase"], failing["reason"]) == ("Running", "Compensating")
    assert failing["message"] == "compensating: no courier"
    asked = run(RunStatus.ENQUEUED, undo=Undo.REQUESTED, cancel_mode=CancelMode.COMPENSATE, cancel_reason="enough")
    assert project(source(asked))["message"].startswith("compensating: enough; ready to run")
    retry = step(0, StepStatus.RETRYING, name="refund", attempts=2, wake_at=at(60))
    held = project(source(run(undo=Undo.CANCELLED, cancel_reason="enough"), retry))
    assert held["message"] == "compensating: enough; step refund failed 2 times and is tried again"
    assert held["waitingFor"]["kind"] == "RetryBackoff"
    for status in (failing, held):
        WorkflowStatus.model_validate(status)


def test_a_run_that_could_not_be_undone_has_a_reason_of_its_own() -> None:
    text = ErrorRecord("perdure.errors.runs.CompensationFailed", "1 of 2", "PRD-411").to_json()
    status = project(source(run(RunStatus.FAILED, undo=Undo.FAILED, error=text)))
    assert (status["phase"], status["reason"], status["error"]["code"]) == ("Failed", "CompensationFailed", "PRD-411")
    assert project(source(run(RunStatus.CANCELLED, undo=Undo.CANCELLED)))["reason"] == "Cancelled"


# -- refused specs


def test_a_refused_spec_has_ended_before_it_began() -> None:
    metadata = Metadata(name="w", generation=4, created_at=datetime(2026, 11, 30, 12, tzinfo=UTC))
    status = project_rejected(Rejected(Reason.CYCLE_IN_NEEDS, "a -> b -> a"), metadata)
    WorkflowStatus.model_validate(status)
    assert (status["phase"], status["reason"], status["revision"]) == ("Failed", "CycleInNeeds", 0)
    assert conditions(status) == {"Accepted": "False", "Finished": "True", "Succeeded": "False", "Stalled": "True"}
    assert status["conditions"][0]["message"] == "a -> b -> a"
    assert {each["observedGeneration"] for each in status["conditions"]} == {4}
