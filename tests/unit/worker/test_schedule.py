"""When a status is written: the first change at once, then once an interval, the last always, only the newest."""

from perdure.worker.schedule import MAX_INTERVAL, MIN_INTERVAL, Schedule


def tracked(*ids: str) -> Schedule:
    schedule = Schedule()
    for run_id in ids:
        schedule.changed(run_id, "ns", run_id, final=False)
    return schedule


def test_the_first_change_is_due_at_once() -> None:
    schedule = tracked("a")
    assert schedule.next_due() == 0.0
    assert schedule.due(10.0, 5) == ["a"]
    assert schedule.due(10.0, 5) == []


def test_later_changes_wait_for_the_interval_and_collapse() -> None:
    schedule = tracked("a")
    schedule.due(10.0, 5)
    schedule.sent("a", 10.0)
    for _ in range(7):
        schedule.changed("a", "ns", "a", final=False)
    assert schedule.due(10.5, 5) == []
    assert schedule.next_due() == 10.0 + MIN_INTERVAL
    assert schedule.due(11.0, 5) == ["a"]


def test_the_last_change_does_not_wait_and_is_forgotten_when_sent() -> None:
    schedule = tracked("a")
    schedule.due(10.0, 5)
    schedule.sent("a", 10.0)
    schedule.changed("a", "ns", "a", final=True)
    assert schedule.due(10.1, 5) == ["a"]
    schedule.sent("a", 10.2)
    assert len(schedule) == 0


def test_a_change_during_a_write_is_written_afterwards() -> None:
    schedule = tracked("a")
    schedule.due(10.0, 5)
    schedule.changed("a", "ns", "a", final=True)
    assert schedule.due(10.0, 5) == []
    schedule.sent("a", 10.1)
    assert schedule.due(10.1, 5) == ["a"]


def test_nothing_is_written_when_nothing_changed() -> None:
    schedule = tracked("a")
    schedule.due(10.0, 5)
    schedule.sent("a", 10.0)
    assert schedule.next_due() is None
    assert schedule.due(99.0, 5) == []


def test_a_failed_write_comes_again_after_its_pause() -> None:
    schedule = tracked("a")
    schedule.due(10.0, 5)
    schedule.failed("a", 10.0, 4.0)
    assert schedule.due(13.9, 5) == []
    assert schedule.due(14.0, 5) == ["a"]


def test_an_overloaded_server_slows_everything_down_and_up_again() -> None:
    schedule = tracked("a", "b")
    schedule.due(0.0, 1)
    schedule.slow_down(0.0, retry_after=7.0)
    assert schedule.interval == 2 * MIN_INTERVAL
    assert schedule.due(6.9, 5) == []
    assert schedule.next_due() == 7.0
    assert schedule.due(7.0, 5) == ["b"]
    for _ in range(20):
        schedule.slow_down(0.0, None)
    assert schedule.interval == MAX_INTERVAL
    for _ in range(100):
        schedule.sent("b", 50.0)
    assert schedule.interval == MIN_INTERVAL


def test_a_dropped_run_is_not_written_any_more() -> None:
    schedule = tracked("a")
    schedule.due(0.0, 5)
    schedule.drop("a")
    schedule.sent("a", 1.0)
    schedule.failed("a", 1.0, 1.0)
    assert (len(schedule), schedule.next_due()) == (0, None)


def test_a_long_outage_costs_bounded_memory() -> None:
    schedule = Schedule(max_pending=3)
    schedule.changed("running", "ns", "running", final=False)
    for number in range(5):
        schedule.changed(f"f{number}", "ns", "x", final=True)
    assert len(schedule) == 3
    assert schedule.dropped == 3
    assert schedule.due(0.0, 9) == ["running", "f3", "f4"]
