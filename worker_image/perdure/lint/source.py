"""PURE. What a module's source says: what its names stand for, which of its functions are bodies of workflows, and
which others belong to these as they are called in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from perdure.lint.rules import LEAVES, WORKFLOW

Function = ast.FunctionDef | ast.AsyncFunctionDef

ALLOW = re.compile(r"#\s*perdure:\s*allow=([\w,\s]+)")


@dataclass(frozen=True, slots=True)
class Body:
    """A function that is replayed: a workflow's own, or one that `workflow` calls."""

    function: Function
    workflow: str


class Module:
    """One module, parsed. Raises `SyntaxError`."""

    def __init__(self, text: str, path: str) -> None:
        self.tree = ast.parse(text, path)
        self._names = dict(_imports(self.tree))
        self._allowed = {
            number: {code.strip() for code in found[1].split(",")}
            for number, line in enumerate(text.splitlines(), 1)
            if (found := ALLOW.search(line))
        }

    def full_name(self, node: ast.expr) -> str:
        """What an expression stands for, with what was imported spelled out: `datetime.datetime.now`. Empty for what is
        no name. The result of a call is written with `()`."""
        match node:
            case ast.Name(id=name):
                return self._names.get(name, name)
            case ast.Attribute(value=value, attr=name):
                before = self.full_name(value)
                return f"{before}.{name}" if before else ""
            case ast.Call(func=function):
                name = self.full_name(function)
                return f"{name}()" if name else ""
            case _:
                return ""

    def allows(self, node: ast.AST, code: str) -> bool:
        """Whether a comment on one of the node's lines says that this is meant."""
        first = getattr(node, "lineno", 0)
        last = first if isinstance(node, ast.ExceptHandler) else getattr(node, "end_lineno", None)
        lines = range(first, (last or first) + 1)
        return any(code in self._allowed.get(line, ()) for line in lines)

    def bodies(self) -> list[Body]:
        """The bodies of workflows, and the functions of this module that they call, each once."""
        functions = {node.name: node for node in self.tree.body if isinstance(node, Function)}
        found: dict[Function, Body] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, Function) and WORKFLOW in self._decorators(node):
                found[node] = Body(node, node.name)
        waiting = list(found.values())
        while waiting:
            body = waiting.pop()
            for name in _called(body.function):
                helper = functions.get(name)
                if helper is None or helper in found or self._decorators(helper) & (LEAVES | {WORKFLOW}):
                    continue
                found[helper] = Body(helper, body.workflow)
                waiting.append(found[helper])
        return sorted(found.values(), key=lambda body: body.function.lineno)

    def _decorators(self, function: Function) -> set[str]:
        """Last names of its decorators."""
        names = (self.full_name(node.func if isinstance(node, ast.Call) else node) for node in function.decorator_list)
        return {name.rpartition(".")[2] for name in names}


def parts(body: Function) -> Iterator[ast.AST]:
    """All nodes of a body, also of the functions in it, but not of its own decorators, annotations and defaults."""
    for statement in body.body:
        yield from ast.walk(statement)


def _called(function: Function) -> Iterator[str]:
    for node in parts(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Local name → full name, of everything that is imported anywhere in the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    yield alias.asname, alias.name
                else:
                    first = alias.name.partition(".")[0]
                    yield first, first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"
