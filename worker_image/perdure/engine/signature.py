"""Arguments by position: how a call of a registered function becomes a list of values, and values a call again.

One value for each parameter in the order of the signature, whatever way it was given: `*args` is one list, `**kwargs`
one mapping. So renaming a parameter changes nothing that is recorded. Parameters at the end that were not given are
left out, so that a new parameter with a default changes nothing either.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from types import SimpleNamespace
from typing import Any, get_type_hints

from perdure.errors import DecodingFailed, RegistrationError

RESULT = "return"


def hints_of(function: Callable[..., Any], names: Sequence[str]) -> dict[str, Any]:
    """Types that the named parameters (or `return`) are annotated with; those without annotation are left out.

    Only these are looked up, so that another one which exists for the type checker alone does no harm.
    """
    annotations = inspect.get_annotations(function)
    wanted = SimpleNamespace(__annotations__={name: annotations[name] for name in names if name in annotations})
    local = {parameter.__name__: parameter for parameter in getattr(function, "__type_params__", ())}
    try:
        return get_type_hints(wanted, getattr(function, "__globals__", {}), local, include_extras=True)
    except Exception as error:
        where = f"{function.__module__}.{function.__qualname__}"
        raise RegistrationError(
            f"the annotations of {where} cannot be read: {error} "
            "(a type used in them must be importable from its module, not defined inside a function)"
        ) from error


class Parameters:
    """The parameters of one registered function, prepared once so that a call costs little."""

    __slots__ = ("_collects", "_of", "_plain", "_signature", "_slots", "names")

    def __init__(self, function: Callable[..., Any], leading: int = 0) -> None:
        """`leading`: so many parameters at the front are the engine's to fill, and are not recorded."""
        try:
            self._signature = _without(inspect.signature(function), leading)
        except (TypeError, ValueError) as error:
            raise RegistrationError(f"the signature of {function!r} cannot be read: {error}") from error
        self._of = getattr(function, "__qualname__", repr(function)).rpartition("<locals>.")[2]
        self._slots = tuple(self._signature.parameters.values())
        self.names = tuple(slot.name for slot in self._slots)
        self._collects = next((slot.name for slot in self._slots if slot.kind is Parameter.VAR_KEYWORD), None)
        lead = [slot for slot in self._slots if _positional(slot)]
        required = sum(slot.default is Parameter.empty for slot in lead)
        plain = all(_optional(slot) for slot in self._slots[len(lead) :])
        self._plain = range(required, len(lead) + 1) if plain else range(0)

    @property
    def leads(self) -> bool:
        """Whether the first of them is one that is given by position."""
        return bool(self._slots) and _positional(self._slots[0])

    @property
    def required(self) -> tuple[str, ...]:
        """Parameters that have no default."""
        return tuple(slot.name for slot in self._slots if not _optional(slot))

    def record(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Values in the order of the signature. Raises `TypeError` as the call itself would, saying of what."""
        if not kwargs and len(args) in self._plain:
            return args
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self._of}(): {error}; it takes {self._takes()}") from None
        last = max((index for index, name in enumerate(self.names) if name in given), default=-1)
        return [given.get(slot.name, _default(slot)) for slot in self._slots[: last + 1]]

    def from_positions(self, values: Sequence[Any], where: str) -> dict[str, Any]:
        """Values by parameter from what `record` gave. Raises `DecodingFailed`."""
        if len(values) > len(self.names):
            raise DecodingFailed(f"{where} takes {self._takes()}; {len(values)} values are given")
        return self._complete(dict(zip(self.names, values, strict=False)), where)

    def from_names(self, given: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Values by parameter from values by name; what no parameter is called goes to `**kwargs`.

        Raises `DecodingFailed`, also when there are no `**kwargs`.
        """
        found = {name: value for name, value in given.items() if name in self.names and name != self._collects}
        others = {name: value for name, value in given.items() if name not in found}
        if self._collects is not None:
            found[self._collects] = others
        elif others:
            unknown = ", ".join(repr(name) for name in others)
            raise DecodingFailed(f"{where} has no parameter {unknown}; it takes {self._takes()}")
        return self._complete(found, where)

    def names_fit(self, given: Mapping[str, Any]) -> bool:
        """Whether values under these names make a call."""
        known = self._collects is not None or all(name in self.names for name in given)
        return known and all(slot.name in given or _optional(slot) for slot in self._slots)

    def call(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of a call from complete values by parameter."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for slot in self._slots:
            value = values.get(slot.name, _default(slot))
            if slot.kind is Parameter.VAR_POSITIONAL:
                args.extend(value)
            elif slot.kind is Parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif slot.kind is Parameter.KEYWORD_ONLY:
                kwargs[slot.name] = value
            else:
                args.append(value)
        return args, kwargs

    def type_of(self, name: str, hint: Any) -> Any:
        """Type of the whole value recorded for a parameter: a list for `*args`, a mapping for `**kwargs`."""
        match self._signature.parameters[name].kind:
            case Parameter.VAR_POSITIONAL:
                return list[hint]
            case Parameter.VAR_KEYWORD:
                return dict[str, hint]
            case _:
                return hint

    def _complete(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        missing = [slot.name for slot in self._slots if slot.name not in values and not _optional(slot)]
        if missing:
            raise DecodingFailed(f"{where} needs {', '.join(missing)}; it takes {self._takes()}")
        return values

    def _takes(self) -> str:
        return ", ".join(self.names) or "no arguments"


def _without(signature: inspect.Signature, leading: int) -> inspect.Signature:
    slots = list(signature.parameters.values())
    if not leading:
        return signature
    if not all(map(_positional, slots[:leading])) or len(slots) < leading:
        raise TypeError("its first parameter takes the connection")
    return signature.replace(parameters=slots[leading:])


def _positional(slot: Parameter) -> bool:
    return slot.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def _optional(slot: Parameter) -> bool:
    return slot.default is not Parameter.empty or slot.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def _default(slot: Parameter) -> Any:
    if slot.kind is Parameter.VAR_POSITIONAL:
        return ()
    if slot.kind is Parameter.VAR_KEYWORD:
        return {}
    return slot.default
