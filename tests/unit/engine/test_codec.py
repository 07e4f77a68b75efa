"""Values and types: what the body sees is what a replay gives, and nothing is written that cannot be read."""

import datetime as dt
import enum
import json
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.engine.codec import Decoder, encode, same_input, takes_object
from perdure.errors import DecodingFailed, EncodingFailed, RegistrationError
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from tests.support.engine import Engine, output_of


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Size(enum.StrEnum):
    BIG = "big"


@dataclass
class Point:
    x: int
    data: bytes
    tags: set[str]


class Order(BaseModel):
    order_id: str = Field(alias="orderId")
    amount: Decimal
    placed: dt.datetime
    lines: list[Point] = []


class Pair(NamedTuple):
    a: int
    b: bytes


class Options(TypedDict):
    blob: bytes


class Unknown:
    pass


UTC = dt.UTC
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)

VALUES: list[tuple[Any, Any]] = [
    (int, 5),
    (int, 10**400),
    (float, 0.1),
    (float, -0.0),
    (str, "Zürich \U0001f600 \\u0000"),
    (bool, True),
    (None, None),
    (bytes, b"\xff\x00"),
    (Decimal, Decimal("1.10")),
    (uuid.UUID, uuid.UUID(int=7)),
    (dt.datetime, MOMENT),
    (dt.date, MOMENT.date()),
    (dt.time, MOMENT.time()),
    (dt.timedelta, dt.timedelta(days=1, microseconds=1)),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Size, Size.BIG),
    (set[str], {"a", "b"}),
    (frozenset[int], frozenset({1, 2})),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (list[Colour], [Colour.RED]),
    (dict[int, Decimal], {1: Decimal("2.5")}),
    (dict[uuid.UUID, bytes], {uuid.UUID(int=1): b"\xfe"}),
    (int | None, None),
    (int | str, "5"),
    (Point, Point(1, b"\xff", {"a"})),
    (list[Point], [Point(1, b"\xff", set())]),
    (Order, Order(orderId="o-1", amount=Decimal("4.20"), placed=MOMENT, lines=[Point(1, b"a", {"t"})])),
    (Pair, Pair(1, b"\xff")),
    (Options, {"blob": b"\xff"}),
    (Annotated[int, Field(gt=0)], 5),
    (Any, {"a": [1, 2.5, None, True, "x"]}),
]


@pytest.mark.parametrize(("hint", "value"), VALUES, ids=lambda value: type(value).__name__)
def test_a_value_of_every_supported_type_comes_back_as_it_was(hint, value):
    text, seen = Decoder(hint, "x").round_trip(value, "the result")
    again = Decoder(hint, "x").decode(text, "the result")
    assert seen == again == value
    assert type(seen) is type(again) is type(value)
    text.encode("ascii")


SEEN_AS = [
    (float, 1, 1.0, float),
    (int, "5", 5, int),
    (int, True, 1, int),
    (tuple[int, ...], [1, 2], (1, 2), tuple),
    (Any, (1, 2), [1, 2], list),
    (Any, Decimal("1.5"), "1.5", str),
    (Any, {1: 2}, {"1": 2}, dict),
    (dict, {1: 2}, {"1": 2}, dict),
    (Any, Size.BIG, "big", str),
    (Point, {"x": 1, "data": b"", "tags": []}, Point(1, b"", set()), Point),
]


@pytest.mark.parametrize(("hint", "value", "seen", "kind"), SEEN_AS, ids=lambda value: type(value).__name__)
def test_what_the_first_run_sees_is_what_the_replay_gives(hint, value, seen, kind):
    decoder = Decoder(hint, "x")
    text, first = decoder.round_trip(value, "the result")
    replayed = decoder.decode(text, "the result")
    assert first == replayed == seen
    assert type(first) is type(replayed) is kind


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_every_json_value_is_written_so_that_any_reader_reads_it_or_refused(value):
    try:
        text, seen = Decoder(Any, "x").round_trip(value, "the result")
    except EncodingFailed:
        assert any(char == "\0" or 0xD800 <= ord(char) <= 0xDFFF for char in _all_text(value))
        return
    assert json.loads(text) == value
    assert seen == value
    text.encode("ascii")
    assert "\0" not in json.dumps(json.loads(text), ensure_ascii=False)


