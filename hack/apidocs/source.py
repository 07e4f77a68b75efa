"""Finds what a public name stands for: the function, class or value that defines it, through all imports on the way."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from apidocs import PACKAGES

Function = ast.FunctionDef | ast.AsyncFunctionDef
Value = ast.Assign | ast.AnnAssign


class Unknown(LookupError):
    """A name that nothing defines where it is looked for."""


@dataclass(frozen=True)
class Found:
    """What a name stands for. `node` is None for a module. Of an overloaded function `overloads` has the others."""

    module: str
    name: str
    node: Function | ast.ClassDef | Value | None
    doc: str
    overloads: tuple[Function, ...] = ()


@dataclass
class Module:
    """The top level of one file, or the body of one class."""

    name: str
    doc: str = ""
    functions: dict[str, list[Function]] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    values: dict[str, tuple[Value, str]] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)


@cache
def module(name: str) -> Module:
    """A module by its dotted name. Raises `Unknown`."""
    file = file_of(name)
    if file is None:
        raise Unknown(f"there is no module {name}")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = Module(name, ast.get_docstring(tree) or "")
    fill(found, tree.body)
    return found


def file_of(name: str) -> Path | None:
    """The file of a module or package of `perdure`."""
    base = PACKAGES.joinpath(*name.split("."))
    for file in (base.with_suffix(".py"), base / "__init__.py"):
        if file.is_file():
            return file
    return None


def fill(found: Module, body: list[ast.stmt]) -> None:
    """Put what a body defines into its tables; blocks under an `if` count, those of type checkers for example."""
    for number, node in enumerate(body):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.functions.setdefault(node.name, []).append(node)
            case ast.ClassDef():
                found.classes[node.name] = node
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                found.values[name] = (node, _text_behind(body, number))
            case ast.ImportFrom(module=str(source), names=names):
                for each in names:
                    found.imports[each.asname or each.name] = (source, each.name)
            case ast.If():
                fill(found, node.body)


def public_names(name: str) -> list[str]:
    """The `__all__` of a module, or without one all that it defines and that does not begin with an underscore."""
    found = module(name)
    if "__all__" in found.values:
        node, _ = found.values["__all__"]
        assert node.value is not None
        return list(ast.literal_eval(node.value))
    defined = [*found.functions, *found.classes]
    return [each for each in defined if not each.startswith("_")]


def resolve(place: str, name: str) -> Found:
    """What `name` stands for in the module `place`. Raises `Unknown`."""
    found = module(place)
    if name in found.functions:
        *overloads, last = found.functions[name]
        return Found(place, name, last, ast.get_docstring(last) or "", tuple(overloads))
    if name in found.classes:
        return Found(place, name, found.classes[name], ast.get_docstring(found.classes[name]) or "")
    if name in found.values:
        return Found(place, name, *found.values[name])
    if name in found.imports:
        source, original = found.imports[name]
        if file_of(f"{source}.{original}") is not None:
            return Found(f"{source}.{original}", name, None, module(f"{source}.{original}").doc)
        return resolve(source, original)
    if file_of(f"{place}.{name}") is not None:
        return Found(f"{place}.{name}", name, None, module(f"{place}.{name}").doc)
    raise Unknown(f"{place} does not define {name}")


def members(found: Found) -> Module:
    """What the body of a class defines."""
    assert isinstance(found.node, ast.ClassDef)
    inside = Module(found.name, found.doc)
    fill(inside, found.node.body)
    return inside


def _text_behind(body: list[ast.stmt], number: int) -> str:
    """The string that stands right behind a value: its docstring."""
    match body[number + 1 : number + 2]:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return inspect.cleandoc(text)
    return ""
