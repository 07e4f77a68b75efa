"""Values ↔ JSON text, with the types that the code is annotated with.

Text is ASCII, no longer than what its encoding allows, and free of what Postgres or another JSON reader refuses: no
NUL, no lone surrogate, no NaN or infinity. Bytes are base64. What cannot be written is an `EncodingFailed` that says
what to do; nothing a user returns makes it raise anything else.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import from_json, to_json

from perdure.engine.encoding import PLAIN, Encoding
from perdure.engine.portable import refuse_foreign
from perdure.errors import DecodingFailed, EncodingFailed, PayloadTooLarge, RegistrationError

MAX_SHOWN = 500
"""Longest excerpt of a value or reason in a message, in characters: enough to recognise it, fit for a status."""

_BASE64 = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SCALARS = (str, int, bool, float, type(None))
_COMMON = frozenset((*_SCALARS, list, dict, tuple))

_BYTES_OF_MODELS = (
    " (a pydantic model says itself how its bytes are written: "
    "model_config = ConfigDict(ser_json_bytes='base64', val_json_bytes='base64'))"
)


def shorten(text: str, limit: int = MAX_SHOWN) -> str:
    """The text, or its beginning and how long it was."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def encode(value: Any, what: str, encoding: Encoding = PLAIN) -> str:
    """JSON text of any value; `what` names it in the error. Raises `EncodingFailed`, `PayloadTooLarge`.

    `encoding`: how the text will be stored, which says how long it may be and whether it has to be portable.
    """
    for part in value if type(value) is tuple else (value,):
        if type(part) not in _COMMON and isinstance(part, Iterator):
            raise EncodingFailed(f"{what} has an iterator ({type(part).__name__}), which can be read once: use a list")
    try:
        text = to_json(value, ensure_ascii=True, bytes_mode="base64").decode("ascii")
    except Exception as error:
        hint = _BYTES_OF_MODELS if "invalid utf-8" in str(error) else ""
        raise EncodingFailed(f"{what} cannot be written as JSON: {shorten(_reason(error))}{hint}") from error
    if "\\u0000" in text and _NUL.search(text):
        raise EncodingFailed(f"{what} holds a NUL character, which Postgres cannot store")
    if ("NaN" in text or "Infinity" in text) and not _finite(text):
        raise EncodingFailed(f"{what} holds NaN or an infinite number, which JSON cannot say")
    if len(text) > encoding.most:
        raise PayloadTooLarge(
            f"{what} is {len(text)} bytes as JSON, at most {encoding.most}: store it elsewhere, pass a reference"
        )
    if encoding.portable:
        refuse_foreign(value, text, what)
    return text


class Decoder:
    """Reads JSON text as one annotated type. Made once for each annotation."""

    __slots__ = ("_adapter", "_exact", "_wrapped", "type_name")

    def __init__(self, hint: Any, where: str) -> None:
        self.type_name = getattr(hint, "__name__", None) or str(hint)
        self._exact = frozenset(
            kind for kind in _SCALARS if hint is Any or hint is kind or (hint is None and kind is type(None))
        )
        self._adapter, self._wrapped = _adapter(hint, where)

    @property
    def adapter(self) -> tuple[TypeAdapter[Any], bool]:
        """What reads the type, and whether it reads a list of one such value."""
        return self._adapter, self._wrapped

    def decode(self, text: str, what: str) -> Any:
        """The value. Raises `DecodingFailed` that names it and says what does not fit."""
        try:
            value = self._adapter.validate_json(f"[{text}]" if self._wrapped else text)
        except Exception as error:
            raise DecodingFailed(f"{what} is not {self.type_name}: {shorten(_reason(error))}") from error
        return value[0] if self._wrapped else value

    def round_trip(self, value: Any, what: str, encoding: Encoding = PLAIN) -> tuple[str, Any]:
        """JSON text of a result, and the value that every replay will see instead of it.

        Raises `EncodingFailed` also when the text could not be read back as the annotated type.
        """
        text = encode(value, what, encoding)
        if type(value) in self._exact:
            return text, value
        try:
            return text, self.decode(text, what)
        except DecodingFailed as error:
            raise EncodingFailed(
                f"{what} could not be read back as {self.type_name}, which its annotation promises: "
                f"{shorten(_reason(error.__cause__ or error))}"
            ) from error


