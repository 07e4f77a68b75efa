"""What is stored of a value: JSON, or what layers of the application have made of it; and how it is read again."""

import asyncio
import base64
import json
from typing import Any

import pytest
from perdure.engine.codec import encode
from perdure.engine.encoding import LARGE, MAX_PAYLOAD_BYTES, PLAIN, PORTABLE
from perdure.engine.serialization import RESERVED, Serializers
from perdure.errors import (
    AlreadyRegistered,
    ConfigurationError,
    DecodingFailed,
    EncodingFailed,
    InvalidArgument,
    PayloadTooLarge,
    RegistrationError,
    UnknownSerialization,
)
from perdure.model.serialization import NUMBERS, Serialization, chosen, from_number
from pydantic import BaseModel, ConfigDict

WHAT = "the value"


class Hexed:
    """A serializer: JSON in hexadecimal digits."""

    name = "hexed"

    def serialize(self, value: Any) -> str:
        return json.dumps(value).encode().hex()

    def deserialize(self, text: str) -> Any:
        return json.loads(bytes.fromhex(text))


class Based:
    """A codec: base64."""

    name = "based"

    def encode(self, text: str) -> str | None:
        return base64.b64encode(text.encode()).decode()

    def decode(self, text: str) -> str:
        return base64.b64decode(text, validate=True).decode()


class Elsewhere(Based):
    """A codec that is called in threads."""

    name = "elsewhere"
    blocking = True


class Hexing(Based):
    """A heavy codec: hexadecimal digits."""

    heavy = True

    def __init__(self, name: str) -> None:
        self.name = name

    def encode(self, text: str) -> str | None:
        return text.encode().hex()

    def decode(self, text: str) -> str:
        return bytes.fromhex(text).decode()


class Lazy(Based):
    """A codec that leaves short texts alone."""

    name = "lazy"

    def encode(self, text: str) -> str | None:
        return None if len(text) < 20 else super().encode(text)


def known(*codecs: Any, serializer: Any = None) -> Serializers:
    return Serializers().with_own(serializer, codecs)


async def stored(serializers: Serializers, value: Any, choice: Serialization | None = None) -> str:
    return await serializers.write(encode(value, WHAT, serializers.encoding(choice)), WHAT, choice)


async def test_without_a_word_a_value_is_stored_as_its_json() -> None:
    serializers = Serializers()
    assert serializers.encoding(None) is PLAIN
    assert await stored(serializers, {"a": [1, None]}) == '{"a":[1,null]}'
    assert await serializers.fetch('{"a":[1,null]}', WHAT) == '{"a":[1,null]}'


@pytest.mark.parametrize("value", [None, True, 0, -1.5, "ä", [1, [2]], {"k": {"n": None}}, "!hexed:", ""])
async def test_what_a_serializer_has_written_says_so_and_comes_back(value: Any) -> None:
    serializers = known(serializer=Hexed())
    text = await stored(serializers, value)
    assert text.startswith("!hexed:")
    assert json.loads(await serializers.fetch(text, WHAT)) == value


async def test_codecs_write_in_their_order_and_are_read_from_the_outside() -> None:
    serializers = known(Based(), Elsewhere(), serializer=Hexed())
    text = await stored(serializers, [1])
    assert text.startswith("!elsewhere:")
    assert Elsewhere().decode(text.removeprefix("!elsewhere:")).startswith("!based:")
    assert await serializers.fetch(text, WHAT) == "[1]"


async def test_a_codec_that_leaves_a_text_alone_leaves_no_name() -> None:
    serializers = known(Lazy())
    assert await stored(serializers, "short") == '"short"'
    assert (await stored(serializers, "x" * 20)).startswith("!lazy:")


async def test_a_codec_that_talks_to_something_outside_works_beside_the_loop() -> None:
    loops: list[bool] = []

    class Spying(Elsewhere):
        def encode(self, text: str) -> str | None:
            loops.append(asyncio._get_running_loop() is None)
            return super().encode(text)

        def decode(self, text: str) -> str:
            loops.append(asyncio._get_running_loop() is None)
            return super().decode(text)

    serializers = known(Spying())
    assert await serializers.fetch(await stored(serializers, 1), WHAT) == "1"
    assert loops == [True, True]


class Watched(Based):
    """A codec that knows which of its calls were on the loop."""

    def __init__(self, name: str, *, heavy: bool) -> None:
        self.name, self.heavy = name, heavy
        self.on_loop: list[bool] = []

    def encode(self, text: str) -> str | None:
        self.on_loop.append(asyncio._get_running_loop() is not None)
        return super().encode(text)

    def decode(self, text: str) -> str:
        self.on_loop.append(asyncio._get_running_loop() is not None)
        return super().decode(text)


