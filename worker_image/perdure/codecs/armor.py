"""Base64 in pieces, for the codecs: a thread that does all of a large text in one call keeps the event loop waiting."""

from __future__ import annotations

from base64 import b64decode, b64encode

PIECE = 192 * 1024
"""Bytes at once, some tenths of a millisecond; a multiple of three, so that the pieces join without a gap."""

_LETTERS = PIECE // 3 * 4


def armored(data: bytes) -> str:
    """The base64 of these bytes."""
    if len(data) <= PIECE:
        return b64encode(data).decode("ascii")
    view = memoryview(data)
    return "".join(b64encode(view[at : at + PIECE]).decode("ascii") for at in range(0, len(data), PIECE))


def bare(text: str) -> bytes:
    """The bytes of that base64. Raises `ValueError` for what is none."""
    if len(text) <= _LETTERS:
        return b64decode(text, validate=True)
    if 0 <= text.find("=") < len(text) - 2:
        raise ValueError("padding before the end")
    return b"".join(b64decode(text[at : at + _LETTERS], validate=True) for at in range(0, len(text), _LETTERS))
