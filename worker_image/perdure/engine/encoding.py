"""From a value's JSON text to the text that is stored: as it is, or through layers of the application's own.

A stored text says itself how it was written. It is JSON; or it begins with `!name:`, and what follows was made by the
layer of that name, out of a text that again is one of both. No JSON begins with `!`. `perdure.engine.serialization`
knows the layers and reads; `perdure.engine.codec` makes JSON of values. Everything between them and the edge of the
engine deals with JSON alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from perdure.errors import EncodingFailed, PayloadTooLarge
from perdure.model.serialization import Serialization

MAX_PAYLOAD_BYTES = 1024 * 1024
"""Largest single value as it is stored. A step's input and output are read at every replay and sent in batches with
others'."""

MAX_BEFORE_BYTES = 64 * 1024 * 1024
"""Largest single value as JSON where layers make it smaller: it is in memory several times while they do."""

LARGE = 64 * 1024
"""Characters from which on a text is given to a heavy layer in a thread: zlib takes some milliseconds then. A thread
costs a tenth of one, which smaller values do not pay."""

MARK = "!"
"""How a text begins that is no JSON."""

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a pair is nothing for Postgres, as NUL is none; the unit separator stands between values of a batch."""


class Layer(Protocol):
    """One step between JSON and what is stored."""

    @property
    def name(self) -> str:
        """What stands before its text."""
        ...

    @property
    def blocking(self) -> bool:
        """Whether it talks to something outside: then it works in a thread."""
        ...

    @property
    def heavy(self) -> bool:
        """Whether its time grows with the text: then it has large ones in a thread, and may have several at once."""
        ...

    def write(self, text: str, what: str) -> str | None:
        """The text it makes of this one; None: it leaves it as it is. Raises `EncodingFailed`."""
        ...

    def read(self, text: str, what: str) -> str:
        """The text from what `write` made. Raises `DecodingFailed`."""
        ...


class Rest(str):
    """A large text that `Encoding.begin` has left to `Encoding.finish`, with all layers that are heavy."""

    __slots__ = ()


class Encoding:
    """How one run, or one value, is written. Immutable; there is one object for each way of a process.

    `portable`: whether JSON is held to what other languages can write and read. `layered`: whether something else than
    JSON is stored. `most`: bytes that a value may have as JSON. `blocking`: whether some of it is done in a thread,
    after `begin`, whatever the size; of a large value it may be more.
    """

    __slots__ = ("_first", "_heavy", "_last", "_light", "blocking", "layered", "most", "portable")

    def __init__(self, layers: Sequence[Layer] = (), *, portable: bool = False, most: int = MAX_PAYLOAD_BYTES) -> None:
        cut = next((number for number, layer in enumerate(layers) if layer.blocking), len(layers))
        self._first = tuple(layers[:cut])
        self._last = tuple(layers[cut:])
        from_here = cut
        while from_here and layers[from_here - 1].heavy:
            from_here -= 1
        # Only where all that follows may be in a thread, too.
        self._light, self._heavy = tuple(layers[:from_here]), tuple(layers[from_here:cut])
        self.blocking = bool(self._last)
        self.layered = bool(layers)
        self.portable = portable
        self.most = MAX_BEFORE_BYTES if layers else most

    def begin(self, text: str, what: str) -> str:
        """The text that is stored for this JSON, or what `finish` goes on with: always where this is `blocking`, and
        for a `Rest`. Raises `EncodingFailed`."""
        if len(text) >= LARGE and self._heavy:
            for layer in self._light:
                text = _through(layer, text, what)
            return Rest(text)
        return self.at_once(text, what)

    def at_once(self, text: str, what: str) -> str:
        """`begin`, but only what is `blocking` is left to do, however large the text. Raises `EncodingFailed`."""
        for layer in self._first:
            text = _through(layer, text, what)
        return text if self._last else _bounded(text, what)

    def finish(self, text: str, what: str) -> str:
        """What `begin` has left to do. May take long and raise what the layers say; call it in a thread."""
        layers = self._last if type(text) is str else self._heavy + self._last
        for layer in layers:
            text = _through(layer, text, what)
        return _bounded(text, what)


PLAIN = Encoding()
"""JSON, and nothing else: what is done without a word."""

PORTABLE = Encoding(portable=True)

UNDECIDED = Encoding(most=MAX_BEFORE_BYTES)
"""JSON whose encoding is not known yet: the size is looked at when it is."""


def input_encoding(choice: Serialization | None) -> Encoding:
    """How the input of a run is made JSON where it is not known yet what will be stored of that."""
    return PORTABLE if choice is Serialization.PORTABLE else UNDECIDED


def _through(layer: Layer, text: str, what: str) -> str:
    made = layer.write(text, what)
    if made is None:
        return text
    if not isinstance(made, str):
        raise EncodingFailed(f"{what} cannot be stored: {layer.name} has written {type(made).__name__}, not a text")
    if "\x00" in made or "\x1f" in made or (not made.isascii() and _SURROGATE.search(made)):
        raise EncodingFailed(
            f"{what} cannot be stored: what {layer.name} has written holds a NUL, a unit separator (U+001F) or half a "
            "surrogate pair; base64 has none of these"
        )
    return f"{MARK}{layer.name}:{made}"


def _bounded(text: str, what: str) -> str:
    size = len(text) if text.isascii() else len(text.encode())
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"{what} is {size} bytes as it is stored, at most {MAX_PAYLOAD_BYTES}: store it elsewhere, pass a reference"
        )
    return text
