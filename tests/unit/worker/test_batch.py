"""What goes into one journal statement: folding, order, caps, halves."""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.model.calls import Send
from perdure.model.outcome import Succeeded
from perdure.model.rows import OwnedFlags, StepWrite
from perdure.model.states import CancelMode, StepStatus
from perdure.worker.batch import Asked, Entry, describe, halves, hold_back, next_due, row_count, stops, take


@dataclass(frozen=True)
class Owner:
    run_id: str
    fence: int = 1


def step(index: int, seq: int, status: StepStatus = StepStatus.RUNNING, text: str | None = None) -> StepWrite:
    return StepWrite(index=index, seq=seq, name=f"s{index}", status=status, input=text)


def entry(*writes: StepWrite, due: float = 0.0) -> Entry:
    made = Entry(due)
    for write in writes:
        made.add(write)
    return made


def test_the_later_write_of_a_step_wins_and_keeps_the_input() -> None:
    made = entry(step(0, 1, text="[1]"), step(0, 2, StepStatus.RETRYING), step(1, 3, text="[2]"))
    assert made.steps[0] == step(0, 2, StepStatus.RETRYING, "[1]")
    assert made.rows == 2


def test_calls_beyond_the_room_go_back_before_what_was_added_since() -> None:
    loop = asyncio.new_event_loop()

    def asked(index: int) -> Asked:
        return Asked(Send(step(index, index, text="[]"), "r", "t", "k", "1"), loop.create_future())

    first, second = Entry(0.0), Entry(0.0)
    for index in range(5):
        first.ask(asked(index))
    second.ask(asked(0))
    newer = entry(step(7, 7, text="[]"))
    newer.ask(asked(8))
    one, two = Owner("a"), Owner("b")
    pending = {one: newer}
    size = first.bytes + newer.bytes

    chosen = hold_back({one: first, two: second}, pending, 3)

    assert {owner: [each.call.step.seq for each in held.calls] for owner, held in chosen.items()} == {one: [0, 1, 2]}
    assert [each.call.step.seq for each in pending[one].calls] == [3, 4, 8]
    assert list(pending[one].steps) == [7]
    assert [each.call.step.seq for each in pending[two].calls] == [0]
    assert first.bytes + pending[one].bytes == size
    assert [first.rows, pending[one].rows, pending[two].rows] == [3, 4, 1]
    loop.close()


def test_bytes_are_those_of_what_is_kept() -> None:
    one = entry(step(0, 1, text="x" * 1000))
    both = entry(step(0, 1, text="x" * 1000), step(0, 2, text="x" * 10))
    assert one.bytes > 1000
    assert both.bytes == one.bytes - 990


def test_what_was_under_way_absorbs_what_came_since() -> None:
    old = entry(step(0, 1, text="[]"))
    old.uncertain = True
    new = entry(step(0, 2, StepStatus.SUCCEEDED), step(1, 3, text="[]"))
    new.end(Succeeded("1"), None)
    old.absorb(new)
    assert [write.seq for write in old.steps.values()] == [2, 3]
    assert (old.ending, old.uncertain) == (Succeeded("1"), True)
    assert old.rows == 3
    old.end(Succeeded("2"), None)
    assert old.rows == 3


def test_only_what_is_due_is_taken_and_leaves() -> None:
    a, b = Owner("a"), Owner("b")
    pending = {a: entry(step(0, 1)), b: entry(step(0, 1), due=5.0)}
    assert list(take(pending, 4.0)) == [a]
    assert list(pending) == [b]
    assert next_due(pending) == 5.0
    assert list(take(pending, 5.0)) == [b]
    assert next_due(pending) is None


def test_two_claims_of_one_run_never_travel_together() -> None:
    old, new = Owner("a", 1), Owner("a", 3)
    pending = {old: entry(step(0, 1)), new: entry(step(0, 1))}
    assert list(take(pending, 1.0)) == [old]
    assert list(take(pending, 1.0)) == [new]


def test_rows_are_capped_but_one_entry_always_goes() -> None:
    pending = {Owner(str(number)): entry(*(step(i, i + 1) for i in range(4))) for number in range(5)}
    assert row_count(take(pending, 1.0, max_rows=9).values()) == 8
    big = {Owner("big"): entry(*(step(i, i + 1) for i in range(50)))}
    assert len(take(big, 1.0, max_rows=9)) == 1


@given(st.lists(st.integers(1, 6), min_size=1, max_size=40), st.integers(1, 10))
def test_taking_on_and_on_takes_each_once_in_order(sizes: list[int], cap: int) -> None:
    pending = {Owner(f"{n:03}"): entry(*(step(i, i + 1) for i in range(size))) for n, size in enumerate(sizes)}
    wanted = list(pending)
    taken: list[Owner] = []
    while pending:
        batch = take(pending, 1.0, max_rows=cap)
        assert batch
        assert len(batch) == 1 or row_count(batch.values()) <= cap
        taken += batch
    assert taken == wanted


@given(st.integers(1, 30))
def test_halving_finds_every_culprit_alone(count: int) -> None:
    batch = {Owner(str(number)): entry(step(0, 1)) for number in range(count)}

    def alone(part: dict[Owner, Entry]) -> list[Owner]:
        if len(part) == 1:
            return list(part)
        first, second = halves(part)
        assert first
        assert second
        return alone(first) + alone(second)

    assert alone(batch) == list(batch)


def test_an_entry_says_what_it_holds() -> None:
    assert describe(entry(step(3, 1))) == "step 3 (s3)"
    many = entry(*(step(i, i + 1) for i in range(4)))
    many.end(Succeeded("1"), None)
    assert describe(many) == "step 0 (s0) and step 1 (s1) and step 2 (s2) and 2 more"
    assert describe(Entry(0.0)) == "nothing"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (OwnedFlags(cancel_mode=None, suspended=False, wake_seq=3), False),
        (OwnedFlags(cancel_mode=CancelMode.GRACEFUL, suspended=False, wake_seq=0), True),
        (OwnedFlags(cancel_mode=None, suspended=True, wake_seq=0), True),
    ],
)
def test_flags_that_stop_a_body(flags: OwnedFlags, expected: bool) -> None:
    assert stops(flags) is expected