def takes_object(hint: Any) -> bool:
    """Whether a JSON object can be a value of the type: models, dataclasses, typed dictionaries, mappings, anything."""
    parts = get_args(hint)
    origin = get_origin(hint) or hint
    if origin in (Union, UnionType):
        return any(map(takes_object, parts))
    if origin is Annotated:
        return takes_object(parts[0])
    if hint is Any or dataclasses.is_dataclass(hint):
        return True
    return isinstance(origin, type) and issubclass(origin, BaseModel | Mapping)


def same_input(value: Any, text: str, recorded: str) -> bool:
    """Whether a call's input is the recorded one: the order of keys in objects and of elements in sets is free.

    `text` is the encoded `value`; the value itself is looked at only for where it has sets.
    """
    if text == recorded:
        return True
    try:
        return _same(value, from_json(text), from_json(recorded))
    except ValueError:
        return False


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, with their types: 1 is neither 1.0 nor true."""
    return _same(None, one, other)


def _same(value: Any, now: Any, before: Any) -> bool:
    if isinstance(now, dict):
        if not isinstance(before, dict) or now.keys() != before.keys():
            return False
        parts = _fields(value, now)
        return all(_same(parts.get(key), now[key], before[key]) for key in now)
    if isinstance(now, list):
        if not isinstance(before, list) or len(now) != len(before):
            return False
        if isinstance(value, set | frozenset):
            return sorted(map(to_json, now)) == sorted(map(to_json, before))
        items = list(value) if isinstance(value, list | tuple) and len(value) == len(now) else [None] * len(now)
        return all(map(_same, items, now, before))
    return type(now) is type(before) and bool(now == before)


def _fields(value: Any, now: dict[str, Any]) -> dict[str, Any]:
    """The parts of a value under the keys of its JSON object, as far as they can be told."""
    if isinstance(value, BaseModel):
        names = {field.serialization_alias or name: name for name, field in type(value).model_fields.items()}
        return {key: getattr(value, names[key], None) for key in now if key in names}
    if dataclasses.is_dataclass(value):
        return {key: getattr(value, key, None) for key in now}
    if isinstance(value, dict) and len(value) == len(now):
        return dict(zip(now, value.values(), strict=True))
    return {}


def _adapter(hint: Any, where: str) -> tuple[TypeAdapter[Any], bool]:
    """The adapter, and whether it reads a list of one: types that have a configuration of their own take no other."""
    try:
        try:
            return TypeAdapter(hint, config=_BASE64), False
        except PydanticUserError as error:
            if error.code != "type-adapter-config-unused":
                raise
            return TypeAdapter(tuple[hint], config=_BASE64), True
    except (PydanticSchemaGenerationError, PydanticUserError, NameError, TypeError) as error:
        raise RegistrationError(f"{where} has a type that cannot be stored as JSON: {shorten(str(error))}") from error


def _finite(text: str) -> bool:
    try:
        from_json(text, allow_inf_nan=False)
    except ValueError:
        return False
    return True


def _reason(error: BaseException) -> str:
    """A sentence of one line: pydantic's own report has links and repeats the input."""
    if isinstance(error, ValidationError):
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        return "; ".join(f"{_path(problem['loc'])}{problem['msg']}" for problem in problems)
    return str(error).removeprefix("Error serializing to JSON: ")


def _path(loc: tuple[int | str, ...]) -> str:
    return ".".join(map(str, loc)) + ": " if loc else ""