def _all_text(value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "".join(map(_all_text, [*value, *value.values()]))
    return "".join(map(_all_text, value)) if isinstance(value, list) else ""


def test_a_decoding_error_names_the_value_the_type_and_the_place():
    with pytest.raises(DecodingFailed, match=r"the input is not Order: .*amount: .*valid decimal"):
        Decoder(Order, "x").decode('{"orderId": "a", "amount": "x", "placed": "2026-01-01T00:00:00Z"}', "the input")


def test_an_annotation_that_cannot_be_stored_is_refused_when_the_worker_starts(engine: Engine):
    @engine.step
    async def step() -> Unknown: ...

    with pytest.raises(RegistrationError, match="the result of step"):
        engine.registry.manifest()


def test_an_unknown_object_says_what_it_is():
    with pytest.raises(EncodingFailed, match="Unknown"):
        encode({"a": [Unknown()]}, "the result")


async def test_typed_arguments_of_a_run_are_decoded(engine: Engine):
    def check(order: Order, when: dt.date = dt.date(2026, 1, 1)):
        return [type(order).__name__, str(order.amount), order.placed.isoformat(), when.isoformat()]

    async def flow(order: Order, when: dt.date = dt.date(2026, 1, 1)) -> list[str]:
        return check(order, when)

    workflow = engine.workflow(flow)
    order = {"orderId": "o", "amount": "4.20", "placed": "2026-01-02T00:00:00Z"}
    seen = ["Order", "4.20", "2026-01-02T00:00:00+00:00"]
    for text in (
        json.dumps({"order": order}),
        json.dumps({"order": order, "when": "2026-01-01"}),
        json.dumps([order]),
        json.dumps([order, "2026-01-01"]),
    ):
        run = engine.run_of(workflow)
        run.input = text
        assert output_of(await engine.execute(run)) == [*seen, "2026-01-01"]


async def test_the_whole_input_object_may_be_the_only_parameter(engine: Engine):
    async def flow(order: Order) -> str:
        return order.order_id

    run = engine.run_of(engine.workflow(flow))
    run.input = '{"orderId": "o-7", "amount": 1, "placed": 0}'
    assert output_of(await engine.execute(run)) == "o-7"


async def test_an_object_for_a_plain_parameter_is_by_name_and_says_so(engine: Engine):
    async def flow(order_id: str): ...

    run = engine.run_of(engine.workflow(flow))
    run.input = '{"orderId": "o-7"}'
    error = (await engine.execute(run)).error
    assert "no parameter 'orderId'; it takes order_id" in error.message


@pytest.mark.parametrize(
    ("hint", "takes"),
    [
        (Order, True),
        (Point, True),
        (Options, True),
        (dict[str, int], True),
        (Any, True),
        (Order | None, True),
        (Annotated[Order, "x"], True),
        (str, False),
        (int | None, False),
        (list[Order], False),
        (Pair, False),
        (Colour, False),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_which_types_take_an_object(hint, takes):
    assert takes_object(hint) is takes


SAME = [
    ({"a": 1, "b": 2}, '{"b":2,"a":1}', True),
    ({"a": 1}, '{"a":1.0}', False),
    ({"a": 1}, '{"a":true}', False),
    ([1, 2], "[2,1]", False),
    ({1, 2, 3}, "[3,1,2]", True),
    ({1, 2, 3}, "[3,1,4]", False),
    ([{"x": {"b", "a"}}], '[{"x":["b","a"]}]', True),
    (Point(1, b"", {"b", "a", "c"}), '{"x":1,"data":"","tags":["c","b","a"]}', True),
    (Point(1, b"", {"b", "a", "c"}), '{"x":2,"data":"","tags":["c","b","a"]}', False),
    (Options(blob=b""), "[]", False),
    ([1], "{", False),
    ([1], "[1,1]", False),
]


@pytest.mark.parametrize(("value", "recorded", "same"), SAME, ids=lambda value: type(value).__name__)
def test_inputs_are_compared_by_meaning(value, recorded, same):
    assert same_input(value, encode(value, "x"), recorded) is same


def test_sets_inside_a_model_are_compared_without_order():
    order = Order(orderId="o", amount=Decimal(1), placed=MOMENT, lines=[Point(1, b"", {"b", "a", "c"})])
    text = encode(order, "x")
    data = json.loads(text)
    data["lines"][0]["tags"] = sorted(data["lines"][0]["tags"], reverse=True)
    assert same_input(order, text, json.dumps(data))


def test_bytes_of_a_model_that_are_no_text_are_refused_with_what_to_say_in_the_model():
    class Plain(BaseModel):
        data: bytes

    class Said(Plain):
        model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    with pytest.raises(EncodingFailed, match="ser_json_bytes='base64'"):
        encode(Plain(data=b"\xff"), "it")
    said = Said(data=b"\xff")
    assert Decoder(Said, "it").decode(encode(said, "it"), "it") == said
