"""Recorded histories in tests: what a release has recorded, the code of now has to do again."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from perdure import replay as replays
from perdure.api import Workflow
from perdure.errors import HistoryUnreadable
from perdure.model.history import RunHistory


async def replay(
    history: RunHistory | str | PathLike[str],
    workflow: Workflow[..., Any] | None = None,
    *,
    strict: bool = False,
) -> replays.Report:
    """Replay a history, or the file of one, as `perdure replay` does: no step is run, no database is needed.

    `workflow`: the one to replay it with, whatever its name; None: the one of the recorded name. `strict`: a run that
    has ended must also end as it did. Raises `ReplayDiffers` with the first difference and the line that makes it,
    `HistoryUnreadable` for a file that is none.
    """
    found = history if isinstance(history, RunHistory) else _read(Path(history))
    report = await replays.replay(found, workflow, strict=strict)
    report.check()
    return report


def _read(path: Path) -> RunHistory:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HistoryUnreadable(f"{path} cannot be read: {error}") from None
    return RunHistory.from_json(text)
