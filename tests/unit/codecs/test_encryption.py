"""Encryption: only who has the key reads, keys rotate, and what was changed is noticed."""

import subprocess
import sys
from base64 import b64decode, b64encode
from pathlib import Path

import pytest
from perdure.codecs import Encryption
from perdure.errors import DecodingFailed, InvalidArgument, UnknownSerialization

OLD, NEW = b"o" * 32, b"n" * 16


def test_a_value_comes_back_and_nothing_of_it_can_be_read() -> None:
    codec = Encryption({"k1": OLD})
    made = codec.encode('{"card": "4000 1234"}')
    key, _, rest = made.partition(":")
    assert key == "k1"
    assert b"4000" not in b64decode(rest)
    assert codec.decode(made) == '{"card": "4000 1234"}'


def test_the_same_value_never_looks_the_same() -> None:
    codec = Encryption({"k1": OLD})
    assert len({codec.encode("[1]") for _ in range(50)}) == 50


def test_keys_rotate_old_values_are_read_and_new_ones_written_with_the_new_key() -> None:
    before = Encryption({"2025": OLD})
    between = Encryption({"2025": OLD, "2026": NEW}, active="2025")
    after = Encryption({"2025": OLD, "2026": NEW}, active="2026")
    old, new = before.encode("[1]"), after.encode("[2]")
    assert new.startswith("2026:")
    assert (between.decode(new), after.decode(old)) == ("[2]", "[1]")


def test_a_key_that_this_process_lacks_is_unknown_and_not_wrong() -> None:
    made = Encryption({"2026": NEW}).encode("[1]")
    with pytest.raises(UnknownSerialization, match="key 2026") as caught:
        Encryption({"2025": OLD}).decode(made)
    assert caught.value.name == "aes-gcm:2026"


def test_another_key_under_the_same_id_cannot_read() -> None:
    made = Encryption({"k": NEW}).encode("[1]")
    with pytest.raises(DecodingFailed, match="k was not encrypted with it, or was changed"):
        Encryption({"k": OLD}).decode(made)


@pytest.mark.parametrize("at", [0, 12, 13, -1])
def test_a_value_that_was_changed_in_the_database_is_refused(at: int) -> None:
    codec = Encryption({"k": OLD})
    data = bytearray(b64decode(codec.encode('"a longer text"').partition(":")[2]))
    data[at] ^= 1
    with pytest.raises(DecodingFailed):
        codec.decode(f"k:{b64encode(data).decode()}")


def test_a_value_is_bound_to_the_name_of_its_codec_and_the_id_of_its_key() -> None:
    codec = Encryption({"a": OLD, "b": OLD}, active="a")
    made = codec.encode("[1]")
    with pytest.raises(DecodingFailed):
        codec.decode(f"b{made[1:]}")
    with pytest.raises(DecodingFailed):
        Encryption({"a": OLD}, name="other").decode(made)


@pytest.mark.parametrize("text", ["", "k", "k:", "k:!!!!", "k:AAAA", ":AAAA", "a b:AAAA", "k:ä"])
def test_what_was_not_encrypted_is_refused(text: str) -> None:
    with pytest.raises(DecodingFailed):
        Encryption({"k": OLD}).decode(text)


def test_a_new_key_is_a_key() -> None:
    key = Encryption.new_key()
    assert Encryption({"k": key}).decode(Encryption({"k": b64decode(key)}).encode("[1]")) == "[1]"
    assert key != Encryption.new_key()


@pytest.mark.parametrize(
    ("keys", "active"),
    [
        ({}, None),
        (None, None),
        ({"a": OLD, "b": NEW}, None),
        ({"a": OLD}, "b"),
        ({"a": b"short"}, None),
        ({"a": "c2hvcnQ="}, None),
        ({"a": "no base64"}, None),
        ({"a": 7}, None),
        ({"a b": OLD}, None),
        ({"": OLD}, None),
        ({7: OLD}, None),
    ],
    ids=str,
)
def test_keys_that_cannot_be_used_are_refused_without_showing_them(keys, active) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Encryption(keys, active=active)
    assert "short" not in str(caught.value)


def test_a_codec_does_not_show_its_keys() -> None:
    assert repr(Encryption({"k1": OLD, "k2": NEW}, active="k2")) == "Encryption(keys k1, k2, active k2)"


def test_without_the_extra_it_says_what_to_install() -> None:
    code = """import sys
sys.modules["cryptography"] = None
from perdure.codecs import Encryption
try:
    Encryption({"k": b"k" * 32})
except Exception as error:
    print(type(error).__name__, error)"""
    root = Path(__file__).parents[3] / "worker_image"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert "ConfigurationError" in done.stdout
    assert "perdure[encryption]" in done.stdout
