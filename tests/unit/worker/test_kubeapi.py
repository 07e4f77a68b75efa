"""What an answer of the API server means for a report: texts as a real server sends them."""

import json

import pytest
from perdure.worker.answers import Answer, Verdict, classify
from perdure.worker.kubeapi import KubeApi
from perdure.worker.worker import new_metrics


def refusal(message: str, *fields: str) -> str:
    causes = [{"reason": "FieldValueInvalid", "message": "x", "field": each} for each in fields]
    details = {"causes": causes} if causes else {}
    return json.dumps({"kind": "Status", "status": "Failure", "message": message, "details": details})


UID_TEST_FAILED = refusal("the server rejected our request due to an error in our request")


@pytest.mark.parametrize(
    ("code", "body", "retry_after", "verdict", "overloaded", "pause"),
    [
        (200, "{}", None, Verdict.OK, False, None),
        (404, refusal('workflows "a" not found'), None, Verdict.GONE, False, None),
        (422, UID_TEST_FAILED, None, Verdict.GONE, False, None),
        (422, refusal("going back", "status.revision"), None, Verdict.STALE, False, None),
        (422, refusal("no such phase", "status.phase"), None, Verdict.REFUSED, False, None),
        (400, refusal("bad patch"), None, Verdict.REFUSED, False, None),
        (413, "too large", None, Verdict.REFUSED, False, None),
        (401, refusal("Unauthorized"), None, Verdict.RETRY, False, None),
        (403, refusal("forbidden"), None, Verdict.RETRY, False, None),
        (409, refusal("conflict"), None, Verdict.RETRY, False, None),
        (429, refusal("too many requests"), "7", Verdict.RETRY, True, 7.0),
        (500, "not JSON at all", None, Verdict.RETRY, True, None),
        (503, refusal("apiserver not ready"), "soon", Verdict.RETRY, True, None),
        (504, "[]", "1", Verdict.RETRY, True, 1.0),
    ],
)
def test_answers(
    code: int, body: str, retry_after: str | None, verdict: Verdict, overloaded: bool, pause: float | None
) -> None:
    answer = classify(code, body, retry_after)
    assert (answer.verdict, answer.overloaded, answer.retry_after) == (verdict, overloaded, pause)
    assert isinstance(answer, Answer)
    if verdict is not Verdict.OK:
        assert str(code) in answer.message


def test_outside_a_cluster_there_is_no_api() -> None:
    assert KubeApi.in_cluster(new_metrics(), {}) is None
    env = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert KubeApi.in_cluster(new_metrics(), env) is None, "a pod without a token reports nothing"
