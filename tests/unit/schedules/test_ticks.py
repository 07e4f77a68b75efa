"""When cron expressions tick: over both changes of clocks, over years without anybody, and what is refused."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.errors import InvalidArgument
from perdure.model.ticks import check, latest_ticks, next_tick, ticks, ticks_within

BERLIN = "Europe/Berlin"
SPRING = "2026-03-29"
"""02:00 to 03:00 is left out in Berlin, at 01:00 UTC."""
AUTUMN = "2026-10-25"
"""02:00 to 03:00 comes twice in Berlin: from 00:00 and from 01:00 UTC."""


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def first(cron: str, zone: str, after: str, count: int) -> list[str]:
    found = islice(ticks(cron, zone, at(after)), count)
    return [f"{tick:%Y-%m-%d %H:%M}" for tick in found]


def test_a_time_that_clocks_leave_out_ticks_as_soon_as_the_gap_is_over() -> None:
    assert first("30 2 * * *", BERLIN, "2026-03-28", 3) == [
        "2026-03-28 01:30",
        "2026-03-29 01:00",
        "2026-03-30 00:30",
    ]


def test_several_times_in_the_gap_tick_once() -> None:
    assert first("15,45 2 * * *", BERLIN, SPRING, 2) == ["2026-03-29 01:00", "2026-03-30 00:15"]


def test_a_time_that_comes_twice_ticks_the_first_time_only() -> None:
    assert first("30 2 * * *", BERLIN, "2026-10-24", 3) == [
        "2026-10-24 00:30",
        "2026-10-25 00:30",
        "2026-10-26 01:30",
    ]


def test_a_time_that_comes_twice_does_not_tick_again_for_who_asks_in_between() -> None:
    assert first("30 2 * * *", BERLIN, "2026-10-25T01:10", 1) == ["2026-10-26 01:30"]


def test_a_gap_at_midnight_moves_that_day_to_its_end() -> None:
    assert first("0 0 * * *", "Africa/Cairo", "2026-04-22", 3) == [
        "2026-04-22 22:00",
        "2026-04-23 22:00",
        "2026-04-24 21:00",
    ]


@pytest.mark.parametrize("day", [SPRING, AUTUMN])
def test_every_so_often_goes_by_the_time_that_passes(day: str) -> None:
    found = list(islice(ticks("*/30 * * * *", BERLIN, at(day)), 10))
    assert {after - before for before, after in pairwise(found)} == {timedelta(minutes=30)}


@pytest.mark.parametrize(("day", "hours"), [(SPRING, 23), (AUTUMN, 25), ("2026-06-01", 24)])
def test_every_hour_is_once_for_each_hour_that_passes(day: str, hours: int) -> None:
    begin = at(day) - timedelta(hours=2 if day != SPRING else 1)
    end = at(day) + timedelta(hours=22 if day != AUTUMN else 23) - timedelta(minutes=1)
    assert len(ticks_within("0 * * * *", BERLIN, begin, end, 100)) == hours


def test_the_zone_says_when_a_day_begins() -> None:
    assert first("0 0 * * *", "Asia/Tokyo", "2026-06-01", 1) == ["2026-06-01 15:00"]
    assert first("0 0 * * *", "UTC", "2026-06-01", 1) == ["2026-06-02 00:00"]


def test_a_tick_is_later_than_the_time_after_which_it_is_asked_for() -> None:
    assert first("0 12 * * *", "UTC", "2026-06-01T12:00", 1) == ["2026-06-02 12:00"]
    assert first("0 12 * * *", "UTC", "2026-06-01T11:59:59.5", 1) == ["2026-06-01 12:00"]


def test_ticks_within_have_both_ends() -> None:
    found = ticks_within("*/10 * * * *", "UTC", at("2026-06-01T12:00"), at("2026-06-01T12:20"), 100)
    assert [tick.minute for tick in found] == [0, 10, 20]


def test_the_latest_ticks_after_years_cost_no_walk_over_them() -> None:
    """Half a million ticks lie between; a walk over them would take seconds."""
    found = latest_ticks("* * * * *", BERLIN, at("1990-01-01"), at("2026-06-01T12:00:30"), 3)
    assert [f"{tick:%H:%M}" for tick in found] == ["11:58", "11:59", "12:00"]


def test_the_latest_ticks_of_a_rare_expression_are_found_years_back() -> None:
    found = latest_ticks("0 0 29 2 *", "UTC", at("2015-01-01"), at("2026-06-01"), 2)
    assert [f"{tick:%Y-%m-%d}" for tick in found] == ["2020-02-29", "2024-02-29"]


@pytest.mark.parametrize(
    ("cron", "zone", "said"),
    [
        ("* * * *", "UTC", "5 fields"),
        ("0 * * * * *", "UTC", "5 fields"),
        ("@daily", "UTC", "5 fields"),
        ("", "UTC", "5 fields"),
        ("61 2 * * *", "UTC", "cannot be read"),
        ("a b c d e", "UTC", "cannot be read"),
        ("0 0 30 2 *", "UTC", "cannot be read|never"),
        ("* " * 300, "UTC", "at most 255"),
        (None, "UTC", "is a text"),
        ("0 0 * * *", "Mars/Base", "no time zone"),
        ("0 0 * * *", "", "no time zone"),
        ("0 0 * * *", "../etc/passwd", "no time zone"),
        ("0 0 * * *", "Europe", "no time zone"),
        ("0 0 * * *", None, "no time zone"),
    ],
)
def test_what_cannot_be_a_rule_is_refused_with_a_sentence(cron: str, zone: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        check(cron, zone)


FIELDS = [
    st.sampled_from(["*", "*/7", "0", "30", "15,45", "59"]),
    st.sampled_from(["*", "*/3", "0", "1", "2", "23", "1,2,3"]),
    st.sampled_from(["*", "1", "31", "*/5"]),
    st.sampled_from(["*", "3", "10", "4,9,10,11"]),
    st.sampled_from(["*", "0", "MON-FRI"]),
]
CRON = st.tuples(*FIELDS).map(" ".join)
ZONES = st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Santiago"])
INSTANTS = st.integers(0, 3 * 366 * 86400).map(lambda seconds: at("2024-01-01") + timedelta(seconds=seconds))


@given(CRON, ZONES, INSTANTS)
def test_ticks_rise_are_whole_minutes_and_the_same_from_wherever_one_begins(
    cron: str, zone: str, after: datetime
) -> None:
    found = list(islice(ticks(cron, zone, after), 12))
    assert all(earlier < later for earlier, later in pairwise([after, *found]))
    assert all((tick.second, tick.microsecond, tick.tzinfo) == (0, 0, UTC) for tick in found)
    for number, tick in enumerate(found[:-1]):
        assert next_tick(cron, zone, tick) == found[number + 1]


@given(CRON, ZONES, INSTANTS, st.integers(1, 5))
def test_the_latest_ticks_are_the_last_of_all(cron: str, zone: str, after: datetime, most: int) -> None:
    until = after + timedelta(days=3)
    everything = ticks_within(cron, zone, after + timedelta(microseconds=1), until, 10_000)
    assert latest_ticks(cron, zone, after, until, most) == everything[-most:]
