"""PURE. Looks for what the rules forbid in the bodies of one module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from perdure.lint import rules
from perdure.lint.rules import Rule
from perdure.lint.source import Body, Module, parts


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One place that breaks a rule; lines and columns count from 1."""

    path: str
    line: int
    column: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.code} {self.message}"


def check(text: str, path: str) -> list[Finding]:
    """What is found in a module's source, by place. Raises `SyntaxError`."""
    module = Module(text, path)
    found = {
        Finding(path, node.lineno, node.col_offset + 1, rule.code, f"{what} {rule.says} (in workflow {body.workflow})")
        for body in module.bodies()
        for node, rule, what in _Checker(module, body).found()
        if not module.allows(node, rule.code)
    }
    return sorted(found)


Place = tuple[ast.stmt | ast.expr | ast.ExceptHandler, Rule, str]


class _Checker:
    def __init__(self, module: Module, body: Body) -> None:
        self._module = module
        self._body = body

    def found(self) -> Iterator[Place]:
        for node in parts(self._body.function):
            match node:
                case ast.Call():
                    yield from self._call(node)
                case ast.Try() | ast.TryStar():
                    yield from self._try(node)
                case ast.For(iter=things) | ast.AsyncFor(iter=things):
                    if any(isinstance(each, ast.Call | ast.Await) for part in node.body for each in ast.walk(part)):
                        yield from self._unordered(things)
                case ast.ListComp(elt=element, generators=loops) | ast.GeneratorExp(elt=element, generators=loops):
                    if any(isinstance(each, ast.Call | ast.Await) for each in ast.walk(element)):
                        for loop in loops:
                            yield from self._unordered(loop.iter)
                case ast.Subscript(value=value) if self._name(value) == "os.environ":
                    yield node, rules.OUTSIDE, "os.environ"

    def _call(self, node: ast.Call) -> Iterator[Place]:
        name = self._name(node.func)
        rule = rules.BY_CALL.get(name) or self._by_module(name, node)
        if rule is not None:
            yield node, rule, name
        elif name.startswith("os.environ."):
            yield node, rules.OUTSIDE, name
        if name == "asyncio.gather" and not self._returns_exceptions(node):
            yield node, rules.GATHER, name
        if name in rules.TOGETHER:
            for part in [*node.args, *(keyword.value for keyword in node.keywords)]:
                for inner in ast.walk(part):
                    if isinstance(inner, ast.Call) and self._name(inner.func) in rules.AWAITED_ALONE:
                        yield inner, rules.ALONE, self._name(inner.func)

    def _by_module(self, name: str, node: ast.Call) -> Rule | None:
        if "()" in name or (name in rules.SEEDED and node.args):
            return None  # of what a call has made, that call is the one to look at
        while name:
            name = name.rpartition(".")[0]
            if name in rules.BY_MODULE:
                return rules.BY_MODULE[name]
        return None

    @staticmethod
    def _returns_exceptions(node: ast.Call) -> bool:
        return any(
            each.arg == "return_exceptions" and isinstance(each.value, ast.Constant) and each.value.value is True
            for each in node.keywords
        )

    def _try(self, node: ast.Try | ast.TryStar) -> Iterator[Place]:
        for handler in node.handlers:
            for what in self._too_much(handler):
                if not _raises_again(handler):
                    yield handler, rules.SWALLOW, what
        for statement in node.finalbody:
            for inner in ast.walk(statement):
                if isinstance(inner, ast.Await):
                    yield inner, rules.CLEANUP, "finally"
        if node.handlers:
            for statement in node.body:
                for inner in ast.walk(statement):
                    if isinstance(inner, ast.AsyncWith):
                        for item in inner.items:
                            if self._name(item.context_expr) == "asyncio.TaskGroup()":
                                yield item.context_expr, rules.GROUP, "a TaskGroup whose error is caught"

    def _too_much(self, handler: ast.ExceptHandler) -> Iterator[str]:
        if handler.type is None:
            yield "a bare except"
            return
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        for kind in kinds:
            name = self._name(kind)
            if name in rules.CAUGHT_TOO_MUCH:
                yield f"except {name}"

    def _unordered(self, things: ast.expr) -> Iterator[Place]:
        made = isinstance(things, ast.Call) and self._name(things.func) in {"set", "frozenset"}
        if made or isinstance(things, ast.Set | ast.SetComp):
            yield things, rules.UNORDERED, "a set"

    def _name(self, node: ast.expr) -> str:
        return self._module.full_name(node)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    """Whether it ends by raising what it caught."""
    last = handler.body[-1]
    if not isinstance(last, ast.Raise):
        return False
    return last.exc is None or (isinstance(last.exc, ast.Name) and last.exc.id == handler.name)
