"""What a pod's status says: readiness, trouble, proof of death."""

from __future__ import annotations

from typing import Any

import pytest
from perdure_operator.plan.manifests import POOL_LABEL, VERSION_LABEL
from perdure_operator.plan.pods import Pod, read_pod, worst


def pod(container: dict[str, Any] | None = None, **status: Any) -> Pod:
    statuses = [] if container is None else [{"name": "app", **container}]
    return read_pod(
        {
            "metadata": {"name": "p", "uid": "u", "labels": {POOL_LABEL: "orders", VERSION_LABEL: "v1"}},
            "spec": {"containers": [{"name": "app"}, {"name": "sidecar"}]},
            "status": {"containerStatuses": statuses, **status},
        }
    )


RUNNING = {"state": {"running": {"startedAt": "x"}}}
CRASHED = {
    "exitCode": 1,
    "reason": "Error",
    "message": "Traceback\nModuleNotFoundError: No module named 'shop'",
}


@pytest.mark.parametrize(
    ("container", "ended"),
    [
        (None, False),
        (RUNNING, False),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, False),
        ({"state": {"terminated": {"exitCode": 137}}}, True),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}, True),
        ({**RUNNING, "lastState": {"terminated": {"exitCode": 1}}}, False),
        ({"state": {}}, False),
    ],
)
def test_proof_of_death_is_the_end_of_the_workers_container(container: dict[str, Any] | None, ended: bool) -> None:
    assert pod(container).worker_ended is ended


def test_the_end_of_another_container_proves_nothing() -> None:
    obj = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [{"name": "app"}, {"name": "sidecar"}]},
        "status": {
            "containerStatuses": [{"name": "sidecar", "state": {"terminated": {}}}, {"name": "app", **RUNNING}],
        },
    }
    assert not read_pod(obj).worker_ended


@pytest.mark.parametrize(
    ("facts", "reason", "text"),
    [
        (pod(RUNNING), None, ""),
        (pod({"state": {"waiting": {"reason": "ContainerCreating"}}}), None, ""),
        (
            pod({"state": {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nope:1"'}}}),
            "ImagePullBackOff",
            'Back-off pulling image "nope:1"',
        ),
        (
            pod({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": CRASHED}}),
            "CrashLoopBackOff",
            "No module named 'shop'",
        ),
        (pod({"state": {"terminated": CRASHED}}), "Error", "exit code 1"),
        (
            pod(
                conditions=[
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
                ]
            ),
            "Unschedulable",
            "0/3 nodes",
        ),
        (pod(phase="Failed", reason="Evicted", message="low on memory"), "Evicted", "low on memory"),
    ],
)
def test_trouble(facts: Pod, reason: str | None, text: str) -> None:
    if reason is None:
        assert facts.trouble is None
    else:
        assert facts.trouble is not None
        assert facts.trouble.reason == reason
        assert text in facts.trouble.message


def test_last_words_are_cut_at_the_beginning() -> None:
    crashed = {"exitCode": 1, "message": "x" * 5000 + " the end"}
    found = pod({"state": {"terminated": crashed}}).trouble
    assert found is not None
    assert found.message.endswith("the end")
    assert len(found.message) < 400


def test_the_most_frequent_trouble_is_shown() -> None:
    pulling = pod({"state": {"waiting": {"reason": "ImagePullBackOff"}}})
    crashing = pod({"state": {"waiting": {"reason": "CrashLoopBackOff"}}})
    found = worst([pulling, crashing, crashing])
    assert found is not None
    assert found.reason == "CrashLoopBackOff"
    assert worst([pod(RUNNING)]) is None


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, {"status": "x", "spec": []}, {"metadata": {"labels": None}}])
def test_a_part_that_is_missing_or_odd_is_not_yet_reported(obj: dict[str, Any]) -> None:
    facts = read_pod(obj)
    assert (facts.ready, facts.worker_ended, facts.trouble) == (False, False, None)
