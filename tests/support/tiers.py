"""What a tier does on a machine that cannot run it."""

import os
from typing import NoReturn

import pytest


def unavailable(tier: str, reason: str) -> NoReturn:
    """Skip with the reason; in CI fail, because there a skipped tier is a hole nobody would see.

    The runner behind `make test` reads the message: `<tier> tier: <reason>`.
    """
    message = f"{tier} tier: {reason}"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
