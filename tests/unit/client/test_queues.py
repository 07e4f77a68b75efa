"""What cannot be the limits of a queue is refused before anything is asked of the database."""

from datetime import timedelta
from typing import Any

import perdure
import pytest
from perdure import QueueLimits, RateLimit
from perdure.model.queues import LIMIT_MAX

URL = "postgresql://nobody@127.0.0.1:1/nowhere"


@pytest.mark.parametrize("field", ["concurrency", "worker_concurrency", "partition_concurrency"])
@pytest.mark.parametrize("value", [0, -1, LIMIT_MAX + 1, 1.5, "3", True])
def test_a_limit_that_is_no_whole_number_above_zero_is_refused(field: str, value: Any) -> None:
    with pytest.raises(perdure.InvalidArgument, match=field):
        QueueLimits(**{field: value})


@pytest.mark.parametrize(
    ("runs", "period", "says"),
    [
        (0, 1, "runs must be"),
        (True, 1, "runs is a whole number"),
        (1.5, 1, "runs is a whole number"),
        (1, 0, "period must be longer than zero"),
        (1, timedelta(0), "period must be longer than zero"),
        (1, -1.0, "period must be longer than zero"),
        (1, float("nan"), "period must be longer than zero"),
        (1, "1m", "period is a number of seconds"),
    ],
)
def test_a_rate_of_nothing_or_in_no_time_is_refused(runs: Any, period: Any, says: str) -> None:
    with pytest.raises(perdure.InvalidArgument, match=says):
        RateLimit(runs, period)


def test_a_rate_is_a_rate_and_not_a_number() -> None:
    limits: Any = {"rate": 5}
    with pytest.raises(perdure.InvalidArgument, match="rate is a RateLimit"):
        QueueLimits(**limits)


def test_a_period_is_the_same_in_seconds_and_as_a_timedelta() -> None:
    assert RateLimit(5, timedelta(minutes=1)) == RateLimit(5, 60)
    assert RateLimit(5, timedelta(minutes=1)).seconds == 60.0


@pytest.mark.parametrize("verb", ["apply", "create", "get", "pause", "resume", "delete"])
@pytest.mark.parametrize("name", ["", "x" * 64, "a\nb", None, 7])
async def test_what_cannot_be_the_name_of_a_queue_is_refused(verb: str, name: Any) -> None:
    async with perdure.Client(URL, listen=False) as client:
        with pytest.raises(perdure.InvalidArgument, match="name of a queue"):
            await getattr(client.queues, verb)(name)


@pytest.mark.parametrize("verb", ["apply", "create"])
async def test_options_out_of_range_are_refused(verb: str) -> None:
    async with perdure.Client(URL, listen=False) as client:
        with pytest.raises(perdure.InvalidArgument, match="concurrency must be 1"):
            await getattr(client.queues, verb)("orders", concurrency=0)
        with pytest.raises(perdure.InvalidArgument, match="paused is True or False"):
            await getattr(client.queues, verb)("orders", paused="yes")
