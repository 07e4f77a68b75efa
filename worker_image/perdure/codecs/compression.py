"""Values that take less room: zlib, which Python has everywhere."""

from __future__ import annotations

import zlib

from perdure.codecs.armor import armored, bare
from perdure.engine.encoding import MAX_BEFORE_BYTES
from perdure.errors import DecodingFailed, InvalidArgument


class Compression:
    """Compresses values that are worth it.

    `at_least`: characters from which on it is tried; what does not become shorter stays as it is. `level`: 1, fast, to
    9, small. `name` stands before the stored text and must stay; it differs where two of them are used.

    Nothing that is read may become larger than 64 MiB. Raises `InvalidArgument`.
    """

    blocking = False
    heavy = True

    def __init__(self, *, at_least: int = 1024, level: int = 6, name: str = "zlib") -> None:
        if not isinstance(at_least, int) or isinstance(at_least, bool) or at_least < 0:
            raise InvalidArgument(f"at_least must be a number of characters, not {at_least!r}")
        if not isinstance(level, int) or isinstance(level, bool) or not 1 <= level <= 9:
            raise InvalidArgument(f"level must be 1 to 9, not {level!r}")
        self.name = name
        self._at_least = at_least
        self._level = level

    def encode(self, text: str, /) -> str | None:
        """The text as base64 of what zlib makes of it; None where that is no shorter."""
        if len(text) < self._at_least:
            return None
        made = armored(zlib.compress(text.encode(), self._level))
        return made if len(made) < len(text) else None

    def decode(self, text: str, /) -> str:
        """Raises `DecodingFailed` for what `encode` has not made."""
        reader = zlib.decompressobj()
        try:
            made = reader.decompress(bare(text), MAX_BEFORE_BYTES + 1)
            if len(made) > MAX_BEFORE_BYTES:
                raise DecodingFailed(f"a compressed value has more than {MAX_BEFORE_BYTES} bytes")
            if not reader.eof or reader.unused_data:
                raise DecodingFailed("a compressed value is not complete, or something follows it")
            return made.decode()
        except (zlib.error, ValueError) as error:
            raise DecodingFailed(f"a compressed value cannot be read: {error}") from error
