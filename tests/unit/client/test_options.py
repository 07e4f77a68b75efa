"""What a start may say, and the ids that runs get."""

import json
import uuid
from datetime import timedelta
from typing import Any

import perdure
import pytest
from perdure.engine.registry import Registry
from perdure.errors import InvalidArgument, RegistrationError
from perdure.model.start import NO_TIMEOUT, StartOptions, attributes_text, new_run_id, positive_seconds


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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"reuse": "terminate"}, "reuse is one of return-existing, reject, rerun-failed, not 'terminate'"),
        ({"on_duplicate": "rerun-failed"}, "on_duplicate is one of return-existing, reject, not"),
        ({"deduplication_id": ""}, "deduplication_id must not be empty"),
        ({"deduplication_id": "d" * 256}, "deduplication_id has 256 characters, at most 255"),
        ({"attributes": ["a"]}, "attributes are a dict with texts as keys"),
        ({"attributes": {1: "a"}}, "the name of an attribute is a text, not 1"),
        ({"attributes": {"a": object()}}, "attributes cannot be written as JSON"),
        ({"attributes": {"a": float("nan")}}, "attributes cannot be written as JSON"),
        ({"attributes": {"a": "\x00"}}, "attributes hold a NUL character"),
        ({"attributes": {"a": "\ud800"}}, "half a surrogate pair"),
        ({"attributes": {"a": "x" * 16384}}, "bytes as JSON, at most 16384"),
    ],
)
def test_a_policy_a_duplicate_or_an_attribute_out_of_its_range_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        StartOptions(**options)
    assert says in refused.value.message


def test_attributes_may_hold_any_json_and_what_only_looks_like_a_nul() -> None:
    text = attributes_text({"a": [1, None, {"b": "\U0001f600"}], "c": "\\u0000"})
    assert json.loads(text) == {"a": [1, None, {"b": "\U0001f600"}], "c": "\\u0000"}


@pytest.mark.parametrize("reuse", ["reject", "rerun-failed"])
def test_a_reuse_policy_needs_an_id_which_may_be_said_later(reuse: Any) -> None:
    @perdure.workflow(name="w", registry=Registry())
    async def flow() -> None: ...

    careful = flow.options(reuse=reuse)
    with pytest.raises(InvalidArgument, match="needs an id"):
        careful.prepare()
    assert careful.options(id="mine").prepare().options.reuse == reuse


def test_what_to_do_with_a_duplicate_needs_a_deduplication_id() -> None:
    with pytest.raises(InvalidArgument, match="needs a deduplication_id"):
        StartOptions(on_duplicate="reject").check_whole()
    StartOptions(on_duplicate="reject", deduplication_id="d").check_whole()


def test_no_timeout_is_something_else_than_nothing_said() -> None:
    assert StartOptions(timeout=NO_TIMEOUT) != StartOptions()
    assert repr(NO_TIMEOUT) == "NO_TIMEOUT"
    assert StartOptions(timeout=NO_TIMEOUT).said() == {"timeout": "none"}


@pytest.mark.parametrize("options", [{"timeout": 0}, {"max_run_attempts": 0}, {"max_run_attempts": 101}])
def test_an_option_of_a_workflow_out_of_its_range_is_refused_when_it_is_registered(options: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError, match="w: "):

        @perdure.workflow(name="w", registry=Registry(), **options)
        async def flow() -> None: ...


def test_references_have_the_name_under_which_they_are_registered() -> None:
    @perdure.workflow(name="w", registry=Registry())
    async def flow() -> None: ...

    @perdure.step(name="s", registry=Registry())
    async def charge() -> None: ...

    assert (flow.name, flow.qualified_name, charge.name, charge.qualified_name) == ("w", "w", "s", "s")
    assert flow.options(id="x").name == "w"
