"""When a client asks the database about which of the runs that it waits for."""

from math import inf

from perdure.client.schedule import MOST_ASKED, QUICK_SECONDS, Schedule


def asked(schedule: Schedule, now: float) -> list[str]:
    return sorted(schedule.take(now)[0])


def waiting(*ids: str, poll: float = 1.0, news: bool = True, now: float = 0.0) -> Schedule:
    """Awaited runs that have been asked about once and have not ended."""
    schedule = Schedule(news=news)
    for each in ids:
        schedule.add(each, poll)
    schedule.take(now)
    for each in ids:
        schedule.answered(each, now, armed=True)
    return schedule


def test_a_new_wait_asks_at_once_and_marks_the_run() -> None:
    schedule = Schedule(news=True)
    schedule.add("a", 1.0)

    assert schedule.due_at() == -inf
    assert schedule.take(5.0) == (["a"], ["a"])
    assert schedule.due_at() == inf


def test_what_is_asked_about_is_not_asked_again_before_the_answer() -> None:
    schedule = waiting("a")
    assert asked(schedule, 1.0) == ["a"]
    assert asked(schedule, 100.0) == []


def test_a_marked_run_is_asked_about_once_an_interval_and_not_marked_again() -> None:
    schedule = waiting("a", now=10.0)
    assert schedule.due_at() == 11.0
    assert schedule.take(10.9) == ([], [])
    assert schedule.take(11.0) == (["a"], [])


def test_waits_that_began_apart_are_asked_about_together() -> None:
    schedule = waiting("a")
    schedule.add("b", 1.0)
    assert asked(schedule, 0.3) == ["b"]
    schedule.answered("b", 0.3, armed=True)

    assert asked(schedule, 1.0) == ["a", "b"]


def test_a_shorter_interval_does_not_drag_longer_ones_along() -> None:
    schedule = waiting("slow", poll=60.0)
    schedule.add("quick", 0.1)
    asked(schedule, 0.0)
    schedule.answered("quick", 0.0, armed=True)

    assert asked(schedule, 0.1) == ["quick"]


def test_of_two_waits_for_one_run_the_shorter_interval_counts() -> None:
    schedule = waiting("a", poll=60.0)
    schedule.add("a", 1.0)
    assert asked(schedule, 0.0) == ["a"]
    schedule.answered("a", 0.0, armed=True)

    assert schedule.due_at() == 1.0


def test_a_run_that_is_said_to_have_ended_is_asked_about_at_once_and_alone() -> None:
    schedule = waiting("a", "b")

    assert schedule.heard(["b", "somebody else's"])

    assert schedule.due_at() == -inf
    assert asked(schedule, 0.1) == ["b"]
    assert not schedule.heard(["somebody else's"])
    assert schedule.due_at() == 1.0


def test_news_that_come_while_the_answer_is_under_way_are_not_lost() -> None:
    schedule = waiting("a")
    assert asked(schedule, 1.0) == ["a"]
    schedule.heard(["a"])
    schedule.answered("a", 1.0, armed=True)

    assert asked(schedule, 1.0) == ["a"]


def test_after_a_gap_in_the_news_everything_is_asked_about() -> None:
    schedule = waiting("a", "b", poll=60.0)
    schedule.gap()
    assert asked(schedule, 0.1) == ["a", "b"]


def test_a_run_that_could_not_be_marked_is_asked_about_again_soon_and_ever_later() -> None:
    schedule = Schedule(news=True)
    schedule.add("a", 1.0)
    pauses = []
    now = 0.0
    for _ in range(9):
        assert schedule.take(now) == (["a"], ["a"])
        schedule.answered("a", now, armed=False)
        pauses.append(round(schedule.due_at() - now, 6))
        now = schedule.due_at()

    assert pauses == [QUICK_SECONDS * 2**n for n in range(7)] + [1.0, 1.0]


def test_without_news_nothing_is_marked_and_polls_keep_their_interval() -> None:
    schedule = Schedule(news=False)
    schedule.add("a", 1.0)

    assert schedule.take(0.0) == (["a"], [])
    schedule.answered("a", 0.0, armed=False)

    assert schedule.due_at() == 1.0


def test_a_run_that_is_still_to_be_created_is_not_asked_about() -> None:
    schedule = Schedule(news=True)
    schedule.add("a", 1.0, asleep=True)
    schedule.gap()
    assert schedule.due_at() == inf
    assert schedule.take(100.0) == ([], [])


def test_a_run_that_was_created_with_the_mark_is_left_alone_for_an_interval() -> None:
    schedule = Schedule(news=True)
    schedule.add("a", 1.0, asleep=True)
    schedule.awake("a", 5.0, armed=True)

    assert schedule.due_at() == 6.0
    assert schedule.take(6.0) == (["a"], [])


def test_news_of_a_run_that_come_before_its_creation_is_known_are_kept() -> None:
    schedule = Schedule(news=True)
    schedule.add("a", 1.0, asleep=True)
    schedule.heard(["a"])
    schedule.awake("a", 5.0, armed=True)

    assert asked(schedule, 5.0) == ["a"]


def test_a_run_that_was_there_before_is_asked_about_and_marked() -> None:
    schedule = Schedule(news=True)
    schedule.add("a", 1.0, asleep=True)
    schedule.awake("a", 5.0, armed=False)

    assert schedule.take(5.0) == (["a"], ["a"])


def test_one_question_is_about_a_bounded_number_of_runs_and_the_next_about_the_rest() -> None:
    ids = [str(number) for number in range(MOST_ASKED + 100)]
    schedule = Schedule(news=True)
    for each in ids:
        schedule.add(each, 1.0)

    first, second = asked(schedule, 0.0), asked(schedule, 0.0)
    assert (len(first), len(second)) == (MOST_ASKED, 100)
    assert sorted(first + second) == sorted(ids)
    for each in ids:
        schedule.answered(each, 0.0, armed=True)

    assert schedule.due_at() == 1.0
    first, second = asked(schedule, 1.0), asked(schedule, 1.0)
    assert sorted(first + second) == sorted(ids)


def test_a_run_that_nobody_awaits_any_more_is_forgotten() -> None:
    schedule = waiting("a", "b")
    schedule.heard(["a"])
    schedule.remove("a")

    assert "a" not in schedule
    assert len(schedule) == 1
    assert asked(schedule, 1.0) == ["b"]
    schedule.answered("a", 1.0, armed=True)
    assert asked(schedule, 5.0) == []


def test_without_an_answer_it_is_asked_again_when_told() -> None:
    schedule = waiting("a")
    assert asked(schedule, 1.0) == ["a"]
    schedule.again(["a", "gone"], 3.0)

    assert asked(schedule, 2.0) == []
    assert asked(schedule, 3.0) == ["a"]
