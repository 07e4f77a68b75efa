"""Walks through every state that an instance of the model can get into, breadth first, so that the first trace to a
violation is a shortest one. Then looks from which states the run's end cannot be reached any more without a further
fault or request: there it is stuck.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tests.model.protocol import Protocol
from tests.model.state import OWN, State

STUCK = "the run never ends"


@dataclass
class Found:
    """What an exploration came to. `trace`: the labels of the events that lead to the violation."""

    states: int = 0
    violation: str = ""
    trace: list[str] = field(default_factory=list)
    complete: bool = False
    """Every state was seen."""


def explore(protocol: Protocol, *, limit: int = 10_000_000, liveness: bool = True) -> Found:
    """Every state, or up to the first violation, or up to `limit`."""
    first = protocol.first
    numbers: dict[State, int] = {first: 0}
    came: list[tuple[int, str]] = [(-1, "")]
    ends: list[int] = []
    before: list[list[int]] = [[]]
    queue = deque([first])
    while queue:
        state = queue.popleft()
        number = numbers[state]
        if protocol.ended(state):
            ends.append(number)
        for event in protocol.steps(state):
            if event.violation:
                return Found(len(numbers), event.violation, [*_trace(came, number), event.label])
            at = numbers.get(event.state)
            if at is None:
                at = numbers[event.state] = len(numbers)
                came.append((number, event.label))
                before.append([])
                queue.append(event.state)
                if at >= limit:
                    return Found(len(numbers))
            if liveness and event.kind == OWN and at != number:
                before[at].append(number)
    if liveness:
        stuck = _cannot_reach(ends, before)
        if stuck is not None:
            return Found(len(numbers), STUCK, _trace(came, stuck))
    return Found(len(numbers), complete=True)


def _cannot_reach(ends: list[int], before: list[list[int]]) -> int | None:
    """The first state from which no end can be reached by the protocol's own events."""
    good = bytearray(len(before))
    stack = list(ends)
    for end in ends:
        good[end] = 1
    while stack:
        for number in before[stack.pop()]:
            if not good[number]:
                good[number] = 1
                stack.append(number)
    first = good.find(0)
    return None if first < 0 else first


def _trace(came: list[tuple[int, str]], number: int) -> list[str]:
    labels: list[str] = []
    while number > 0:
        number, label = came[number]
        labels.append(label)
    return labels[::-1]
