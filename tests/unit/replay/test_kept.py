"""The histories that earlier releases have recorded, and this one, replay against the code of now, for ever."""

import importlib
import json
from pathlib import Path

import perdure
import pytest
from perdure.api import default_registry
from perdure.model.calls import CallName
from perdure.model.history import RunHistory
from perdure.replay import replay

importlib.import_module("tests.replay.flows")

FOLDER = Path(__file__).parents[2] / "replay" / "histories"
FILES = sorted(FOLDER.rglob("*.json"))


def kept(path: Path, was: str = "", now: str = "") -> RunHistory:
    return RunHistory.from_json(path.read_text().replace(was, now) if was else path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_history_of_a_release_replays_to_its_end(path: Path) -> None:
    history = kept(path)
    report = await replay(history, registry=default_registry, strict=True)
    assert report.ok, "\n".join(report.lines(path.name))
    assert report.replayed == report.steps


def test_this_release_has_histories_with_every_kind_of_durable_call() -> None:
    """`make histories` records them; a new kind of call needs a workflow in tests/replay/flows.py."""
    files = sorted((FOLDER / perdure.__version__).glob("*.json"))
    names = {step["name"] for file in files for step in json.loads(file.read_text())["steps"]}
    assert {call.value for call in CallName} <= names


async def test_a_body_that_was_changed_is_found_in_a_kept_history() -> None:
    """Were it not, the test above would say nothing."""
    history = kept(FOLDER / perdure.__version__ / "talks.json", '"own"', '"other"')
    found = (await replay(history, registry=default_registry)).difference
    assert found is not None
    assert (found.code, found.index, found.name) == ("PRD-302", 0, "perdure.send")
    assert found.line is not None
    assert found.line.text == 'await perdure.send(me, {"n": 1}, topic="own", key="k")'