@pytest.mark.parametrize(("size", "on_loop"), [(LARGE - 3, True), (LARGE, False)])
async def test_a_heavy_codec_has_large_values_beside_the_loop_and_small_ones_at_once(size: int, on_loop: bool) -> None:
    first, second = Watched("first", heavy=True), Watched("second", heavy=True)
    serializers = known(first, second)
    text = await stored(serializers, "x" * (size - 2))
    assert text.startswith("!second:")
    assert first.on_loop == second.on_loop == [on_loop]
    assert await serializers.fetch(text, WHAT) == json.dumps("x" * (size - 2))
    assert first.on_loop[0] is on_loop


async def test_a_codec_that_knows_no_threads_stays_on_the_loop_with_those_before_it() -> None:
    heavy, own = Watched("heavy", heavy=True), Watched("own", heavy=False)
    serializers = known(heavy, own)
    text = await stored(serializers, "x" * LARGE)
    assert await serializers.fetch(text, WHAT) == json.dumps("x" * LARGE)
    assert own.on_loop == [True, True]
    assert heavy.on_loop[0] is True


async def test_of_a_large_value_no_codec_is_left_out_and_none_comes_twice() -> None:
    serializers = known(Hexing("a"), Based(), Watched("b", heavy=True), Elsewhere())
    text = await stored(serializers, "x" * LARGE)
    layers = []
    while text[:1] == "!":
        name, _, rest = text[1:].partition(":")
        layers.append(name)
        text = bytes.fromhex(rest).decode() if name == "a" else base64.b64decode(rest).decode()
    assert layers == ["elsewhere", "b", "based", "a"]
    assert text == json.dumps("x" * LARGE)


async def test_all_that_are_known_read_and_those_in_use_write() -> None:
    serializers = Serializers()
    serializers.add(Hexed())
    serializers.add_codec(Based())
    assert await stored(serializers, 1) == "1"
    assert await serializers.fetch(f"!hexed:{Hexed().serialize(1)}", WHAT) == "1"
    serializers.use("hexed", ["based"])
    assert (await stored(serializers, 1)).startswith("!based:")


@pytest.mark.parametrize("choice", [Serialization.NATIVE, Serialization.PORTABLE])
async def test_native_and_portable_are_json_whatever_is_configured(choice: Serialization) -> None:
    serializers = known(Based(), serializer=Hexed())
    assert await stored(serializers, [b"\xff"], choice) == '["_w=="]'


async def test_an_unknown_name_is_an_error_of_its_own() -> None:
    with pytest.raises(UnknownSerialization, match="other") as caught:
        await Serializers().fetch("!other:abc", WHAT)
    assert caught.value.name == "other"
    assert not caught.value.retryable


@pytest.mark.parametrize("text", ["!", "!:x", "!UPPER:x", "!no end", "! hexed:x", f"!{'n' * 64}:x"])
async def test_what_begins_like_a_name_and_is_none_cannot_be_read(text: str) -> None:
    with pytest.raises(DecodingFailed, match="begins with"):
        await known(serializer=Hexed()).fetch(text, WHAT)


async def test_names_without_end_are_no_value() -> None:
    class Same:
        name = "same"

        def encode(self, text: str) -> str:
            return text

        def decode(self, text: str) -> str:
            return "!same:x"

    with pytest.raises(DecodingFailed, match="names before it"):
        await known(Same()).fetch("!same:x", WHAT)


@pytest.mark.parametrize("made", ["a\x00b", "a\x1fb", "a\ud800b"])
async def test_what_cannot_be_stored_is_refused_where_it_is_written(made: str) -> None:
    class Bad(Hexed):
        def serialize(self, value: Any) -> str:
            return made

        def deserialize(self, text: str) -> Any:
            return 1

    with pytest.raises(EncodingFailed, match="NUL, a unit separator"):
        await stored(known(serializer=Bad()), 1)


@pytest.mark.parametrize("made", [b"bytes", None, 7])
async def test_a_serializer_writes_text(made: Any) -> None:
    class Bad(Hexed):
        def serialize(self, value: Any) -> str:
            return made  # type: ignore[no-any-return]

        def deserialize(self, text: str) -> Any:
            return 1

    with pytest.raises(EncodingFailed):
        await stored(known(serializer=Bad()), 1)


@pytest.mark.parametrize(
    ("given", "back"), [(1, 1.0), (1, True), ([1], (1,)), ({"a": 1}, {"a": 1, "b": 2}), ("x", b"x")]
)
async def test_a_serializer_that_reads_back_something_else_is_found_when_it_writes(given: Any, back: Any) -> None:
    class Lossy(Hexed):
        def deserialize(self, text: str) -> Any:
            return back

    with pytest.raises(EncodingFailed, match="reads back another value"):
        await stored(known(serializer=Lossy()), given)


async def test_errors_of_a_serializer_are_ours_and_name_it() -> None:
    class Broken(Hexed):
        def serialize(self, value: Any) -> str:
            raise ZeroDivisionError("no")

    with pytest.raises(EncodingFailed, match="serializer hexed: ZeroDivisionError: no"):
        await stored(known(serializer=Broken()), 1)
    with pytest.raises(DecodingFailed, match="serializer hexed: ValueError"):
        await known(serializer=Hexed()).fetch("!hexed:zz", WHAT)


