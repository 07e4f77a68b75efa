"""A plugin of pytest that tells `found.collected` what was collected, and which of it the marks skip."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from _pytest.skipping import evaluate_skip_marks

from features.found import ANSWER


def pytest_collection_finish(session: pytest.Session) -> None:
    """A function with parameters counts as skipped when none of its cases runs."""
    skipped: dict[str, bool] = {}
    for item in session.items:
        name = item.nodeid.partition("[")[0]
        skipped[name] = skipped.get(name, True) and evaluate_skip_marks(item) is not None
    Path(os.environ[ANSWER]).write_text(json.dumps(skipped))
