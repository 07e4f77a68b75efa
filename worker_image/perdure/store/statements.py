"""The shipped SQL: one statement a file, loaded once. Called by every module of this package and by nobody else.

A statement's text is its identity for asyncpg's cache of prepared statements, so it is never formatted or joined:
what varies is a parameter.
"""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def sql(name: str) -> str:
    """Text of `store/sql/<name>.sql`."""
    return (resources.files(__package__) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
