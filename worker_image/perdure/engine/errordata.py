"""What an exception carries ↔ JSON: its message, its arguments, its attributes.

Used by `failures`. Promises: a plain value comes back as it was; one of a type that JSON does not have comes back where
the class, its fields or the parameters of its `__init__` are annotated with that type. An exception comes back with
all that its class declares, or not as that class.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import re
from collections.abc import Mapping
from inspect import get_annotations
from typing import Any, get_type_hints
from weakref import WeakKeyDictionary

from perdure.engine.codec import Decoder, encode, shorten
from perdure.engine.errortypes import ErrorType
from perdure.engine.signature import hints_of
from perdure.errors import DecodingFailed, EncodingFailed, PerdureError, RegistrationError
from perdure.model.outcome import ErrorRecord

logger = logging.getLogger(__name__)

MAX_MESSAGE = 2000
"""Longest recorded message of one failure, in characters: a screenful, so that 100 of them still fit in a row."""

MAX_DATA = 16_000
"""Longest recorded form of what else an exception carries, in characters; above, it does not come back as its class.
It stands in a row that every claim of the run reads."""

LOST = "{}"
"""What is recorded of an exception that cannot be made again."""

_OF_FILES = ("filename", "filename2")
"""What an `OSError` keeps beside its arguments and attributes: which file it is about."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_DEEPEST = 20


def message_of(error: BaseException) -> str:
    """Its text, as it is recorded. Never raises."""
    try:
        text = error.message if isinstance(error, PerdureError) else str(error)
        if isinstance(error, BaseExceptionGroup):
            text += ": " + "; ".join(f"{type(inner).__name__}: {inner}" for inner in error.exceptions)
    except Exception as broken:
        text = f"(the message cannot be read: {type(broken).__name__})"
    return storable(shorten(text, MAX_MESSAGE))


def storable(text: str) -> str:
    """The text, without what Postgres refuses."""
    return _UNSTORABLE.sub("\ufffd", text)


def data_of(error: BaseException, known: ErrorType | None, message: str) -> str:
    """What is needed beside the message to make it again; empty when the message says it all. Never raises."""
    try:
        if known is not None and known.encode is not None:
            data = json.loads(encode(known.encode(error), f"the data of error {known.name}"))
            carried: dict[str, Any] = {"data": data}
        else:
            carried = _carried(error, message, whole=known is not None)
        code = None if isinstance(error, PerdureError) else getattr(error, "code", None)
        if type(code) in (int, str) and plain(code) and "code" not in carried.get("attributes", {}):
            carried = {**(carried or _alone(message)), "code": code}
        text = json.dumps(carried) if carried else ""
        if len(text) > MAX_DATA:
            raise EncodingFailed(f"it carries {len(text)} characters, at most {MAX_DATA} are recorded")
    except Exception as problem:
        if known is not None or isinstance(problem, EncodingFailed):
            name = f"{type(error).__module__}.{type(error).__qualname__}"
            logger.warning("an error %s will not come back as its own class: %s", name, shorten(str(problem)))
        return LOST
    return text


def made(found: ErrorType, record: ErrorRecord) -> Exception:
    """The exception of a record, without its `__init__`, which may want anything. Raises whatever is in the way."""
    raised = json.loads(record.raised) if record.raised else _alone(record.message)
    if found.decode is not None and "data" in raised:
        return _decoded(found, raised["data"])
    if record.portable:
        raised = _of_portable(raised.get("data"), record.message)
    if "args" not in raised:
        raise DecodingFailed(f"{record.type} was recorded without what it carries")
    error = _filled(found.kind, raised, record)
    # A long message was shortened and is again.
    same = message_of(error) in (record.message, shorten(record.message, MAX_MESSAGE))
    if not same and not (record.portable and found.registered):
        raise DecodingFailed(f"{record.type} cannot be built from what is recorded")
    return error


def portable_data(raised: str, message: str) -> tuple[Any, Any]:
    """Code and data in the form that others read. The data are its author's, or its attributes by name, with `args`
    where the message does not say them."""
    if not raised.startswith("{") or raised == LOST:
        return None, None
    carried = json.loads(raised)
    code = carried.get("code", carried.get("attributes", {}).get("code"))
    if "data" in carried:
        return code, carried["data"]
    data = dict(carried["attributes"])
    if carried["args"] != [message] and not any(isinstance(each, int) for each in carried.get("typed", ())):
        data["args"] = carried["args"]
    return code, data or None


