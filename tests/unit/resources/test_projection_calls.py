"""Durable calls in `.status`: what a run waits for, in memory and parked, and its calls among the steps."""

import pytest
from perdure.model.rows import WaitingFor
from perdure.model.states import RunStatus, StepStatus
from perdure.resources.conditions import WaitKind
from perdure.resources.projection import project

from tests.unit.resources.views import at, run, source, step


@pytest.mark.parametrize(
    ("wait", "phrase"),
    [
        (WaitingFor("Sleep", until=at(60)), "the end of its sleep at 12:01:00Z"),
        (WaitingFor("Message", "on orders"), "a message on orders"),
        (WaitingFor("Message"), "a message"),
        (WaitingFor("Message", "on orders", until=at(60)), "a message on orders until 12:01:00Z"),
        (WaitingFor("Event", "ready of 5f0c"), "event ready of 5f0c"),
        (WaitingFor("Child", "5f0c-3", on=("child:5f0c-3",)), "run 5f0c-3"),
    ],
)
def test_a_parked_run_says_what_it_waits_for(wait: WaitingFor, phrase: str) -> None:
    status = project(source(run(RunStatus.WAITING, waiting_for=wait)))
    assert (status["phase"], status["reason"], status["waiting"]) == ("Waiting", wait.kind, phrase)
    assert "on" not in status["waitingFor"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("perdure.sleep", WaitKind.SLEEP),
        ("perdure.recv", WaitKind.MESSAGE),
        ("perdure.get_event", WaitKind.EVENT),
        ("perdure.result", WaitKind.CHILD),
        ("perdure.select_workflow", WaitKind.CHILD),
    ],
)
def test_a_call_that_waits_in_memory_is_a_named_wait_too(name: str, kind: WaitKind) -> None:
    status = project(source(run(), step(0, StepStatus.WAITING, name=name, wake_at=at(7)), step(1)))
    assert status["reason"] == kind
    first = status["steps"][0]
    assert (first["name"], first["phase"], first["waitingFor"]) == (name, "Waiting", "until 12:00:07Z")


def test_beside_a_running_step_a_waiting_call_is_no_wait_of_the_run() -> None:
    steps = (step(0, StepStatus.WAITING, name="perdure.sleep", wake_at=at(7)), step(1, StepStatus.RUNNING))
    assert "waiting" not in project(source(run(), *steps))


def test_what_is_over_first_is_what_the_run_waits_for() -> None:
    steps = (
        step(0, StepStatus.WAITING, name="perdure.recv"),
        step(1, StepStatus.RETRYING, wake_at=at(9)),
        step(2, StepStatus.WAITING, name="perdure.sleep", wake_at=at(7)),
    )
    assert project(source(run(), *steps))["reason"] == "Sleep"


def test_a_woken_run_does_not_wait_for_its_sleep_any_more() -> None:
    wait = WaitingFor(WaitKind.SLEEP, until=at(1))
    assert project(source(run(RunStatus.ENQUEUED, waiting_for=wait)))["reason"] == "FreeWorker"


def test_a_call_of_a_run_that_has_ended_was_interrupted() -> None:
    status = project(source(run(RunStatus.CANCELLED), step(0, StepStatus.WAITING, name="perdure.sleep", wake_at=at(7))))
    assert status["steps"][0]["phase"] == "Interrupted"
    assert "waitingFor" not in status["steps"][0]


def test_a_branch_that_has_lost_its_select_is_dropped_and_neither_live_nor_waited_for() -> None:
    steps = (
        step(0, StepStatus.DROPPED, name="perdure.recv", finished_at=at(3)),
        step(1, StepStatus.SUCCEEDED),
        step(2, StepStatus.SUCCEEDED, name="perdure.select", output="1"),
        step(3, StepStatus.WAITING, name="perdure.sleep", wake_at=at(7)),
    )
    status = project(source(run(), *steps))
    assert [each["phase"] for each in status["steps"]] == ["Dropped", "Succeeded", "Succeeded", "Waiting"]
    assert status["reason"] == WaitKind.SLEEP
