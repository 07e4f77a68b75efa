"""Errors of programs in other languages, and those that are to be read by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors.base import PerdureError

if TYPE_CHECKING:
    from typing import Any


class Portable(PerdureError):
    """A step or a run failed with an error in the form that all languages read, and no class here has its name.

    `name` is what its author calls it, `code` a number or a word of its author or None, `data` plain values as JSON has
    them. The code of this class itself, `Portable.code`, is PRD-408. Raise one to fail with an error that another
    program knows.
    """

    code: int | str | None = "PRD-408"  # type: ignore[misc, assignment]

    def __init__(self, name: str, message: str, code: int | str | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.name = name
        self.code = code
        self.data = data

    def __str__(self) -> str:
        return f"{type(self).code}: {self.name}: {self.message}"
