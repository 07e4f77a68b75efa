"""`perdure export` and `perdure replay`: histories into files, and the present code against histories."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.client import Client
from perdure.engine.registry import Registry
from perdure.errors import ConfigurationError, HistoryUnreadable, NonExistentWorkflow
from perdure.model.history import RunHistory
from perdure.model.listing import RunFilters
from perdure.model.states import RunStatus
from perdure.replay import Report, replay

MAX_PAGE = 100
"""Ids read at once."""


def export(run_id: str) -> str:
    """The history of a run as the text of a file. Raises `NonExistentWorkflow`, `StoreUnavailable`."""

    async def read() -> str:
        async with Client(listen=False) as client:
            return (await client.export_history(run_id)).to_json()

    return asyncio.run(read())


def registry_at(where: str) -> Registry:
    """The registry that `module:name` has, or that of the instance there; of a module that is imported. Raises
    `ConfigurationError`."""
    module, _, name = where.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    found = getattr(found, "registry", found)
    if not isinstance(found, Registry):
        raise ConfigurationError(
            f"--registry is MODULE:NAME of a perdure.Instance or its registry, and {where} is none"
        )
    return found


@dataclass(frozen=True, slots=True)
class Selection:
    """Which runs of a database are replayed: the newest `limit` of a namespace, of one workflow or of all, and of these
    all or only those that have not ended."""

    namespace: str
    workflow: str | None
    limit: int
    unfinished: bool = False


@dataclass(slots=True)
class Tally:
    """What came of several histories, in order."""

    strict: bool
    registry: Registry
    say: Callable[[str], None]
    reports: list[tuple[str, Report]] = field(default_factory=list)
    unreadable: list[tuple[str, HistoryUnreadable]] = field(default_factory=list)

    async def add(self, source: str, history: RunHistory) -> None:
        """Replay one."""
        report = await replay(history, registry=self.registry, strict=self.strict)
        self.reports.append((source, report))
        for line in report.lines(source):
            self.say(line)

    def refuse(self, source: str, error: HistoryUnreadable) -> None:
        """One could not be read; the others go on."""
        self.unreadable.append((source, error))
        self.say(f"{source}: {error}")

    @property
    def ok(self) -> bool:
        """Whether all could be read and none differs."""
        return not self.unreadable and not self.differing

    @property
    def differing(self) -> int:
        """How many differ."""
        return sum(not report.ok for _, report in self.reports)

    def summary(self) -> str:
        """The last line."""
        unread = f", {len(self.unreadable)} cannot be read" if self.unreadable else ""
        return f"{len(self.reports)} replayed, {self.differing} differ{unread}"

    def as_json(self) -> str:
        """All of it for programs."""
        told: list[dict[str, Any]] = [{"source": source, **report.as_json()} for source, report in self.reports]
        told += [
            {"source": source, "ok": False, "error": {"code": error.code, "message": error.message}}
            for source, error in self.unreadable
        ]
        return json.dumps({"ok": self.ok, "histories": told}, indent=2)


def replay_files(targets: Sequence[Path], tally: Tally) -> None:
    """Replay the histories in these files, and those in the `.json` files of folders."""

    async def each() -> None:
        for path in _paths(targets):
            try:
                history = RunHistory.from_json(_text(path))
            except HistoryUnreadable as error:
                tally.refuse(str(path), error)
            else:
                await tally.add(str(path), history)

    asyncio.run(each())


def replay_database(selection: Selection, tally: Tally) -> None:
    """Replay the newest runs of a database. Raises `StoreUnavailable`, `ConfigurationError` without a URL."""

    async def each() -> None:
        async with Client(namespace=selection.namespace, listen=False) as client:
            async for run_id in _newest(client, selection):
                try:
                    history = await client.export_history(run_id)
                except NonExistentWorkflow:
                    continue  # removed since the list was read
                except HistoryUnreadable as error:
                    tally.refuse(run_id, error)
                    continue
                await tally.add(selection.namespace, history)

    asyncio.run(each())


async def _newest(client: Client, selection: Selection) -> AsyncIterator[str]:
    left, after = selection.limit, None
    named: RunFilters = {} if selection.workflow is None else {"workflow": selection.workflow}
    if selection.unfinished:
        named["status"] = [status for status in RunStatus if not status.finished]
    while left > 0:
        page = await client.list_workflows(limit=min(left, MAX_PAGE), after=after, **named)
        for run in page.runs:
            yield run.id
        left -= len(page.runs)
        after = page.next
        if after is None:
            return


def _paths(targets: Sequence[Path]) -> Iterator[Path]:
    for target in targets:
        if target.is_dir():
            found = sorted(target.rglob("*.json"))
            if not found:
                raise ConfigurationError(f"there is no .json file in {target}")
            yield from found
        else:
            yield target


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HistoryUnreadable(f"it cannot be read: {error}") from None
