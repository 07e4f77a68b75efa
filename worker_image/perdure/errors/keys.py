"""Idempotency keys that somebody else holds."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class KeyInProgress(PerdureError):
    """Somebody else is doing what this idempotency key stands for, and had not ended in time."""

    code = "PRD-533"
    retryable = True


class KeyLost(PerdureError):
    """This holder of an idempotency key was not heard of for longer than its lease; somebody else has the key."""

    code = "PRD-534"
    retryable = True
