"""The SQL of the testing kit: one statement a file beside this module, none of which anything but tests runs."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def sql(name: str) -> str:
    """Text of `testing/sql/<name>.sql`."""
    return (resources.files(__package__) / "sql" / f"{name}.sql").read_text(encoding="utf-8")


@cache
def shifts() -> tuple[str, ...]:
    """The statements that move instants, one for each table that has any which count."""
    names = sorted(entry.name for entry in (resources.files(__package__) / "sql").iterdir())
    return tuple(sql(name.removesuffix(".sql")) for name in names if name.startswith("shift_"))
