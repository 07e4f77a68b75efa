"""What `perdure dev` shows: a live table on a terminal, one line for each change elsewhere.

Knows only `.status` as a cluster would show it, so what a person learns here holds there too. A mark is never alone:
the word stands beside it, for those who grep and those who see no colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

Status = Mapping[str, Any]

MARKS = {
    "Pending": ("·", "dim"),
    "Running": ("▶", "cyan"),
    "Waiting": ("◔", "yellow"),
    "Suspended": ("‖", "yellow"),
    "Succeeded": ("✔", "green"),
    "Failed": ("✖", "red"),
    "Cancelled": ("◌", "red"),
    "Interrupted": ("!", "yellow"),
    "Dropped": ("·", "dim"),
    "NotRun": ("·", "dim"),
}

FRAMES_PER_SECOND = 8
"""Enough to look alive; each frame draws the whole table anew."""


class View:
    """Entered while runs are going on: `update` takes the newest status of each run, `note` a line to be kept."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=FRAMES_PER_SECOND) if console.is_terminal else None
        self._seen: dict[tuple[str, ...], str] = {}

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def note(self, text: str) -> None:
        """A line that stays, with the time of this machine."""
        self._console.print(Text(f"{datetime.now(UTC).astimezone():%H:%M:%S} {text}"))

    def update(self, statuses: Mapping[str, Status]) -> None:
        """Show the newest status of each run, by the name of the run."""
        if self._live:
            self._live.update(Group(*(_table(name, status) for name, status in statuses.items())))
            return
        for name, status in statuses.items():
            for key, line in _lines(name, status):
                if self._seen.get(key) != line:
                    self._seen[key] = line
                    self.note(line)


def _lines(name: str, status: Status) -> Iterable[tuple[tuple[str, ...], str]]:
    words = _words(name, status.get("phase", "Pending"), status.get("waiting") or _error(status))
    ended = "finishedAt" in status
    if not ended:
        yield (name,), words
    for step in status.get("steps", []):
        attempts = f"attempt {step['attempts']}" if step.get("attempts", 0) > 1 else ""
        detail = ", ".join(filter(None, (attempts, step.get("waitingFor") or step.get("message"))))
        if step["phase"] not in ("Pending", "NotRun"):
            yield (name, str(step["index"])), _words(f"{name}  {step['name']}", step["phase"], detail)
    if ended:
        yield (name,), words


def _words(what: str, phase: str, detail: str | None) -> str:
    return f"{what:<32} {phase}" + (f"  {detail}" if detail else "")


def _table(name: str, status: Status) -> RenderableType:
    table = Table(box=None, pad_edge=False, title_justify="left", header_style="bold")
    mark, style = MARKS.get(status.get("phase", "Pending"), ("?", ""))
    table.title = Text(f"{mark} {name}  {status.get('phase', 'Pending')}  {status.get('progress', '')}", style)
    for column, width in (("STEP", 24), ("STATUS", 13), ("TRY", 4), ("TOOK", 8)):
        table.add_column(column, min_width=width, no_wrap=True)
    table.add_column("DETAIL", overflow="fold")
    for step in status.get("steps", []):
        mark, style = MARKS.get(step["phase"], ("?", ""))
        table.add_row(
            step["name"],
            Text(f"{mark} {step['phase']}", style),
            str(step.get("attempts") or ""),
            took(step),
            step.get("waitingFor") or step.get("message") or "",
        )
    words = status.get("waiting") or _error(status)
    return Group(table, Text(f"  {words}", "yellow"), Text("")) if words else Group(table, Text(""))


def _error(status: Status) -> str:
    error = status.get("error")
    return "" if not error else ": ".join(filter(None, (error.get("step"), error.get("message"))))


def took(step: Status) -> str:
    """How long a finished step took, in the unit that a person would use; empty while it runs."""
    started, finished = step.get("startedAt"), step.get("finishedAt")
    if not (started and finished):
        return ""
    seconds = (datetime.fromisoformat(finished) - datetime.fromisoformat(started)).total_seconds()
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.1f}s"
