"""Under which name an exception is recorded, and which class a recorded name stands for.

Used by `failures`; filled by `perdure.error`. One table for the process: a class has one name, whatever registry the
workflows that raise it are in. Promises: nothing is unpickled, and a row has this process import only what
`PERDURE_ERROR_IMPORT` allows.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from perdure import errors
from perdure.engine.codec import Decoder
from perdure.engine.registry import RESERVED_PREFIX, check_name
from perdure.engine.signature import hints_of
from perdure.errors import AlreadyRegistered, ConfigurationError, RegistrationError
from perdure.model.variables import Variable

logger = logging.getLogger(__name__)

VARIABLE = "PERDURE_ERROR_IMPORT"

LOADED, NEVER = "loaded", "never"

VARIABLES = (
    Variable(
        VARIABLE,
        "Where classes of recorded errors are looked for that are not registered: `loaded` (packages of which a part "
        "is imported), `never`, or names of modules and packages, with commas, imported when they are needed.",
        LOADED,
    ),
)
"""What workers and clients read."""

OWN = f"{errors.__name__}."
"""How the recorded names of our own errors begin."""

_MODULES = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ErrorType:
    """A class of errors and the name it is recorded under. `encode` and `decode` are its author's, both or none;
    `data` reads what `decode` is given."""

    name: str
    kind: type[Exception]
    encode: Callable[[Any], Any] | None = None
    decode: Callable[[Any], Exception] | None = None
    data: Decoder | None = None
    registered: bool = False


@dataclass(frozen=True, slots=True)
class ImportPolicy:
    """Which modules are looked into for a class that is not registered. `modules` None: those of loaded packages."""

    modules: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, text: str) -> ImportPolicy:
        """From the variable. Raises `ConfigurationError`."""
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        if names in ((), (LOADED,)):
            return cls()
        if names == (NEVER,):
            return cls(())
        wrong = [name for name in names if name in (LOADED, NEVER) or not _MODULES.fullmatch(name)]
        if wrong:
            raise ConfigurationError(
                f"{VARIABLE}={text!r}: it is {LOADED}, {NEVER}, or names of modules with commas; {wrong[0]!r} is none"
            )
        return cls(names)

    def allows(self, module: str) -> bool:
        """Whether this module may be imported for a recorded error."""
        if self.modules is None:
            return module.partition(".")[0] in sys.modules
        return any(module == name or module.startswith(f"{name}.") for name in self.modules)


_known: dict[str, ErrorType] = {}
_names: dict[type[BaseException], ErrorType] = {}
_policy: ImportPolicy | None = None


def use(policy: ImportPolicy | None) -> ImportPolicy | None:
    """Look for classes by this policy from now on, None: by that of the environment; the one before."""
    global _policy
    before, _policy = _policy, policy
    return before


def policy(env: Mapping[str, str] | None = None) -> ImportPolicy:
    """That of the environment. Raises `ConfigurationError`."""
    return ImportPolicy.parse((os.environ if env is None else env).get(VARIABLE, ""))


def name_of(kind: type[BaseException]) -> str:
    """The name that exceptions of this class are recorded under."""
    known = _names.get(kind)
    return known.name if known is not None else _path(kind)


def of(kind: type[BaseException]) -> ErrorType | None:
    """How this very class is registered; None if it is not."""
    return _names.get(kind)


def find(name: str) -> ErrorType | None:
    """The class that a recorded name stands for: a registered one, one of Python's or our own, or one that the policy
    allows to be looked for. None if there is none, or it cannot be raised in a body."""
    known = _known.get(name)
    if known is not None:
        return known
    module, _, attribute = name.rpartition(".")
    if not (module == "" or name.startswith(OWN) or _allowed(module)):
        return None
    try:
        kind = getattr(import_module(module or "builtins"), attribute, None)
    except Exception:
        # Whatever a module of somebody else's does, there is the other way.
        return None
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return None
    return None if issubclass(kind, StopIteration | StopAsyncIteration) else ErrorType(name, kind)


def register(
    kind: type[Exception],
    name: str,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Exception] | None = None,
    former_names: Iterable[str] = (),
) -> None:
    """Record exceptions of this class under this name, and take it for `former_names` as well.

    Raises `RegistrationError` for what cannot be registered, `AlreadyRegistered` for a name that has a class.
    """
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        raise RegistrationError(f"{kind!r} is no class of exceptions: @perdure.error stands over one")
    where = _path(kind)
    if issubclass(kind, StopIteration | StopAsyncIteration):
        raise RegistrationError(f"{where} ends iterations: raised by a workflow it would not arrive as itself")
    if "." not in where or where.startswith(OWN):
        raise RegistrationError(f"{where} is not yours to name: derive a class of your own from it")
    former = (former_names,) if isinstance(former_names, str) else tuple(former_names)
    for each in (name, *former):
        _check(each, where)
    known = _names.get(kind)
    if known is not None and known.name != name:
        raise RegistrationError(f"{where} is registered as {known.name} already: an error has one name")
    if (encode is None) != (decode is None):
        raise RegistrationError(f"{where}: encode and decode go together, one without the other is of no use")
    for hook in (encode, decode):
        if hook is not None and not callable(hook):
            raise RegistrationError(f"{where}: {hook!r} is no function")
    made = ErrorType(name, kind, encode, decode, None if decode is None else _reader(decode, where), registered=True)
    _add(made, (name, *former), where)


def _add(made: ErrorType, names: tuple[str, ...], where: str) -> None:
    for each in names:
        other = _known.get(each)
        if other is not None and not _same_source(other.kind, made.kind):
            raise AlreadyRegistered(
                f"two classes are registered as error {each}: {_path(other.kind)} and {where}; give one another name"
            )
    _names[made.kind] = made
    # Also rows from before it was registered are those of this class.
    _known[where] = made
    for each in names:
        _known[each] = made


def _check(name: str, where: str) -> None:
    check_name(name)
    if name.startswith(RESERVED_PREFIX):
        raise RegistrationError(f"{where}: names that begin with {RESERVED_PREFIX} are Perdure's")
    if "." not in name and find(name) is not None and name not in _known:
        raise RegistrationError(f"{where}: {name} is a class of Python's own; give it a name that is yours")


def _reader(decode: Callable[[Any], Exception], where: str) -> Decoder:
    """Reads the data as what the function's first parameter is annotated with."""
    code = getattr(decode, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    skipped = 1 if hasattr(decode, "__self__") else 0
    first = names[skipped : skipped + 1]
    hints = hints_of(getattr(decode, "__func__", decode), first) if first else {}
    return Decoder(hints.get(first[0], Any) if first else Any, f"what the decode function of {where} takes")


def _allowed(module: str) -> bool:
    if _policy is not None:
        return _policy.allows(module)
    try:
        return policy().allows(module)
    except ConfigurationError as error:
        logger.error("%s; no class of an error is looked for", error)
        return False


def _path(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _same_source(one: type[Exception], other: type[Exception]) -> bool:
    """The same class, or that of a file that was imported again or under a second name."""
    if one is other:
        return True
    files = [getattr(sys.modules.get(kind.__module__), "__file__", None) for kind in (one, other)]
    local = "<locals>" in one.__qualname__
    return not local and one.__qualname__ == other.__qualname__ and files[0] is not None and files[0] == files[1]
