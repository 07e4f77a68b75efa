"""The statements of this package: one a file in `sql/`."""

from functools import cache
from pathlib import Path


@cache
def text(name: str) -> str:
    """Text of `sql/<name>.sql`."""
    return (Path(__file__).parent / "sql" / f"{name}.sql").read_text()
