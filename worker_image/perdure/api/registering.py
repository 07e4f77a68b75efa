"""Where the decorators register, and under which name unless they are told otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perdure.engine.registry import Registry, StepOptions
from perdure.engine.serialization import PROCESS
from perdure.errors import InvalidArgument, RegistrationError

default_registry = Registry(PROCESS)
"""Where the decorators register unless they are told otherwise; what a worker runs."""


MAIN = "__main__"
"""What Python calls the module that a process was begun with."""


def name_of(function: Callable[..., Any]) -> str:
    """Its name as the code has it. Raises `RegistrationError` for what has none."""
    name = getattr(function, "__qualname__", "")
    if not name:
        raise RegistrationError(f"{function!r} has no name of its own; give it one with name=")
    return str(name)


def options_of(said: Mapping[str, Any]) -> StepOptions:
    """What a decorator was told. Raises `RegistrationError`, `TypeError`."""
    try:
        return StepOptions.said(said)
    except InvalidArgument as error:
        raise RegistrationError(error.message) from None


def qualified_name_of(function: Callable[..., Any]) -> str:
    """Its name with that of its module, as every process that imports the module knows it.

    Raises `RegistrationError` for what has no name, and where the module's own cannot be known.
    """
    return f"{_module_of(function)}.{name_of(function)}"


def _module_of(function: Callable[..., Any]) -> str:
    """The module's name. The file that a process was begun with is called `__main__` there, and by its own name in all
    others: what is recorded under the first would be found by nobody."""
    module = str(getattr(function, "__module__", ""))
    if module != MAIN:
        return module
    main = sys.modules[MAIN]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        found = str(spec.name)
    else:
        file = Path(getattr(main, "__file__", None) or MAIN)
        # Within a package the file has a longer name, which depends on where the others import it from.
        found = MAIN if (file.parent / "__init__.py").exists() else file.stem
    if found.rpartition(".")[2] == MAIN or not found.rpartition(".")[2].isidentifier():
        raise RegistrationError(
            f"workflow {name_of(function)} stands in the file that this process was begun with, and other processes do "
            "not know that by a name: give it one with name=, or move it to a module"
        )
    return found
