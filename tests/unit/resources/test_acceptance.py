"""What the operator refuses although the API server took it: a stable reason and a sentence with the path."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.resources.acceptance import (
    MAX_INPUT_BYTES,
    MAX_MESSAGE,
    Accepted,
    Rejected,
    validate_worker_pool,
    validate_workflow,
)
from perdure.resources.conditions import Reason
from perdure.resources.workflow import WorkflowResource


def workflow(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "w", "uid": "u"}, "spec": spec}


def steps(*found: dict[str, Any]) -> dict[str, Any]:
    return workflow(steps=[{"task": "t", **step} for step in found])


def refusal(obj: dict[str, Any]) -> Rejected:
    found = validate_workflow(obj)
    assert isinstance(found, Rejected)
    return found


def test_a_valid_workflow_is_accepted_as_what_to_act_on() -> None:
    found = validate_workflow(workflow(workflow="a.b", input={"x": 1}))
    assert isinstance(found, Accepted)
    assert isinstance(found.resource, WorkflowResource)
    assert found.resource.spec.input == {"x": 1}


def test_duplicate_steps() -> None:
    found = refusal(steps({"name": "a"}, {"name": "b"}, {"name": "a"}))
    assert found == Rejected(Reason.DUPLICATE_STEP, "spec.steps: two steps have the same name: a")


def test_unknown_needs_lists_the_names_there_are() -> None:
    found = refusal(steps({"name": "a"}, {"name": "b", "needs": ["aa"]}))
    assert found == Rejected(Reason.UNKNOWN_NEED, "spec.steps: b needs aa, which is no step of: a, b")


def test_a_circle_is_shown_as_a_path() -> None:
    found = refusal(steps({"name": "a", "needs": ["c"]}, {"name": "b", "needs": ["a"]}, {"name": "c", "needs": ["b"]}))
    assert found.reason == Reason.CYCLE_IN_NEEDS
    assert found.message == "spec.steps: these steps wait for each other: a -> c -> b -> a"


def test_a_circle_through_the_step_above_says_where_it_comes_from() -> None:
    found = refusal(steps({"name": "a", "needs": ["b"]}, {"name": "b"}))
    assert "a -> b -> a (b: without needs a step waits for the one above it)" in found.message


def test_input_over_the_limit_is_counted_in_bytes() -> None:
    fits = {"x": "ä" * (MAX_INPUT_BYTES // 2 - len(json.dumps({"x": ""})))}
    assert isinstance(validate_workflow(workflow(workflow="a", input=fits)), Accepted)
    found = refusal(workflow(workflow="a", input={"x": "ä" * (MAX_INPUT_BYTES // 2)}))
    assert found.reason == Reason.INPUT_TOO_LARGE
    assert "store it elsewhere" in found.message


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("=input.x", "spec.steps[0].with.v: a value that starts with ="),
        ({"deep": {"er": {"est": ["${x}"]}}}, "spec.steps[0].with.v.deep.er.est[0]: ${ and {{"),
        ([["{{ name }}"]], "spec.steps[0].with.v[0][0]: ${ and {{"),
        ("a\0b", "spec.steps[0].with.v: holds a NUL character"),
    ],
)
def test_what_looks_like_an_expression_is_refused_at_any_depth(value: Any, words: str) -> None:
    found = refusal(steps({"name": "a", "with": {"v": value}}))
    assert found.reason == Reason.INVALID_SPEC
    assert words in found.message


def test_input_may_hold_what_looks_like_an_expression_but_nothing_that_cannot_be_stored() -> None:
    text = {"template": "Hi {{ name }}, ${HOME} =x"}
    assert isinstance(validate_workflow(workflow(workflow="a", input=text)), Accepted)
    assert "spec.input.a[0].b: holds a NUL" in refusal(workflow(workflow="a", input={"a": [{"b": "\0"}]})).message
    assert "spec.input (a key): holds a NUL" in refusal(workflow(workflow="a", input={"\0": 1})).message


def test_input_that_is_nested_too_deep_is_refused() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert "nested deeper than 64" in refusal(workflow(workflow="a", input={"x": deep})).message


def test_a_message_fits_into_a_condition() -> None:
    many = [{"name": f"Bad-{number}", "task": "t"} for number in range(100)]
    assert len(refusal(workflow(steps=many)).message) == MAX_MESSAGE


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["workflow", "steps", "input", "queue", "workerPool", "priority", "timeout", "suspend", "cancel", "other"]
)


@given(st.dictionaries(FIELDS, JSON_VALUES) | JSON_VALUES)
def test_whatever_stands_in_a_spec_the_answer_is_a_value(spec: Any) -> None:
    found = validate_workflow({"metadata": {"name": "w"}, "spec": spec})
    assert isinstance(found, Accepted | Rejected)


def pool(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "worker", "image": "i"}]}}
    return {"metadata": {"name": "p"}, "spec": {"template": template, "modules": ["orders.flows"], **spec}}


def test_a_pool_with_defaults_is_accepted() -> None:
    found = validate_worker_pool(pool())
    assert isinstance(found, Accepted)
    spec = found.resource.spec
    assert (spec.queues, spec.slots, spec.scaling.min, spec.scaling.max) == (["default"], 4, 0, 10)
    assert spec.target_per_worker == 4


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"scaling": {"min": 3, "max": 2}}, "spec.scaling: min must not be over max"),
        ({"modules": ["orders-flows"]}, "spec.modules[0]"),
        ({"modules": []}, "spec.modules"),
        ({"template": {"spec": {}}}, "spec.template: needs a container"),
        ({"template": {"spec": {"containers": ["x"]}}}, "spec.template: needs a container"),
        ({"queues": ["A"]}, "spec.queues[0]: must be a DNS label"),
        ({"slot": 3}, "spec.slot: unknown field"),
    ],
)
def test_a_pool_that_is_refused(spec: dict[str, Any], words: str) -> None:
    found = validate_worker_pool(pool(**spec))
    assert isinstance(found, Rejected)
    assert (found.reason, words in found.message) == (Reason.INVALID_SPEC, True), found.message


def test_a_pool_whose_name_leaves_no_room_for_a_version_is_refused() -> None:
    found = validate_worker_pool({**pool(), "metadata": {"name": "p" * 53}})
    assert isinstance(found, Rejected)
    assert "at most 52 characters" in found.message
