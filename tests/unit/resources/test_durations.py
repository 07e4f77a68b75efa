"""Durations: what is one, and how long it is."""

from datetime import timedelta

import pytest
from perdure.errors import InvalidResource
from perdure.resources.common import DURATION_MAX, DURATION_PATTERN, PositiveDuration, parse_duration
from pydantic import TypeAdapter, ValidationError


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("2d", timedelta(days=2)),
        ("250ms", timedelta(milliseconds=250)),
        ("1s500ms", timedelta(seconds=1.5)),
        ("0s", timedelta()),
        ("9999d99999h999999m99999999s9999999999ms", None),
    ],
)
def test_a_duration_is_a_sum_of_units(text: str, length: timedelta | None) -> None:
    if length is None:
        with pytest.raises(InvalidResource):
            parse_duration(text)
    else:
        assert parse_duration(text) == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        "30",
        "5 minutes",
        "1.5h",
        "-1s",
        "30m1h",
        "1h1h",
        "1w",
        "s",
        "1S",
        "1h\n",
        " 1h",
        "\u0661s",
        "99999d",
        "1h30",
    ],
)
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidResource, match="90s, 15m, 1h30m or 2d") as caught:
        parse_duration(text)
    assert caught.value.code == "PRD-201"


@pytest.mark.parametrize("text", ["0s", "0h0m", "000ms"])
def test_where_zero_makes_no_sense_it_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="longer than zero"):
        TypeAdapter(PositiveDuration).validate_python(text)


def test_the_longest_duration_can_be_added_to_any_date_of_this_century() -> None:
    longest = parse_duration("9999d99999h999999m99999999s")
    assert longest < timedelta(days=365 * 45)
    assert len("9999d99999h999999m99999999s") <= DURATION_MAX


def test_the_pattern_for_the_api_server_has_no_quote_and_no_backslash() -> None:
    """It stands inside a CEL string."""
    assert not set(DURATION_PATTERN) & {"'", '"', "\\"}
