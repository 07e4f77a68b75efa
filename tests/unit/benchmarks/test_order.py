"""In which order the parts are taken."""

from benchmarks.__main__ import in_order
from benchmarks.part import Rounds
from benchmarks.parts import PARTS
from benchmarks.sizes import FULL


def test_what_is_compared_is_taken_in_turn_before_anything_that_is_taken_once() -> None:
    order = [(part.name, number) for part, number in in_order(PARTS, FULL)]
    once = [part.name for part in PARTS if part.rounds is Rounds.ONCE]
    assert [name for name, _ in order[-len(once) :]] == once
    compared = [part for part in PARTS if part.rounds is not Rounds.ONCE]
    rounds = {Rounds.COMPARED: FULL.rounds, Rounds.PEERS: FULL.peer_rounds}
    expected = [
        (part.name, number)
        for number in range(max(rounds.values()))
        for part in compared
        if number < rounds[part.rounds]
    ]
    assert order[: -len(once)] == expected
