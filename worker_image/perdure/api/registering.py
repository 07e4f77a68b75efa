"""Where the decorators register, and under which name unless they are told otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.engine.registry import Registry
from perdure.errors import RegistrationError

default_registry = Registry()
"""Where the decorators register unless they are told otherwise; what a worker runs."""


def name_of(function: Callable[..., Any]) -> str:
    """Its name as the code has it. Raises `RegistrationError` for what has none."""
    name = getattr(function, "__qualname__", "")
    if not name:
        raise RegistrationError(f"{function!r} has no name of its own; give it one with name=")
    return str(name)
