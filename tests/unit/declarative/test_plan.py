"""The plan of declared steps: order, options, and what slipped past the operator."""

import json

import pytest
from perdure.declarative.plan import plan
from perdure.errors import InvalidResource
from perdure.model.retry import RetryPolicy

TASKS = {"charge", "ship"}


def definition(*steps: dict) -> str:
    return json.dumps({"steps": [{"task": "charge", **step} for step in steps]})


def needs_of(*steps: dict) -> list[set[int]]:
    return [set(node.needs) for node in plan(definition(*steps), TASKS)]


def test_a_step_needs_the_one_above_it_unless_it_says_otherwise():
    assert needs_of({"name": "a"}, {"name": "b"}, {"name": "c", "needs": []}, {"name": "d", "needs": ["a", "c"]}) == [
        set(),
        {0},
        set(),
        {0, 2},
    ]


def test_a_step_may_need_one_below_it():
    assert needs_of({"name": "a", "needs": ["b"]}, {"name": "b", "needs": []}) == [{1}, set()]


def test_the_index_is_the_position_and_options_are_in_seconds():
    first, second = plan(
        definition(
            {"name": "a", "with": {"cents": 5}},
            {
                "name": "b",
                "task": "ship",
                "attemptTimeout": "1m30s",
                "retry": {"maxAttempts": 4, "backoff": {"initial": "2s", "factor": "1.5", "max": "1m"}},
            },
        ),
        TASKS,
    )
    assert (first.index, first.name, first.task, first.arguments) == (0, "a", "charge", {"cents": 5})
    assert (first.retry, first.timeout) == (None, None)
    assert (second.index, second.task, second.timeout) == (1, "ship", 90.0)
    assert second.retry == RetryPolicy(4, 2.0, 1.5, 60.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no declared steps"),
        ("{", "not JSON"),
        ("[]", "definition"),
        ('{"steps": []}', "steps"),
        ('{"steps": [{"name": "a"}]}', "task"),
        ('{"steps": [{"name": "A B", "task": "charge"}]}', "name"),
        (definition({"name": "a"}, {"name": "a"}), "same name: a"),
        (definition({"name": "a", "needs": ["b"]}), "a needs b"),
        (definition({"name": "a", "needs": ["a"]}), "wait for each other"),
        (definition({"name": "a", "needs": ["b"]}, {"name": "b"}), "wait for each other: a -> b -> a"),
        (definition({"name": "a", "task": "unknown"}), "no step is registered for task: unknown"),
    ],
)
def test_what_slipped_past_the_operator_is_an_invalid_resource(text, says):
    with pytest.raises(InvalidResource) as caught:
        plan(text, TASKS)
    assert says in str(caught.value)


def test_a_long_chain_is_planned_without_recursion():
    nodes = plan(definition(*({"name": f"s{n}"} for n in range(5000))), TASKS)
    assert nodes[4999].needs == {4998}