async def test_errors_of_a_codec_are_ours_and_name_it() -> None:
    class Broken(Based):
        def encode(self, text: str) -> str | None:
            raise KeyError("k1")

    with pytest.raises(EncodingFailed, match="codec based: KeyError"):
        await stored(known(Broken()), 1)
    with pytest.raises(DecodingFailed, match="codec based"):
        await known(Based()).fetch("!based:***", WHAT)


async def test_what_is_stored_is_bounded_and_not_what_codecs_shorten() -> None:
    class Short(Based):
        name = "short"

        def encode(self, text: str) -> str | None:
            return text[:10]

    large = "x" * MAX_PAYLOAD_BYTES
    with pytest.raises(PayloadTooLarge):
        await stored(Serializers(), large)
    with pytest.raises(PayloadTooLarge, match="as it is stored"):
        await stored(known(Based()), large)
    assert await stored(known(Short()), large) == f'!short:"{"x" * 9}'


@pytest.mark.parametrize(
    "name", ["", "UPPER", "with space", "a:b", "!", "x" * 64, "perdure", "perdure.x", *sorted(RESERVED)]
)
def test_a_name_that_cannot_be_used_is_refused(name: str) -> None:
    serializer = Hexed()
    serializer.name = name
    with pytest.raises(RegistrationError):
        Serializers().add(serializer)
    codec = Based()
    codec.name = name
    with pytest.raises(RegistrationError):
        Serializers().add_codec(codec)


@pytest.mark.parametrize("given", [None, "hexed", object(), Hexed, Based()])
def test_what_is_no_serializer_is_refused(given: Any) -> None:
    if given is Hexed:
        given = type("NoMethods", (), {"name": "hexed"})()
    with pytest.raises(RegistrationError):
        Serializers().add(given)


def test_two_of_one_name_are_refused_and_one_twice_is_not() -> None:
    serializers, one = Serializers(), Hexed()
    serializers.add(one)
    serializers.add(one)
    with pytest.raises(AlreadyRegistered, match="hexed"):
        serializers.add(Hexed())


@pytest.mark.parametrize(("serializer", "codecs"), [("nobody", []), ("", ["nobody"]), ("based", []), ("", ["hexed"])])
def test_only_what_is_registered_can_be_used(serializer: str, codecs: list[str]) -> None:
    serializers = Serializers()
    serializers.add(Hexed())
    serializers.add_codec(Based())
    with pytest.raises(ConfigurationError, match="registered are"):
        serializers.use(serializer, codecs)


def test_ones_own_come_beside_those_that_are_known_and_take_their_names() -> None:
    serializers, mine = Serializers(), Hexed()
    serializers.add(Hexed())
    serializers.add_codec(Based())
    own = serializers.with_own(mine, ())
    assert own is not serializers
    assert own.read(f"!based:{Based().encode('1')}", WHAT) == "1"
    assert serializers.with_own(None, ()) is serializers


# -- portable


class Part(BaseModel):
    model_config = ConfigDict(extra="allow")
    by_number: dict[int, str] = {}


@pytest.mark.parametrize("value", [{1: "a"}, [{None: 1}], {"a": {(1, 2): 3}}, Part(by_number={1: "x"}), {True: 1}])
def test_a_key_that_is_no_text_is_not_portable(value: Any) -> None:
    with pytest.raises(EncodingFailed, match="keys are texts"):
        encode(value, WHAT, PORTABLE)
    assert encode(value, WHAT)


@pytest.mark.parametrize("number", [2**53, -(2**53), 10**30])
def test_a_number_that_others_read_as_another_is_not_portable(number: int) -> None:
    assert encode([number - 1 if number == 2**53 else 1], WHAT, PORTABLE)
    with pytest.raises(EncodingFailed, match=r"2\*\*53"):
        encode({"deep": [number]}, WHAT, PORTABLE)


def test_what_is_portable_is_the_same_text_as_typed_json() -> None:
    value = {"when": [1, 2.5, None, True, "ä", b"\x00\xff"], "set": {1}, "pair": (1, "x")}
    assert encode(value, WHAT, PORTABLE) == encode(value, WHAT)


# -- the choice


def test_a_choice_is_said_by_name_or_value_and_default_is_none() -> None:
    assert chosen("portable") is Serialization.PORTABLE
    assert chosen(Serialization.NATIVE) is Serialization.NATIVE
    assert chosen("default") is chosen(None) is None
    with pytest.raises(InvalidArgument, match="default, portable, native"):
        chosen("pickle")  # type: ignore[arg-type]


def test_each_choice_has_a_number_and_unknown_numbers_are_none() -> None:
    assert [from_number(NUMBERS[each]) for each in (None, Serialization.PORTABLE, Serialization.NATIVE)] == [
        None,
        Serialization.PORTABLE,
        Serialization.NATIVE,
    ]
    assert from_number(99) is None