def _alone(message: str) -> dict[str, Any]:
    return {"args": [message], "attributes": {}}


def _of_portable(data: Any, message: str) -> dict[str, Any]:
    if data is None:
        return _alone(message)
    if not isinstance(data, dict) or not isinstance(data.get("args", []), list):
        raise DecodingFailed("the data are none of a class")
    attributes = {name: value for name, value in data.items() if name != "args"}
    return {"args": data.get("args", [message]), "attributes": attributes, "typed": list(attributes)}


def _decoded(found: ErrorType, data: Any) -> Exception:
    assert found.decode is not None
    assert found.data is not None
    error = found.decode(found.data.decode(json.dumps(data), f"the data of error {found.name}"))
    if not isinstance(error, found.kind):
        raise DecodingFailed(f"the decode function of error {found.name} has made a {type(error).__name__}")
    return error


def _filled(kind: type[Exception], raised: Mapping[str, Any], record: ErrorRecord) -> Exception:
    shape = _shape(kind)
    typed = raised.get("typed", ())
    args = [
        shape.read(shape.parameter(at), value, strict=True) if at in typed else value
        for at, value in enumerate(raised["args"])
    ]
    error = kind.__new__(kind, *args)
    error.args = tuple(args)
    if issubclass(kind, PerdureError):
        vars(error)["message"] = record.message
    for name, value in raised["attributes"].items():
        seen = shape.read(name, value, strict=not record.portable) if name in typed else value
        if name in shape.fields or (isinstance(error, OSError) and name in _OF_FILES):
            object.__setattr__(error, name, seen)
        else:
            vars(error)[name] = seen
    shape.complete(error, strict=record.portable)
    return error


def _says_all(message: str, args: tuple[Any, ...]) -> bool:
    """Whether the message is all there is, if only its beginning."""
    return len(args) == 1 and type(args[0]) is str and storable(shorten(args[0], MAX_MESSAGE)) == message


def _carried(error: BaseException, message: str, *, whole: bool) -> dict[str, Any]:
    """Empty when the message says it all. `whole`: whether all that its class declares has to be there."""
    shape = _shape(type(error))
    typed: list[int | str] = []
    args: list[Any] = []
    attributes: dict[str, Any] = {}
    for at, value in enumerate(error.args):
        if plain(value):
            args.append(value)
            continue
        try:
            args.append(shape.write(shape.parameter(at), value))
        except (EncodingFailed, DecodingFailed):
            # Then they are none: it comes back only if its message is not made of them.
            args = []
            typed = []
            break
        typed.append(at)
    for name, value in shape.attributes(error).items():
        if (name, value) == ("message", message):
            continue
        if plain(value):
            attributes[name] = value
            continue
        try:
            attributes[name] = shape.write(name, value)
        except (EncodingFailed, DecodingFailed) as problem:
            if name in shape.fields or (whole and name in shape.declared):
                raise EncodingFailed(f"its {name} cannot be recorded: {problem}") from problem
            continue
        typed.append(name)
    if not attributes and _says_all(message, error.args):
        return {}
    return {"args": args, "attributes": attributes, **({"typed": typed} if typed else {})}


