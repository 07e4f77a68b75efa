"""How many pods: the table of cases, and what holds for any backlog."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure_operator.plan.scale import Backlog, Decision, Limits, Memory, current, draining, needed

NOTHING = Memory()
LIMITS = Limits(min=0, max=10, target=4, slots=4, idle_after=300, stabilisation=60)


def decide(replicas: int | None, backlog: Backlog | None, memory: Memory = NOTHING, now: float = 0.0) -> Decision:
    return current(replicas, backlog, LIMITS, memory, now, fixed=None)


@pytest.mark.parametrize(
    ("replicas", "backlog", "expected"),
    [
        (None, Backlog(), 0),
        (None, Backlog(ready=1), 1),
        (0, Backlog(ready=4), 1),
        (0, Backlog(ready=5), 2),
        (1, Backlog(ready=100), 10),
        (2, Backlog(ready=1, running=7), 2),
        (3, None, 3),
        (None, None, 0),
        (0, Backlog(asleep=1000), 0),
    ],
)
def test_cases(replicas: int | None, backlog: Backlog | None, expected: int) -> None:
    assert decide(replicas, backlog).replicas == expected


def test_a_target_above_the_slots_never_starves_what_runs() -> None:
    limits = Limits(min=0, max=10, target=100, slots=2, idle_after=0, stabilisation=0)
    assert needed(Backlog(ready=50, running=10), limits) == 5


def test_up_at_once_down_after_the_window_and_the_last_pod_after_the_idle_time() -> None:
    memory, replicas, seen = Memory(), 0, []
    for now, backlog in [
        (0.0, Backlog(ready=40)),
        (2.0, Backlog(running=40)),
        (30.0, Backlog(running=4)),
        (61.0, Backlog(running=4)),
        (63.0, Backlog(running=4)),
        (70.0, Backlog()),
        (122.0, Backlog()),
        (362.0, Backlog()),
        (364.0, Backlog()),
    ]:
        decision = decide(replicas, backlog, memory, now)
        replicas, memory = decision.replicas, decision.memory
        seen.append((now, replicas))
    assert seen == [
        (0.0, 10),
        (2.0, 10),
        (30.0, 10),
        (61.0, 10),
        (63.0, 1),
        (70.0, 1),
        (122.0, 1),
        (362.0, 1),
        (364.0, 0),
    ]


def test_after_a_restart_the_first_decision_waits_as_if_what_is_there_had_just_been_wanted() -> None:
    first = decide(8, Backlog(ready=1), now=1000)
    assert first.replicas == 8
    assert decide(8, Backlog(ready=1), first.memory, now=1059).replicas == 8
    assert decide(8, Backlog(ready=1), first.memory, now=1061).replicas == 1


def test_a_number_set_by_a_person_holds_within_the_limits_whatever_the_backlog() -> None:
    limits = Limits(min=1, max=5, target=4, slots=4, idle_after=0, stabilisation=0)
    for backlog in (None, Backlog(), Backlog(ready=1000)):
        assert [current(2, backlog, limits, Memory(), 0, fixed=n).replicas for n in (0, 3, 9)] == [1, 3, 5]


@pytest.mark.parametrize(
    ("replicas", "backlog", "expected"),
    [
        (3, None, 3),
        (3, Backlog(), 0),
        (3, Backlog(asleep=50), 0),
        (0, Backlog(ready=1, asleep=50), 1),
        (3, Backlog(running=5), 2),
        (0, Backlog(ready=1000), 10),
    ],
)
def test_an_earlier_version_has_pods_for_its_own_runs_only(
    replicas: int, backlog: Backlog | None, expected: int
) -> None:
    assert draining(replicas, backlog, LIMITS) == expected


counts = st.integers(0, 200)
backlogs = st.builds(Backlog, ready=counts, running=counts, asleep=counts)
limits_of_any_kind = st.builds(
    lambda least, more, target, slots, idle, window: Limits(least, least + more, target, slots, idle, window),
    st.integers(0, 5),
    st.integers(1, 10),
    st.integers(1, 20),
    st.integers(1, 20),
    st.floats(0, 600),
    st.floats(0, 600),
)


@given(limits_of_any_kind, st.lists(st.tuples(st.floats(0, 100), st.none() | backlogs), max_size=30))
def test_for_any_history(limits: Limits, story: list[tuple[float, Backlog | None]]) -> None:
    memory, replicas, now = Memory(), limits.min, 0.0
    for pause, backlog in story:
        now += pause
        before = replicas
        decision = current(replicas, backlog, limits, memory, now, fixed=None)
        replicas, memory = decision.replicas, decision.memory
        assert limits.min <= replicas <= limits.max
        assert decision.why
        if backlog is None:
            assert replicas == before, "unknown is not zero"
        else:
            assert replicas >= min(needed(backlog, limits), limits.max), "up is never delayed"
            if backlog.awake:
                assert replicas >= 1, "runs that are awake have a pod"
        assert len(memory.wanted) <= len(story) + 2
