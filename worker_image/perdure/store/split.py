"""A script of SQL as its statements: for what can only run one at a time. Pure; called by `scaffold`."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
      --[^\n]*                                    # a comment to the end of the line
    | /\*.*?\*/                                   # a comment (not nested: migrations have none)
    | [eE]'(?:[^'\\]|\\.|'')*'                    # a text with escapes
    | '(?:[^']|'')*'                              # a text
    | "(?:[^"]|"")*"                              # a name
    | (?P<tag>\$(?:[A-Za-z_]\w*)?\$).*?(?P=tag)   # a text between dollars
    | [A-Za-z_][\w$]*                             # a word, with dollars in it that begin no text
    | (?P<end>;)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


def split(script: str) -> list[str]:
    """The statements of `script` without their semicolons, which must end the last one, too: joined again with a
    semicolon behind each they are the script but for the blank behind the last."""
    statements, begin = [], 0
    for token in _TOKEN.finditer(script):
        if token["end"]:
            statements.append(script[begin : token.start()])
            begin = token.end()
    if script[begin:].strip():
        raise ValueError(f"no semicolon ends {script[begin:].strip()[:60]!r}")
    return statements
