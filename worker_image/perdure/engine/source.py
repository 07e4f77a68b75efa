"""The hash of a workflow's source: equal where a run of one version can go on with the code of another.

Read by `engine.manifest` when a worker starts. What counts is what the code does: comments, layout, docstrings,
decorators of the workflow and its own name do not. Beside the body it looks one level deep at what that names:
functions and classes of the same module, constants that stand there as literals, and the names and parameters of steps
and other workflows, wherever they are. Bodies of steps do not count, as a replay does not run them. What those
functions call in turn, what comes from other modules and what other decorators do is not seen.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from types import FunctionType
from typing import Any

UNREADABLE = (OSError, TypeError, ValueError, SyntaxError, RecursionError)
"""What it means that there is no source: a function that was made at run time, a program without its files."""

WITHOUT_MEANING = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
"""Fields of nodes that say nothing which their surroundings do not, or how a text was written."""

REGISTERED = frozenset({"step", "workflow"})
"""Kinds of definitions of which a replay depends on the name and the parameters."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def source_hash(function: Callable[..., Any]) -> str | None:
    """SHA-256 in hexadecimal digits, the same on each version of Python; None where the source cannot be read."""
    if not isinstance(function, FunctionType):
        return None
    try:
        tree = _tree(function)
        if not isinstance(tree, Function):
            return None
        parts = [text_of(_bare(tree)), *sorted(_named(function, tree))]
    except UNREADABLE:
        return None
    return sha256("\n".join(parts).encode("utf-8", "backslashreplace")).hexdigest()


def text_of(node: Any) -> str:
    """One text for all that means the same. As `ast.dump`, which differs between versions of Python."""
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if name not in WITHOUT_MEANING)
        said = ",".join(f"{name}={text_of(value)}" for name, value in fields if value is not None and value != [])
        return f"{type(node).__name__}({said})"
    if isinstance(node, list):
        return f"[{','.join(map(text_of, node))}]"
    return repr(node)


def _tree(thing: FunctionType | type) -> ast.stmt:
    """What defines a function or a class. Raises what is in `UNREADABLE`."""
    text = inspect.getsource(thing)
    # Not dedented: that would change texts of several lines within it.
    inner = text[:1].isspace()
    (statement, *_) = ast.parse(f"if True:\n{text}" if inner else text).body
    if inner:
        assert isinstance(statement, ast.If)
        statement = statement.body[0]
    return statement


def _bare(tree: ast.stmt) -> ast.stmt:
    """Without decorators, its own name, and all docstrings. Changes the tree."""
    if isinstance(tree, Function | ast.ClassDef):
        tree.name = ""
        if isinstance(tree, Function):
            tree.decorator_list = []
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                node.body = node.body[1:]
    return tree


def _named(function: FunctionType, tree: ast.stmt) -> Iterator[str]:
    """What the tree names of what a replay depends on."""
    scope = _scope(function)
    module = function.__module__
    for chain in sorted(_chains(tree)):
        found = _resolved(scope, chain)
        if found is function:
            continue
        definition: Any = getattr(found, "definition", None)
        if getattr(definition, "kind", None) in REGISTERED:
            yield f"{chain}: {definition.kind} {definition.name} {_parameters(definition.function)}"
        elif isinstance(found, FunctionType | type) and found.__module__ == module:
            try:
                yield f"{chain}: {text_of(_bare(_tree(found)))}"
            except UNREADABLE:
                yield f"{chain}: unreadable"
        elif chain in function.__globals__ and chain in (constants := _constants(module)):
            yield f"{chain} = {constants[chain]}"


def _scope(function: FunctionType) -> Mapping[str, Any]:
    """Names that a function has from outside."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    inner = {name: cell.cell_contents for name, cell in cells if _filled(cell)}
    return {**function.__globals__, **inner}


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _chains(tree: ast.stmt) -> set[str]:
    """Names, and names within modules, that are read: `charge`, `steps.charge`."""
    found = set()
    for node in ast.walk(tree):
        parts: list[str] = []
        at: ast.AST = node
        while isinstance(at, ast.Attribute):
            parts.append(at.attr)
            at = at.value
        if isinstance(at, ast.Name):
            found.add(".".join([at.id, *reversed(parts)]))
    return found


def _resolved(scope: Mapping[str, Any], chain: str) -> Any:
    """What a chain stands for, as far as it leads through modules alone; None: nothing that is known."""
    first, *rest = chain.split(".")
    found = scope.get(first)
    for part in rest:
        if not inspect.ismodule(found):
            return None
        found = getattr(found, part, None)
    return found


def _parameters(function: Any) -> str:
    """How a step is called and what it returns."""
    try:
        tree = _tree(function)
    except UNREADABLE:
        return "unreadable"
    if not isinstance(tree, Function):
        return "unreadable"
    return f"{text_of(tree.args)} {text_of(tree.returns)}"


@lru_cache(maxsize=1024)
def _constants(module: str) -> Mapping[str, str]:
    """Names that stand in a module for literals, as text. Read once: modules do not change under a process."""
    try:
        body = ast.parse(inspect.getsource(sys.modules[module])).body
    except (*UNREADABLE, KeyError):
        return {}
    found: dict[str, str] = {}
    for statement in body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                if _is_literal(value):
                    found[name] = text_of(value)
                else:
                    found.pop(name, None)
    return found


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
