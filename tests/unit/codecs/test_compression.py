"""Compression: what is worth it, and what is no compressed text."""

import zlib
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.codecs import Compression
from perdure.codecs.armor import PIECE, armored, bare
from perdure.engine.encoding import MAX_BEFORE_BYTES
from perdure.errors import DecodingFailed, InvalidArgument


def packed(data: bytes) -> str:
    return b64encode(zlib.compress(data)).decode()


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=3000))
def test_every_text_comes_back_and_is_shorter_or_left_alone(text: str) -> None:
    codec = Compression(at_least=0)
    made = codec.encode(text)
    if made is not None:
        assert len(made) < len(text)
        assert made.isascii()
        assert codec.decode(made) == text


def test_what_is_small_or_does_not_get_shorter_stays_as_it_is() -> None:
    assert Compression().encode("x" * 1023) is None
    assert len(Compression().encode("x" * 1024) or "") < 100
    assert Compression(at_least=1).encode("abc") is None


@pytest.mark.parametrize(
    "text",
    ["", "no base64!", "AAAA", packed(b"x")[:-4], packed(b"x") + "AAAA", packed(b"\xff"), "ä"],
    ids=["empty", "text", "other", "cut", "more", "no text", "not ASCII"],
)
def test_what_was_not_compressed_so_is_refused(text: str) -> None:
    with pytest.raises(DecodingFailed):
        Compression().decode(text)


def test_a_small_text_cannot_become_more_than_memory_has_room_for() -> None:
    with pytest.raises(DecodingFailed, match=str(MAX_BEFORE_BYTES)):
        Compression().decode(packed(b"0" * (MAX_BEFORE_BYTES + 1)))


@pytest.mark.parametrize("options", [{"at_least": -1}, {"at_least": "1"}, {"level": 0}, {"level": 10}, {"level": True}])
def test_options_out_of_range_are_refused(options: dict) -> None:
    with pytest.raises(InvalidArgument):
        Compression(**options)


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, PIECE * 2, PIECE * 2 + 2])
def test_base64_in_pieces_is_that_of_the_whole(size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    assert armored(data) == b64encode(data).decode()
    assert bare(armored(data)) == data


def test_base64_that_ends_before_its_end_is_refused() -> None:
    with pytest.raises(ValueError, match="padding"):
        bare(armored(b"x" * (PIECE - 1)) + armored(b"x" * PIECE))
