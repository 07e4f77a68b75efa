"""The HTTP layer's decisions: the pace of writes, what refusals mean, names of Events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.errors import ConfigurationError
from perdure_operator.kube.access import Access
from perdure_operator.kube.errors import ApiRefused
from perdure_operator.kube.events import event_name
from perdure_operator.kube.pace import FASTEST, GAIN, LONGEST_PAUSE, SLOWEST, START, Pace
from perdure_operator.kube.status import Written, outcome_of
from perdure_operator.plan.events import EventReason, Notice


def refusal(status: int, reason: str = "", fields: list[str] | None = None, name: str = "") -> ApiRefused:
    details: dict[str, Any] = {"name": name} if name else {}
    if fields:
        details["causes"] = [{"field": field} for field in fields]
    return ApiRefused(status, {"reason": reason, "message": "m", "details": details})


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (refusal(404, "NotFound", name="order-1"), Written.GONE),
        (refusal(422, "Invalid"), Written.GONE),
        (refusal(422, "Invalid", ["status.revision"]), Written.NEWER),
        (refusal(422, "Invalid", ["status.steps[0].phase"]), None),
        (refusal(404), None),
        (refusal(403, "Forbidden"), None),
    ],
)
def test_what_a_refused_status_means(error: ApiRefused, outcome: Written | None) -> None:
    assert outcome_of(error) == outcome


def test_an_object_is_missing_only_if_its_kind_is_served() -> None:
    assert refusal(404, "NotFound", name="order-1").object_missing
    assert not ApiRefused(404, {"message": "404 page not found"}).object_missing
    assert not refusal(410, "Gone", name="x").object_missing


def test_writes_are_spaced_by_the_rate() -> None:
    pace = Pace(10)
    assert [round(pace.wait(0), 3) for _ in range(4)] == [0, 0.1, 0.2, 0.3]
    assert pace.wait(100) == 0


def test_the_rate_rises_slowly_and_falls_at_once() -> None:
    pace, now = Pace(), 0.0
    for _ in range(int(START)):
        pace.answered(0.01, now)
    assert START + GAIN * 0.8 < pace.rate < START + GAIN * 1.1
    before = pace.rate
    for _ in range(10):
        pace.throttled(None, now)  # ten answers of one moment are one sign
    assert pace.rate == before / 2
    pace.answered(3.0, now + 2)
    assert pace.rate == before / 2 * 0.8


def test_a_pause_that_the_server_asks_for_is_made_but_not_an_endless_one() -> None:
    pace = Pace()
    pace.throttled(7.0, 100)
    assert pace.wait(100) == 7
    pace.throttled(10_000, 200)
    assert pace.wait(200) == LONGEST_PAUSE


@given(st.lists(st.tuples(st.floats(0, 5), st.sampled_from(["quick", "slow", "throttled"])), max_size=200))
def test_the_rate_has_bounds_and_permits_come_in_order(story: list[tuple[float, str]]) -> None:
    pace, now, last = Pace(), 0.0, 0.0
    for pause, what in story:
        now += pause
        at = now + pace.wait(now)
        assert at >= last
        last = at
        if what == "throttled":
            pace.throttled(None, now)
        else:
            pace.answered(0.01 if what == "quick" else 2.0, now)
        assert SLOWEST <= pace.rate <= FASTEST


def notice(**changes: Any) -> Notice:
    fields: dict[str, Any] = {
        "kind": "Workflow",
        "namespace": "shop",
        "name": "order-1",
        "uid": "u",
        "reason": EventReason.WORKFLOW_FAILED,
        "message": "m",
        **changes,
    }
    return Notice(**fields)


def test_the_name_of_an_event_is_what_it_says() -> None:
    assert event_name(notice()) == event_name(notice())
    others = [notice(message="n"), notice(uid="v"), notice(reason=EventReason.WORKFLOW_PARKED)]
    assert len({event_name(each) for each in [notice(), *others]}) == 4
    assert len(event_name(notice(name="a." * 126 + "b"))) <= 253


def test_the_api_server_is_found_from_a_pod() -> None:
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert Access.in_cluster(env).server == "https://[fd00::1]:6443"
    with pytest.raises(ConfigurationError):
        Access.in_cluster({})
