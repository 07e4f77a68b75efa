"""The core of the work queue: what it promises, by table and for any order of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from perdure_operator.control.workqueue import BASE_DELAY, MAX_DELAY, MAX_PAUSE, QueueCore


def core() -> QueueCore[str]:
    return QueueCore(jitter=lambda: 1.0)


def taken(queue: QueueCore[str], now: float) -> str | None:
    found = queue.take(now)
    return None if found is None else found[0]


def test_a_key_that_is_put_in_often_is_looked_at_once() -> None:
    queue = core()
    for _ in range(5):
        queue.add("a", 0)
    assert (taken(queue, 0), taken(queue, 0)) == ("a", None)


def test_keys_come_in_the_order_in_which_they_became_ready() -> None:
    queue = core()
    queue.add("b", 0)
    queue.add("a", 1)
    queue.add("b", 2)
    assert [taken(queue, 3), taken(queue, 3)] == ["b", "a"]


def test_a_key_put_in_while_it_is_looked_at_is_looked_at_again_afterwards_and_never_twice_at_once() -> None:
    queue = core()
    queue.add("a", 0)
    assert taken(queue, 0) == "a"
    queue.add("a", 1)
    assert taken(queue, 1) is None
    queue.done("a", 2)
    assert taken(queue, 2) == "a"


def test_the_wait_of_a_key_is_told_when_it_is_taken() -> None:
    queue = core()
    queue.add("a", 10)
    assert queue.oldest_age(12) == 2
    assert queue.take(13) == ("a", 3)


def test_a_failing_key_waits_longer_each_time_and_others_do_not() -> None:
    queue = core()
    now, waits = 0.0, []
    queue.add("bad", now)
    for _ in range(12):
        assert taken(queue, now) == "bad"
        waits.append(queue.failed("bad", now))
        assert taken(queue, now) is None
        queue.add("good", now)
        assert taken(queue, now) == "good"
        queue.done("good", now)
        now += waits[-1]
    assert waits[0] == BASE_DELAY
    assert waits == sorted(waits)
    assert waits[-1] == MAX_DELAY


def test_success_forgets_failures() -> None:
    queue = core()
    queue.add("a", 0)
    queue.take(0)
    queue.failed("a", 0)
    queue.take(100)
    queue.done("a", 100)
    queue.add("a", 100)
    queue.take(100)
    assert queue.failed("a", 100) == BASE_DELAY


def test_news_about_a_failing_key_is_looked_at_without_waiting() -> None:
    queue = core()
    queue.add("a", 0)
    queue.take(0)
    queue.add("a", 0)
    assert queue.failed("a", 0) == 0
    assert taken(queue, 0) == "a"
    queue.failed("a", 0)
    queue.add("a", 0.01)
    assert taken(queue, 0.01) == "a"


def test_of_two_appointments_the_earlier_stands() -> None:
    queue = core()
    queue.add_after("a", 10, 0)
    queue.add_after("a", 5, 0)
    queue.add_after("a", 20, 0)
    assert queue.next_due(0) == 5
    assert taken(queue, 4.9) is None
    assert taken(queue, 5) == "a"
    queue.done("a", 5)
    assert taken(queue, 30) is None


def test_when_what_all_need_is_away_the_queue_waits_and_then_tries_with_one() -> None:
    queue = core()
    for key in "abc":
        queue.add(key, 0)
    first, second = taken(queue, 0), taken(queue, 0)
    assert (first, second) == ("a", "b")
    assert queue.unavailable("a", 0) == BASE_DELAY
    queue.unavailable("b", 0)  # failed with the first: no second strike
    assert taken(queue, BASE_DELAY / 2) is None
    assert queue.next_due(0) == BASE_DELAY
    assert taken(queue, BASE_DELAY) == "b"
    assert taken(queue, BASE_DELAY) is None, "one is enough to find out"
    queue.done("b", BASE_DELAY)
    assert {taken(queue, BASE_DELAY), taken(queue, BASE_DELAY)} == {"a", "c"}


def test_the_pause_of_the_queue_has_an_end() -> None:
    queue, now = core(), 0.0
    queue.add("a", now)
    for _ in range(20):
        assert taken(queue, now) == "a"
        wait = queue.unavailable("a", now)
        assert wait <= MAX_PAUSE
        now += wait


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order: nothing is lost, nothing runs twice at once, what is due comes."""

    keys = st.sampled_from("abcd")

    def __init__(self) -> None:
        super().__init__()
        self.queue: QueueCore[str] = QueueCore(jitter=lambda: 0.5)
        self.now = 0.0
        self.wanted: set[str] = set()
        self.running: list[str] = []

    @rule(key=keys)
    def add(self, key: str) -> None:
        self.queue.add(key, self.now)
        self.wanted.add(key)

    @rule(key=keys, delay=st.floats(0, 50))
    def add_after(self, key: str, delay: float) -> None:
        self.queue.add_after(key, delay, self.now)
        self.wanted.add(key)

    @rule(seconds=st.floats(0, 100))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        found = self.queue.take(self.now)
        if found is not None:
            key, waited = found
            assert key not in self.running
            assert waited >= 0
            self.running.append(key)
            self.wanted.discard(key)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), how=st.sampled_from(["done", "failed", "unavailable"]))
    def end(self, data: st.DataObject, how: str) -> None:
        key = data.draw(st.sampled_from(self.running))
        self.running.remove(key)
        if how == "done":
            self.queue.done(key, self.now)
        else:
            getattr(self.queue, how)(key, self.now)
            self.wanted.add(key)

    @invariant()
    def counts_agree(self) -> None:
        assert self.queue.running == len(self.running)
        assert self.queue.depth <= 4

    def teardown(self) -> None:
        for key in self.running:
            self.queue.done(key, self.now)
        looked_at: set[str] = set()
        for _ in range(100):
            wait = self.queue.next_due(self.now)
            if wait is None:
                break
            self.now += wait
            found = self.queue.take(self.now)
            if found is not None:
                looked_at.add(found[0])
                self.queue.done(found[0], self.now)
        assert looked_at == self.wanted


TestAnyOrder = AnyOrder.TestCase


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_jitter_only_shortens(draws: list[float]) -> None:
    source = iter(draws * 10)
    queue: QueueCore[str] = QueueCore(jitter=lambda: next(source))
    now = 0.0
    queue.add("a", now)
    for _ in draws:
        queue.take(now)
        delay = queue.failed("a", now)
        assert BASE_DELAY / 2 <= delay <= MAX_DELAY
        now += delay
