"""Every interleaving of small instances: with all rules nothing is broken, and each rule is there for a reason."""

from __future__ import annotations

import pytest

from tests.model.database import RULES
from tests.model.explore import Found, explore
from tests.model.instances import BROKEN, SAVED, SMALL, Broken
from tests.model.protocol import Protocol

LIMIT = 300_000
"""More states than any instance here has: an instance that grows beyond it has to become smaller."""


def told(found: Found) -> str:
    return f"{found.states} states; {found.violation}\n" + "\n".join(found.trace)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", SMALL.values(), ids=SMALL.keys())
def test_with_all_rules_nothing_is_broken_in_any_order(protocol: Protocol) -> None:
    found = explore(protocol, limit=LIMIT)
    assert not found.violation, told(found)
    assert found.complete, told(found)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", BROKEN, ids=lambda case: "+".join(case.off))
def test_without_the_rule_a_promise_is_broken(case: Broken) -> None:
    found = explore(case.protocol, limit=LIMIT)
    assert found.violation == case.violation, told(found)
    assert found.trace


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("rule", "sister", "program"), SAVED)
def test_a_rule_that_has_a_sister_is_not_missed_alone(rule: str, sister: str, program: tuple[str, ...]) -> None:
    alone = explore(Protocol(program, faults=1, off=frozenset({rule})), limit=LIMIT)
    assert alone.complete, told(alone)
    assert explore(Protocol(program, faults=1, off=frozenset({rule, sister})), limit=LIMIT).violation


def test_every_rule_is_switched_off_by_some_test() -> None:
    assert {rule for case in BROKEN for rule in case.off} == set(RULES)


def test_the_first_trace_is_a_shortest_one() -> None:
    case = next(case for case in BROKEN if case.off == ("R9",))
    found = explore(case.protocol)
    assert found.trace[-1] == "A's finish of 0 and succeed (fence 1) commits"
    assert len(found.trace) == 8
