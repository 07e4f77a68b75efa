"""How a call is written: names, types and defaults as the source has them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from apidocs.source import Function

WIDEST = 100
"""A signature that needs more columns has a line for each parameter."""

UNSAID = "UNSAID"
"""What stands in the code for "not given", where None means something."""


def signature(name: str, function: Function, *, method: bool = False, result: bool = True) -> str:
    """As a call of `name` is written. `method`: the first parameter is the object itself."""
    parts = _parameters(function.args, skip_first=method)
    returns = "" if function.returns is None or not result else f" -> {ast.unparse(function.returns)}"
    awaited = "await " if isinstance(function, ast.AsyncFunctionDef) and not _yields(function) else ""
    whole = f"{awaited}{name}({', '.join(parts)}){returns}"
    if len(whole) <= WIDEST:
        return whole
    lines = "".join(f"    {part},\n" for part in parts)
    return f"{awaited}{name}(\n{lines}){returns}"


def telling(function: Function, overloads: Sequence[Function]) -> Function:
    """The one that says most: the implementation, unless it takes options as `**options: Any`, which says nothing."""
    kwarg = function.args.kwarg
    untyped = kwarg is not None and kwarg.annotation is not None and ast.unparse(kwarg.annotation) == "Any"
    if not (untyped and overloads):
        return function
    return max(overloads, key=lambda each: len(each.args.kwonlyargs) + len(each.args.args))


def _parameters(args: ast.arguments, *, skip_first: bool) -> list[str]:
    plain = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    parts = [_parameter(each, default) for each, default in zip(plain, defaults, strict=True)]
    if args.posonlyargs:
        parts.insert(len(args.posonlyargs), "/")
    if skip_first and parts:
        del parts[0]
        if parts[:1] == ["/"]:
            del parts[0]
    if args.vararg is not None:
        parts.append(f"*{_parameter(args.vararg, None)}")
    elif args.kwonlyargs:
        parts.append("*")
    for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        parts.append(_parameter(each, default))
    if args.kwarg is not None:
        parts.append(f"**{_parameter(args.kwarg, None)}")
    return parts


def _parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    text = parameter.arg
    if parameter.annotation is not None:
        text += f": {ast.unparse(parameter.annotation)}"
    if default is None:
        return text
    value = "..." if isinstance(default, ast.Name) and default.id == UNSAID else ast.unparse(default)
    return f"{text} = {value}" if parameter.annotation is not None else f"{text}={value}"


def _yields(function: Function) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))
