"""Serializers and codecs of the application: what they are, which a process has, which it writes with.

A `Serializer` makes text of a value, which is plain data as JSON knows it: models, dates and bytes have become that
before, and become their own types again behind it, so that one place knows types. A `Codec` makes another text of a
stored text: shorter, unreadable, elsewhere. The name of each stands before what it wrote and is looked up when that is
read. One `Serializers` belongs to a registry, and to a client.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol, runtime_checkable

from pydantic_core import from_json, to_json

from perdure.engine.codec import same_json, shorten
from perdure.engine.encoding import LARGE, MARK, PLAIN, PORTABLE, Encoding
from perdure.errors import (
    AlreadyRegistered,
    ConfigurationError,
    DecodingFailed,
    EncodingFailed,
    PerdureError,
    RegistrationError,
    UnknownSerialization,
)
from perdure.model.serialization import Serialization

NAME = re.compile(r"[a-z0-9_.-]{1,63}")

RESERVED = frozenset({"json", "native", "default", "portable", "portable_json", "rust_serde", "pickle"})
"""Names that mean something else already, here or in other engines; beside all that begin with `perdure`."""

CODEC_THREADS = "perdure-codec"
"""How the names of the threads begin in which codecs talk to something outside."""

_threads = ThreadPoolExecutor(32, thread_name_prefix=CODEC_THREADS)
"""As many as values may be under way at once; a value of a megabyte is in memory some times in each."""

MAX_LAYERS = 16
"""More names before one value are no value: what reads it would go on for ever."""


@runtime_checkable
class Serializer(Protocol):
    """An encoding of your own. Its text must say all that is needed to read it: nothing else is known then.

    `name`: what stands before its texts in the database; it must never change. 1 to 63 of `a-z 0-9 _ . -`.
    """

    @property
    def name(self) -> str:
        """See the class."""
        ...

    def serialize(self, value: Any, /) -> str:
        """The text of a value: None, bool, int, float, str, and lists and dicts of these. No NUL, no U+001F."""
        ...

    def deserialize(self, text: str, /) -> Any:
        """The value again, equal to what was given."""
        ...


@runtime_checkable
class Codec(Protocol):
    """A transformation of stored texts. `name` as for a `Serializer`. A codec that talks to something outside has an
    attribute `blocking` that is True: it is called in threads then, and an error of it that is a `PerdureError` with
    `retryable` is waited out. One whose work grows with the text and that several threads may use at once has an
    attribute `heavy` that is True: it is called in threads for texts of 64 Ki characters or more."""

    @property
    def name(self) -> str:
        """See the class."""
        ...

    def encode(self, text: str, /) -> str | None:
        """Another text for this one, without NUL and U+001F; None leaves it as it is."""
        ...

    def decode(self, text: str, /) -> str:
        """The text again, exactly."""
        ...


class _Serialized:
    """The layer of a serializer. What it has written is read back at once: what it does not give back is an error of
    now, not of the replay."""

    blocking = heavy = False

    def __init__(self, serializer: Serializer) -> None:
        self.name = serializer.name
        self.own = serializer

    def write(self, text: str, what: str) -> str | None:
        value = from_json(text)
        try:
            made = self.own.serialize(value)
            if not isinstance(made, str):
                raise TypeError(f"it gives {type(made).__name__}, not a text")
            back = self.own.deserialize(made)
        except PerdureError:
            raise
        except Exception as error:
            raise EncodingFailed(f"{what} cannot be written by serializer {self.name}: {_said(error)}") from error
        if not same_json(value, back):
            raise EncodingFailed(f"{what} cannot be written by serializer {self.name}: it reads back another value")
        return made

    def read(self, text: str, what: str) -> str:
        try:
            return to_json(self.own.deserialize(text), ensure_ascii=True).decode("ascii")
        except PerdureError:
            raise
        except Exception as error:
            raise DecodingFailed(f"{what} cannot be read by serializer {self.name}: {_said(error)}") from error


class _Coded:
    """The layer of a codec."""

    def __init__(self, codec: Codec) -> None:
        self.name = codec.name
        self.blocking = bool(getattr(codec, "blocking", False))
        self.heavy = bool(getattr(codec, "heavy", False))
        self.own = codec

    def write(self, text: str, what: str) -> str | None:
        try:
            return self.own.encode(text)
        except PerdureError:
            raise
        except Exception as error:
            raise EncodingFailed(f"{what} cannot be written by codec {self.name}: {_said(error)}") from error

    def read(self, text: str, what: str) -> str:
        try:
            found = self.own.decode(text)
        except PerdureError:
            raise
        except Exception as error:
            raise DecodingFailed(f"{what} cannot be read by codec {self.name}: {_said(error)}") from error
        if not isinstance(found, str):
            raise DecodingFailed(f"{what} cannot be read: codec {self.name} gives {type(found).__name__}, not a text")
        return found


class Serializers:
    """Which serializers and codecs are known, all of which read; and those that write where nothing else is chosen."""

    def __init__(self) -> None:
        self._layers: dict[str, _Serialized | _Coded] = {}
        self._default = PLAIN
        self.blocking = False
        """Whether reading may take long."""

    def add(self, serializer: Serializer) -> None:
        """Know a serializer. Raises `RegistrationError` for what is none, or has a name that cannot be used;
        `AlreadyRegistered` when another one has the name."""
        _check(serializer, "serializer", ("serialize", "deserialize"))
        self._add(_Serialized(serializer))

    def add_codec(self, codec: Codec) -> None:
        """Know a codec. Raises as `add`."""
        _check(codec, "codec", ("encode", "decode"))
        self._add(_Coded(codec))

    def codecs(self) -> tuple[Codec, ...]:
        """The codecs that are known."""
        return tuple(layer.own for layer in self._layers.values() if isinstance(layer, _Coded))

    def use(self, serializer: str = "", codecs: Sequence[str] = ()) -> None:
        """Write with this serializer (empty: typed JSON), then these codecs in this order, where nothing else is
        chosen. Raises `ConfigurationError` for names that are not known."""
        wanted = [self._named(serializer, _Serialized, "serializer")] if serializer else []
        layers = [*wanted, *(self._named(name, _Coded, "codec") for name in codecs)]
        if len(layers) > MAX_LAYERS:
            raise ConfigurationError(f"{len(layers)} codecs are more than {MAX_LAYERS}")
        for layer in layers[:-1]:
            if getattr(layer.own, "outermost", False):
                raise ConfigurationError(
                    f"codec {layer.name} has to be the last one: rows must show what it has written"
                )
        self._default = Encoding(layers) if layers else PLAIN

    def with_own(self, serializer: Serializer | None, codecs: Sequence[Codec]) -> Serializers:
        """These, with a serializer and codecs of somebody's own, who writes with them; of those that are known here
        under their names they take the place. The same object where nothing is given. Raises `RegistrationError`."""
        if serializer is None and not codecs:
            return self
        own = Serializers()
        if serializer is not None:
            own.add(serializer)
        for codec in codecs:
            own.add_codec(codec)
        own.use("" if serializer is None else serializer.name, [codec.name for codec in codecs])
        own._layers = {**self._layers, **own._layers}
        own.blocking = any(layer.blocking for layer in own._layers.values())
        return own

    def encoding(self, choice: Serialization | None) -> Encoding:
        """How to write by this choice; None or DEFAULT: as configured."""
        if choice is None or choice is Serialization.DEFAULT:
            return self._default
        return PORTABLE if choice is Serialization.PORTABLE else PLAIN

    async def write(self, text: str, what: str, choice: Serialization | None = None) -> str:
        """What is stored for this JSON by this choice. Raises `EncodingFailed`, and what a codec says that cannot reach
        what it talks to."""
        return await written(text, self.encoding(choice), what)

    def read(self, text: str, what: str) -> str:
        """The JSON of a stored text. Raises `UnknownSerialization` when it was written by what is not known here,
        `DecodingFailed` when it cannot be read. May take long where `blocking` is set."""
        for _ in range(MAX_LAYERS + 1):
            if text[:1] != MARK:
                return text
            layer, rest = self._outermost(text, what)
            text = layer.read(rest, what)
        raise DecodingFailed(f"{what} has more than {MAX_LAYERS} names before it")

    async def fetch(self, text: str, what: str) -> str:
        """`read`, in a thread where that may take long."""
        if text[:1] != MARK:
            return text
        if self.blocking:
            return await beside(self.read, text, what)
        while len(text) >= LARGE and text[:1] == MARK:
            layer, rest = self._outermost(text, what)
            if not layer.heavy:
                break
            text = await beside(layer.read, rest, what)
        return self.read(text, what)

    def _outermost(self, text: str, what: str) -> tuple[_Serialized | _Coded, str]:
        """The layer that has written this text, and what it wrote. Raises as `read`."""
        end = text.find(":", 1, 65)
        name = text[1:end] if end > 0 else ""
        if not NAME.fullmatch(name):
            raise DecodingFailed(f"{what} begins with {shorten(text, 20)!r}, as nothing does that was stored")
        layer = self._layers.get(name)
        if layer is None:
            raise UnknownSerialization(
                f"{what} was written by {name}, which this process does not have: register it, or leave it to a "
                "process that has it",
                name,
            )
        return layer, text[end + 1 :]

    def _add(self, layer: _Serialized | _Coded) -> None:
        known = self._layers.get(layer.name)
        if known is not None and known.own is not layer.own:
            raise AlreadyRegistered(f"two serializers or codecs have the name {layer.name}; give one of them another")
        self._layers[layer.name] = layer
        self.blocking = self.blocking or layer.blocking

    def _named(self, name: str, kind: type[_Serialized | _Coded], what: str) -> _Serialized | _Coded:
        layer = self._layers.get(name)
        if not isinstance(layer, kind):
            known = sorted(name for name, layer in self._layers.items() if isinstance(layer, kind))
            raise ConfigurationError(f"there is no {what} {name}; registered are: {', '.join(known) or 'none'}")
        return layer


PROCESS = Serializers()
"""Those of the default registry, and of what belongs to no registry."""


async def written(text: str, encoding: Encoding, what: str) -> str:
    """What is stored for this JSON. Raises `EncodingFailed`, and what a codec says that cannot reach what it talks
    to."""
    text = encoding.begin(text, what)
    if not encoding.blocking and type(text) is str:
        return text
    return await beside(encoding.finish, text, what)


async def beside(function: Callable[[str, str], str], text: str, what: str) -> str:
    """What the function makes of the text, in a thread. Not in those of asyncio, for which a process waits at its end:
    nobody is left to hear what a codec says that does not come back."""
    call = partial(copy_context().run, function, text, what)
    return await asyncio.get_running_loop().run_in_executor(_threads, call)


def _check(given: Any, what: str, methods: Sequence[str]) -> None:
    name = getattr(given, "name", None)
    if not isinstance(name, str) or not all(callable(getattr(given, each, None)) for each in methods):
        raise RegistrationError(f"a {what} has a name, {methods[0]} and {methods[1]}; {given!r} is none")
    if not NAME.fullmatch(name):
        raise RegistrationError(f"{name!r} cannot be the name of a {what}: 1 to 63 of a-z, 0-9, '_', '.' and '-'")
    if name in RESERVED or name.startswith("perdure"):
        raise RegistrationError(f"{name} cannot be the name of a {what}: it means something else already")


def _said(error: Exception) -> str:
    return shorten(f"{type(error).__name__}: {error}")
