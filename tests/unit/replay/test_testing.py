"""`perdure.testing.replay`: a history, or its file, in a test of one's own."""

import importlib
from pathlib import Path

import perdure
import pytest
from perdure.errors import HistoryUnreadable, ReplayDiffers
from perdure.testing import replay

KEPT = Path(__file__).parents[2] / "replay" / "histories" / perdure.__version__
flows = importlib.import_module("tests.replay.flows")


async def test_a_file_is_replayed_with_the_workflow_of_its_name() -> None:
    report = await replay(KEPT / "steps.json", strict=True)
    assert report.replayed == report.steps > 20


async def test_another_workflow_differs_and_the_line_is_in_the_error() -> None:
    with pytest.raises(ReplayDiffers) as caught:
        await replay(str(KEPT / "fails.json"), flows.values)
    assert "PRD-301" in caught.value.message
    assert "now = await perdure.now()" in caught.value.message


async def test_a_file_that_is_no_history_is_told(tmp_path: Path) -> None:
    with pytest.raises(HistoryUnreadable):
        await replay(__file__)
    with pytest.raises(HistoryUnreadable):
        await replay(tmp_path / "none.json")
