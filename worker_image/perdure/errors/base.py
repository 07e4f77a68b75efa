"""The base of all errors that a person or a program meets."""

from __future__ import annotations

from typing import ClassVar


class PerdureError(Exception):
    """Base of all errors. `code` is stable, `retryable` says whether trying again unchanged can succeed."""

    code: ClassVar[str] = "PRD-000"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
