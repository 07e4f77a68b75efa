"""Which files are meant by what is given to `perdure lint`, and what is found in them."""

from __future__ import annotations

import tokenize
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from perdure.errors import ConfigurationError
from perdure.lint.check import Finding, check


def lint(targets: Sequence[str]) -> tuple[list[Finding], int]:
    """What is found in files, folders and modules, and how many files were read. Raises `ConfigurationError`."""
    paths = list(dict.fromkeys(path for target in targets for path in _paths(target)))
    return [finding for path in paths for finding in _check(path)], len(paths)


def _paths(target: str) -> Iterator[Path]:
    path = Path(target)
    if path.is_dir():
        yield from sorted(each for each in path.rglob("*.py") if not _hidden(each.relative_to(path)))
    elif path.is_file():
        yield path
    else:
        yield from _module(target)


def _module(name: str) -> Iterator[Path]:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise ConfigurationError(f"{name} is no file, no folder and no module that can be found here")
    if spec.submodule_search_locations:
        for folder in spec.submodule_search_locations:
            yield from _paths(folder)
    else:
        yield Path(spec.origin)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") or part in {"__pycache__", "node_modules", "site-packages"} for part in path.parts)


def _check(path: Path) -> list[Finding]:
    try:
        with tokenize.open(path) as file:
            text = file.read()
        return check(text, str(path))
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read as Python: {error}") from error
