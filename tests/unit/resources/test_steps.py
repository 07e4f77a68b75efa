"""Declared steps: the order they run in, and circles in it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.model.retry import RetryPolicy
from perdure.resources.steps import (
    Step,
    TaskAction,
    duplicate_names,
    effective_needs,
    find_cycle,
    unknown_needs,
)


def step(name: str, needs: list[str] | None = None) -> Step:
    return Step.model_validate({"name": name, "task": "t", **({} if needs is None else {"needs": needs})})


def test_a_step_waits_for_the_one_above_it_unless_needs_says_otherwise() -> None:
    steps = [step("a"), step("b"), step("c", []), step("d", ["a", "b"]), step("e")]
    assert effective_needs(steps) == {"a": (), "b": ("a",), "c": (), "d": ("a", "b"), "e": ("d",)}


def test_names_that_are_given_twice_are_found_in_order() -> None:
    assert duplicate_names([step("b"), step("a"), step("a"), step("b"), step("a")]) == ["a", "b"]


def test_needs_of_no_step_are_found_with_the_step_that_has_them() -> None:
    assert unknown_needs([step("a"), step("b", ["a", "x"])]) == [("b", "x")]


@pytest.mark.parametrize(
    ("steps", "cycle"),
    [
        ([step("a"), step("b"), step("c")], []),
        ([step("a", ["c"]), step("b", ["a"]), step("c", ["b"])], ["a", "c", "b", "a"]),
        ([step("a", ["a"])], ["a", "a"]),
        ([step("a", []), step("b", ["c"]), step("c", ["b"])], ["b", "c", "b"]),
        ([step("a", ["b"]), step("b")], ["a", "b", "a"]),
        ([step("a", []), step("b", ["a"]), step("c", ["a"]), step("d", ["b", "c"])], []),
    ],
    ids=["a line", "a ring", "itself", "off the start", "the step above", "a diamond"],
)
def test_circles(steps: list[Step], cycle: list[str]) -> None:
    assert find_cycle(steps) == cycle


def test_a_long_line_is_walked_without_recursion() -> None:
    assert find_cycle([step("s0"), *(step(f"s{i}", [f"s{i - 1}"]) for i in range(1, 5000))]) == []


@given(st.lists(st.sets(st.integers(0, 7), max_size=4), min_size=1, max_size=8))
def test_a_circle_is_found_exactly_when_the_steps_have_no_order(needs: list[set[int]]) -> None:
    steps = [step(f"s{i}", sorted(f"s{n}" for n in names if n < len(needs))) for i, names in enumerate(needs)]
    edges = effective_needs(steps)
    done: set[str] = set()
    while ready := {name for name, waits in edges.items() if name not in done and set(waits) <= done}:
        done |= ready
    cycle = find_cycle(steps)
    assert bool(cycle) == (done != set(edges))
    for name, needed in pairwise(cycle):
        assert needed in edges[name]


def test_retry_in_the_terms_of_the_engine() -> None:
    declared = Step.model_validate(
        {"name": "a", "task": "t", "retry": {"maxAttempts": 4, "backoff": {"initial": "500ms", "factor": "1.5"}}}
    )
    assert declared.retry is not None
    assert declared.retry.policy() == RetryPolicy(max_attempts=4, interval=0.5, backoff_rate=1.5, max_interval=3600)


def test_the_defaults_of_retry_are_those_of_the_engine() -> None:
    declared = Step.model_validate({"name": "a", "task": "t", "retry": {"maxAttempts": 1}})
    assert declared.retry is not None
    assert declared.retry.policy() == RetryPolicy()


def test_the_one_action_of_a_step() -> None:
    declared = Step.model_validate({"name": "a", "task": "orders.pack", "with": {"order": 1}})
    assert declared.action == TaskAction("orders.pack", {"order": 1})