class Shape:
    """What a class says of the exceptions it makes. `declared`: what they are not complete without."""

    def __init__(self, kind: type[BaseException]) -> None:
        self._where = f"{kind.__module__}.{kind.__qualname__}"
        self._own = [base for base in kind.__mro__ if issubclass(base, Exception) and not _foreign(base)]
        fields: tuple[Any, ...] = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
        self.fields: dict[str, dataclasses.Field[Any]] = {field.name: field for field in fields}
        self.declared = frozenset((*self.fields, *self._annotated()))
        self._kind = kind
        self._hints: dict[str, Any] | None = None
        self._parameters: tuple[str, ...] = ()
        self._decoders: dict[str, Decoder | None] = {}

    def attributes(self, error: BaseException) -> dict[str, Any]:
        """What the exception has been given, private things left out unless they are declared."""
        found = {
            name: value for name, value in vars(error).items() if name in self.declared or not name.startswith("_")
        }
        found.update({name: getattr(error, name) for name in self.fields if hasattr(error, name)})
        if isinstance(error, OSError):
            found.update({name: value for name in _OF_FILES if (value := getattr(error, name)) is not None})
        return found

    def parameter(self, at: int) -> str:
        """Name of the parameter at this position; "" if there is none."""
        self._look()
        return self._parameters[at] if at < len(self._parameters) else ""

    def write(self, name: str, value: Any) -> Any:
        """The value as JSON has it, if it can be read again. Raises `EncodingFailed`, `DecodingFailed`."""
        decoder = self._decoder(name)
        if decoder is None:
            raise EncodingFailed(f"a {type(value).__name__} is not plain, and {self._where} says no type of it")
        text = encode(value, name)
        back = decoder.decode(text, name)
        equals: Any = type(value).__eq__
        incomparable = equals is object.__eq__ and type(back) is type(value)
        if not incomparable and back != value:
            raise EncodingFailed(f"it would come back as another value than it is, of type {decoder.type_name}")
        return json.loads(text)

    def read(self, name: str, value: Any, *, strict: bool) -> Any:
        """The value that was written so; one of others, who know no types, is also taken as it is."""
        decoder = self._decoder(name)
        if decoder is None:
            if strict:
                raise DecodingFailed(f"{self._where} does not say any more of what type its {name} is")
            return value
        return decoder.decode(json.dumps(value), f"{name} of {self._where}")

    def complete(self, error: Exception, *, strict: bool) -> None:
        """Give fields that were not recorded their defaults. Raises `DecodingFailed` when one has none; what is
        declared and no field of a dataclass need not be there, unless this is `strict`."""
        for name in self.declared if strict else self.fields:
            if hasattr(error, name):
                continue
            field = self.fields.get(name)
            if field is not None and field.default is not dataclasses.MISSING:
                object.__setattr__(error, name, field.default)
            elif field is not None and field.default_factory is not dataclasses.MISSING:
                object.__setattr__(error, name, field.default_factory())
            else:
                raise DecodingFailed(f"nothing is recorded for {name} of {self._where}")

    def _annotated(self) -> set[str]:
        found: set[str] = set()
        for base in self._own:
            for name, hint in get_annotations(base).items():
                if "ClassVar" not in (hint if isinstance(hint, str) else repr(hint)):
                    found.add(name)
        return found

    def _decoder(self, name: str) -> Decoder | None:
        if name not in self._decoders:
            self._look()
            assert self._hints is not None
            hint = self._hints.get(name)
            try:
                self._decoders[name] = None if hint is None else Decoder(hint, f"{name} of {self._where}")
            except RegistrationError:
                self._decoders[name] = None
        return self._decoders[name]

    def _look(self) -> None:
        if self._hints is not None:
            return
        self._hints = {}
        for base in reversed(self._own):
            made = vars(base).get("__init__")
            code = getattr(made, "__code__", None)
            if made is not None and code is not None:
                names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
                self._parameters = code.co_varnames[1 : code.co_argcount]
                for name in names:
                    try:
                        self._hints.update(hints_of(made, (name,)))
                    except RegistrationError:
                        # Of a type for the type checker alone: then its value is none that can be recorded.
                        continue
        try:
            self._hints.update(get_type_hints(self._kind, include_extras=True))
        except Exception as problem:
            logger.debug("the annotations of %s cannot be read: %s", self._where, problem)


def _foreign(base: type) -> bool:
    return base.__module__ in ("builtins", PerdureError.__module__)


_shapes: WeakKeyDictionary[type[BaseException], Shape] = WeakKeyDictionary()


def _shape(kind: type[BaseException]) -> Shape:
    shape = _shapes.get(kind)
    if shape is None:
        shape = _shapes[kind] = Shape(kind)
    return shape


def plain(value: Any, deepest: int = _DEEPEST) -> bool:
    """Whether it is what JSON has, exactly, and can be stored."""
    kind = type(value)
    if kind is str:
        return not _UNSTORABLE.search(value)
    if kind is list:
        return deepest > 0 and all(plain(each, deepest - 1) for each in value)
    if kind is dict:
        return deepest > 0 and all(
            type(key) is str and plain(key) and plain(each, deepest - 1) for key, each in value.items()
        )
    return value is None or kind in (int, bool) or (kind is float and math.isfinite(value))
