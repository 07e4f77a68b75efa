"""What a schedule does with ticks that have come: what overlaps, what is made up for, what is spread."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from perdure.model.firing import MOST_CAUGHT_UP, Firing, Standing, due_at, fire
from perdure.model.schedules import CatchUp, Overlap, Rule, run_id_of_tick

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
RULE = Rule("0 * * * *", "UTC", Overlap.ALLOW, CatchUp.LATEST, 6 * 3600.0, 0.0)


def schedule(decided: datetime = NOON - HOUR, queued: datetime | None = None, **rule: Any) -> Standing:
    return Standing("ns", "hourly", replace(RULE, **rule), decided, queued)


def look(standing: Standing, after: timedelta = timedelta(seconds=1), *, busy: bool = False) -> Firing:
    """At so long after noon."""
    return fire(standing, NOON + after, busy=busy)


def test_a_tick_that_has_come_starts_its_run_and_the_next_is_known() -> None:
    firing = look(schedule())
    assert (firing.start, firing.skipped, firing.missed) == ((NOON,), 0, 0)
    assert firing.decided == NOON
    assert firing.next_tick == firing.next_at == NOON + HOUR


def test_before_its_first_tick_a_schedule_starts_nothing() -> None:
    made_at = NOON - timedelta(minutes=10)
    firing = fire(schedule(made_at), made_at + timedelta(seconds=1), busy=False)
    assert (firing.start, firing.decided, firing.next_at) == ((), made_at, NOON)


def test_a_settled_tick_starts_nothing_again() -> None:
    assert look(schedule(NOON)).start == ()


# -- catching up: five ticks have come, the last half an hour ago

LATE = timedelta(minutes=30)
FIVE = [NOON - n * HOUR for n in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize(
    ("catch_up", "started"),
    [(CatchUp.NONE, []), (CatchUp.LATEST, FIVE[-1:]), (CatchUp.ALL, FIVE)],
)
def test_what_nobody_started_in_time_is_made_up_for_as_the_policy_says(
    catch_up: CatchUp, started: list[datetime]
) -> None:
    firing = look(schedule(NOON - 5 * HOUR, catch_up=catch_up), LATE)
    assert list(firing.start) == started
    assert firing.missed == 5 - len(started)
    assert (firing.decided, firing.next_at) == (NOON, NOON + HOUR)


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_a_tick_of_less_than_a_minute_ago_is_in_time_for_every_policy(catch_up: CatchUp) -> None:
    firing = look(schedule(catch_up=catch_up, window=1.0), timedelta(seconds=59))
    assert (firing.start, firing.missed) == ((NOON,), 0)


@pytest.mark.parametrize(("catch_up", "started"), [(CatchUp.LATEST, []), (CatchUp.ALL, [])])
def test_what_is_longer_ago_than_the_window_is_missed(catch_up: CatchUp, started: list[datetime]) -> None:
    firing = look(schedule(NOON - 5 * HOUR, catch_up=catch_up, window=600.0), LATE)
    assert (list(firing.start), firing.missed) == (started, 5)


def test_the_window_bounds_how_many_are_made_up_for() -> None:
    firing = look(schedule(NOON - 5 * HOUR, catch_up=CatchUp.ALL, window=2 * 3600.0), LATE)
    assert (list(firing.start), firing.missed) == (FIVE[-2:], 3)


def test_after_an_outage_of_a_year_no_flood_comes() -> None:
    year = schedule(NOON - timedelta(days=365), cron="* * * * *", catch_up=CatchUp.ALL, window=366 * 86400.0)
    firing = look(year)
    assert len(firing.start) == MOST_CAUGHT_UP
    assert firing.start[-1] == firing.decided == NOON


# -- overlap

BEFORE = NOON - HOUR


@pytest.mark.parametrize(
    ("overlap", "busy", "started", "queued", "cancel", "skipped"),
    [
        (Overlap.ALLOW, False, [NOON], None, False, 0),
        (Overlap.ALLOW, True, [NOON], None, False, 0),
        (Overlap.SKIP, False, [NOON], None, False, 0),
        (Overlap.SKIP, True, [], None, False, 1),
        (Overlap.CANCEL_PREVIOUS, False, [NOON], None, False, 0),
        (Overlap.CANCEL_PREVIOUS, True, [], NOON, True, 0),
        (Overlap.QUEUE_ONE, False, [NOON], None, False, 0),
        (Overlap.QUEUE_ONE, True, [], NOON, False, 0),
    ],
)
def test_a_tick_beside_a_run_that_has_not_ended(
    overlap: Overlap, busy: bool, started: list[datetime], queued: datetime | None, cancel: bool, skipped: int
) -> None:
    firing = look(schedule(overlap=overlap), busy=busy)
    assert (list(firing.start), firing.queued, firing.cancel, firing.skipped) == (started, queued, cancel, skipped)


@pytest.mark.parametrize("overlap", [Overlap.CANCEL_PREVIOUS, Overlap.QUEUE_ONE])
def test_a_tick_that_waits_starts_when_the_run_has_ended(overlap: Overlap) -> None:
    waiting = schedule(NOON, BEFORE, overlap=overlap)
    assert look(waiting, busy=True).queued == BEFORE
    assert not look(waiting, busy=True).cancel
    firing = look(waiting)
    assert (firing.start, firing.queued, firing.skipped, firing.decided) == ((BEFORE,), None, 0, NOON)


def test_while_one_waits_further_ones_start_nothing() -> None:
    firing = look(schedule(queued=BEFORE, overlap=Overlap.QUEUE_ONE), busy=True)
    assert (firing.start, firing.queued, firing.skipped) == ((), BEFORE, 1)


def test_the_newest_waits_for_what_is_cancelled() -> None:
    firing = look(schedule(queued=BEFORE, overlap=Overlap.CANCEL_PREVIOUS), busy=True)
    assert (firing.start, firing.queued, firing.cancel, firing.skipped) == ((), NOON, True, 1)


@pytest.mark.parametrize(
    ("overlap", "started", "queued", "skipped"),
    [
        (Overlap.SKIP, FIVE[:1], None, 4),
        (Overlap.QUEUE_ONE, FIVE[:1], FIVE[1], 3),
        (Overlap.CANCEL_PREVIOUS, FIVE[-1:], None, 4),
    ],
)
def test_ticks_that_are_made_up_for_overlap_each_other(
    overlap: Overlap, started: list[datetime], queued: datetime | None, skipped: int
) -> None:
    firing = look(schedule(NOON - 5 * HOUR, overlap=overlap, catch_up=CatchUp.ALL), LATE)
    assert (list(firing.start), firing.queued, firing.skipped) == (started, queued, skipped)


def test_a_tick_that_waited_under_another_policy_is_not_lost() -> None:
    assert look(schedule(NOON, BEFORE, overlap=Overlap.ALLOW)).start == (BEFORE,)


# -- jitter


def test_jitter_delays_a_run_by_the_same_time_in_every_process() -> None:
    spread = schedule(jitter=600.0)
    assert due_at(spread, NOON) == due_at(schedule(jitter=600.0), NOON)
    assert NOON <= due_at(spread, NOON) < NOON + timedelta(minutes=10)
    ticks = [NOON + n * HOUR for n in range(24)]
    assert len({due_at(spread, tick) - tick for tick in ticks}) > 20


def test_a_tick_starts_nothing_before_its_jitter_is_over_and_is_late_only_after_it() -> None:
    spread = schedule(jitter=600.0, catch_up=CatchUp.NONE)
    when = due_at(spread, NOON)
    early = fire(spread, when - timedelta(seconds=1), busy=False)
    assert (early.start, early.next_tick, early.next_at) == ((), NOON, when)
    assert fire(spread, when + timedelta(seconds=1), busy=False).start == (NOON,)


def test_jitter_longer_than_the_interval_loses_no_tick() -> None:
    spread = schedule(NOON, cron="* * * * *", jitter=600.0, catch_up=CatchUp.ALL)
    started: list[datetime] = []
    for second in range(0, 2000, 20):
        firing = fire(spread, NOON + timedelta(seconds=second), busy=False)
        started += firing.start
        spread = replace(spread, decided=firing.decided)
    assert started == [NOON + timedelta(minutes=n) for n in range(1, len(started) + 1)]
    assert len(started) > 15


def test_the_tick_and_not_its_jitter_is_what_the_id_stands_for() -> None:
    assert run_id_of_tick("ns", "hourly", NOON) == "schedule:ns/hourly/2026-06-01T12:00:00Z"
