"""Steps that are written where they are called: a name and a body, which may be a closure. In no registry.

Made by `perdure.run_step` at each call. Recorded, compared and retried as registered steps are; the recorded input is
the arguments alone, so that what a closure captures is not compared at a replay.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from perdure.engine.codec import Decoder, encode
from perdure.engine.encoding import PLAIN, Encoding
from perdure.engine.registry import NOT_PREEMPTIBLE, StepDefinition, StepOptions, check_step_name
from perdure.engine.signature import RESULT, hints_of
from perdure.errors import InvalidArgument, RegistrationError

KNOWN_TYPES = 512
"""Annotations of results whose decoders are kept: a closure is made anew at each call, its annotation rarely."""


class InlineStep(StepDefinition):
    """One call's definition. Raises `InvalidArgument` for a name, body, option or annotation that cannot be used."""

    def __init__(self, name: str, body: Callable[..., Any], options: StepOptions) -> None:
        try:
            check_step_name(name)
        except RegistrationError as error:
            raise InvalidArgument(error.message) from None
        if not callable(body):
            raise InvalidArgument(f"{name}: the body of a step is a function, not {body!r}")
        plain = _plain(body)
        if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
            raise InvalidArgument(f"{name}: a step returns one value; a generator cannot be recorded")
        self.name = name
        self.function = body
        self.is_async = inspect.iscoroutinefunction(plain)
        self.options = options
        self.policy = options.policy
        self._what = f"the arguments of step {name}"
        if options.preemptible and not self.is_async:
            raise InvalidArgument(f"{name}: {NOT_PREEMPTIBLE}")
        try:
            self.result = _decoder_of(plain)
        except RegistrationError as error:
            raise InvalidArgument(f"{name}: {error.message}") from error

    def encode_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], encoding: Encoding = PLAIN) -> str:
        """The recorded input of a call. Raises `EncodingFailed`."""
        return encode(args, self._what, encoding)


def _plain(body: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind a partial, a method, or an object that can be called."""
    while isinstance(body, partial):
        body = body.func
    if inspect.isroutine(body) or inspect.isclass(body):
        return body
    return type(body).__call__


def _decoder_of(function: Callable[..., Any]) -> Decoder:
    if inspect.isclass(function):
        hint: Any = function
    else:
        hint = hints_of(function, (RESULT,)).get(RESULT, Any)
    try:
        return _decoder(hint)
    except TypeError:  # its annotation is no key
        return Decoder(hint, _RESULT)


_RESULT = "its result"


@lru_cache(maxsize=KNOWN_TYPES)
def _decoder(hint: Any) -> Decoder:
    return Decoder(hint, _RESULT)
