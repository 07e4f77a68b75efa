"""What a start may say, and the ids that runs get."""

import uuid
from datetime import timedelta
from typing import Any

import perdure
import pytest
from perdure.engine.registry import Registry
from perdure.errors import InvalidArgument
from perdure.model.start import StartOptions, new_run_id, positive_seconds


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"id": ""}, "id must not be empty"),
        ({"id": "x" * 256}, "id has 256 characters, at most 255"),
        ({"id": "a\x00b"}, "id holds a character that is not printable"),
        ({"id": "a\nb"}, "id holds a character that is not printable"),
        ({"id": "\ud800"}, "id holds a character that is not printable"),
        ({"id": 7}, "id is a text, not 7"),
        ({"queue": ""}, "queue must not be empty"),
        ({"queue": "q" * 64}, "queue has 64 characters, at most 63"),
        ({"pool": "p\x00"}, "pool holds a character"),
        ({"partition_key": "k" * 256}, "partition_key has 256 characters, at most 255"),
        ({"priority": 0}, "priority must be 1 to"),
        ({"priority": -1}, "priority must be 1 to"),
        ({"priority": 2**31}, "priority must be 1 to"),
        ({"priority": 1.5}, "priority is a whole number"),
        ({"priority": True}, "priority is a whole number"),
        ({"timeout": 0}, "timeout must be longer than zero"),
        ({"timeout": -1}, "timeout must be longer than zero"),
        ({"timeout": timedelta()}, "timeout must be longer than zero"),
        ({"timeout": float("nan")}, "timeout must be longer than zero"),
        ({"timeout": float("inf")}, "timeout must be longer than zero"),
        ({"timeout": "1s"}, "timeout is a number of seconds or a timedelta"),
        ({"delay": 0.0}, "delay must be longer than zero"),
        ({"delay": timedelta(seconds=-1)}, "delay must be longer than zero"),
        ({"delay": True}, "delay is a number of seconds or a timedelta"),
    ],
)
def test_an_option_out_of_its_range_is_refused_with_a_sentence(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        StartOptions(**options)
    assert says in refused.value.message


@pytest.mark.parametrize(
    "options",
    [
        {"id": "x"},
        {"id": "order 1001 / Zürich"},
        {"id": "x" * 255},
        {"priority": 1},
        {"priority": 2**31 - 1},
        {"timeout": 0.001},
        {"timeout": timedelta(days=36500)},
        {"delay": 1},
    ],
)
def test_an_option_in_its_range_is_taken(options: dict[str, Any]) -> None:
    StartOptions(**options)


def test_lengths_of_time_are_seconds_or_timedeltas() -> None:
    assert positive_seconds("timeout", 1.5) == 1.5
    assert positive_seconds("timeout", timedelta(minutes=2)) == 120.0


def test_options_are_added_to_earlier_ones_and_leave_the_workflow_as_it_was() -> None:
    @perdure.workflow(name="w", registry=Registry())
    async def flow() -> None: ...

    urgent = flow.options(queue="urgent", priority=1)
    mine = urgent.options(id="mine", priority=2)

    assert mine.start_options == StartOptions(id="mine", queue="urgent", priority=2)
    assert urgent.start_options == StartOptions(queue="urgent", priority=1)
    assert flow.start_options == StartOptions()
    assert mine.definition is flow.definition


def test_new_ids_are_unique_and_begin_with_the_time() -> None:
    ids = [new_run_id() for _ in range(1000)]

    assert len(set(ids)) == 1000
    assert {uuid.UUID(each).version for each in ids} == {7}
    assert {uuid.UUID(each).variant for each in ids} == {uuid.RFC_4122}
    milliseconds = [uuid.UUID(each).int >> 80 for each in ids]
    assert milliseconds == sorted(milliseconds)
